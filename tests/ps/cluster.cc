#include "cluster.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster_process.h"

namespace gyre::ps {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience(60'000);  // after the last blow, all must be over within so long

std::vector<Tensor> Tensors(const Plan& plan) {
  std::vector<Tensor> tensors;
  // Fewer elements are not worth a payload.
  const int more = std::holds_alternative<NoCompression>(plan.compression) ? 0 : 100;
  for (int t = 0; t < plan.tensors; ++t) tensors.push_back({absl::StrCat("t", t), plan.workers + more});
  return tensors;
}

std::vector<Table> Tables(const Plan& plan) {
  std::vector<Table> tables;
  for (int t = 0; t < plan.tables; ++t) {
    tables.push_back({.name = absl::StrCat("rows", t), .rows = int64_t{1} << 40, .columns = kClusterColumns});
  }
  return tables;
}

}  // namespace

class Cluster::Link final : public Network {
 public:
  Link(Cluster& cluster, Process& process) : cluster_(cluster), process_(process) {}
  void Send(int peer, const Message& message) override { cluster_.Send(process_, peer, message); }

 private:
  Cluster& cluster_;
  Process& process_;
};

class Cluster::Ring final : public Network {
 public:
  Ring(Cluster& cluster, Process& process) : cluster_(cluster), process_(process) {}
  void Send(int peer, const Message& message) override {
    cluster_.SendInRing(process_, static_cast<Side>(peer), message);
  }

 private:
  Cluster& cluster_;
  Process& process_;
};

Cluster::Cluster(Plan plan) : plan_(std::move(plan)), random_(plan_.seed), chance_(plan_.seed + 1) {
  clock_.Advance(milliseconds(1));
  layout_.push_back(*Layout::Create(Tensors(plan_), plan_.servers, std::nullopt, Tables(plan_)));
  for (const Table& table : layout_[0].tables()) {
    auto& own = ids_.emplace_back(static_cast<size_t>(plan_.servers));
    const auto full = [&](const auto& ids) { return std::ssize(ids) == plan_.workers; };
    for (int64_t id = 0; !std::ranges::all_of(own, full); id += 1 + id / 1000) {
      auto& ids = own[static_cast<size_t>(ServerOf(KeyOf(table), id, plan_.servers))];
      if (!full(ids)) ids.push_back(id);
    }
  }
  servers_.resize(static_cast<size_t>(plan_.servers));
  workers_.resize(static_cast<size_t>(plan_.workers));
  saved_.resize(servers_.size());
  ended_.resize(workers_.size());
  for (int server = 0; server < plan_.servers; ++server) {
    disks_.push_back(std::make_unique<MemoryDisk>());
    durable_.emplace_back(layout_[0].OfServer(server).size(), std::vector<uint64_t>(workers_.size()));
  }
  at_next_ = told_ = told_history_ = durable_;
  copy_at_end_.resize(servers_.size());
  for (int server = 0; server < plan_.servers; ++server) {
    StartServer(server);
  }
  for (int worker = 0; worker < plan_.workers; ++worker) {
    In(static_cast<int64_t>(random_.Below(50)), [this, worker] { StartWorker(worker); });
  }
  for (const Blow& blow : plan_.blows) In(blow.at, [this, blow] { Strike(blow); });
}

Cluster::~Cluster() = default;

void Cluster::At(TimePoint when, std::function<void()> what) {
  events_.push({std::max(when, now()), next_event_++, std::move(what)});
}

Cluster::Process* Cluster::Current(bool server, int number) const {
  const auto& lives = (server ? servers_ : workers_)[static_cast<size_t>(number)];
  return lives.empty() || !lives.back()->alive ? nullptr : lives.back().get();
}

void Cluster::StartServer(int number) {
  auto& lives = servers_[static_cast<size_t>(number)];
  auto process = std::make_shared<Process>();
  Process& self = *process;
  self.is_server = true;
  self.number = number;
  self.incarnation = lives.size() + 1;
  self.link = std::make_unique<Link>(*this, self);
  self.ring = std::make_unique<Ring>(*this, self);
  self.history.assign(layout_[0].OfServer(number).size(), std::vector<uint64_t>(workers_.size()));
  MemoryDisk& disk = *disks_[static_cast<size_t>(number)];
  auto server = Server::Start({.server = number,
                               .epoch = 5,
                               .incarnation = self.incarnation,
                               .consistency = plan_.consistency,
                               .rule = std::nullopt,
                               .timing = kClusterTiming,
                               .workers = plan_.gather ? plan_.workers : 1,
                               .snapshot_interval = milliseconds(plan_.snapshot_ms),
                               .values_as = plan_.values_as,
                               .ring = plan_.replicas ? self.ring.get() : nullptr,
                               .piece_bytes = plan_.piece_bytes,
                               .guards = plan_.guards,
                               .applied = [this, &self](const AppliedPush& push) { CheckApplied(self, push); }},
                              layout_[0], clock_, *self.link, disk);
  if (!server.ok() && disk.failing()) {  // torn again
    Kill(self);
    lives.push_back(process);
    disk.Crash(random_);
    return In(200, [this, number] { StartServer(number); });
  }
  if (!server.ok()) return Wrong(absl::StrCat("a server does not start: ", server.status().ToString()));
  self.server = *std::move(server);
  disk.on_write = [this, number](std::string_view name) {
    const auto end = name.find(".snapshot");
    if (end == std::string_view::npos) return;
    // Whose: the name has it. It holds what the history has now.
    for (const auto& life : servers_[static_cast<size_t>(number)]) {
      if (name.find(absl::StrCat(".", life->incarnation, ".tmp")) == std::string_view::npos) continue;
      saved_[static_cast<size_t>(number)][std::string(name.substr(0, end))] = life->history;
    }
  };
  lives.push_back(process);
  CheckRestored(self);
  if (plan_.replicas) histories_[{number, self.incarnation}][0] = self.history;
  Wake(process);
}

void Cluster::StartWorker(int number) {
  auto& lives = workers_[static_cast<size_t>(number)];
  auto process = std::make_shared<Process>();
  Process& self = *process;
  self.number = number;
  self.incarnation = lives.size() + 1;
  self.link = std::make_unique<Link>(*this, self);
  self.worker = *Worker::Create({.worker = number,
                                 .epoch = 5,
                                 .incarnation = self.incarnation,
                                 .rule = std::nullopt,
                                 .timing = kClusterTiming,
                                 .local_steps = plan_.local_steps,
                                 .local_time = milliseconds(5000),
                                 .retain = plan_.retain,
                                 .window = plan_.window,
                                 .window_of_all = plan_.window_of_all,
                                 .compression = {.compression = plan_.compression, .workers = plan_.workers},
                                 .guards = plan_.guards,
                                 .way = [this](int) { return plan_.way; }},
                                layout_[0], std::vector<float>(static_cast<size_t>(layout_[0].elements())), clock_,
                                *self.link, chance_);
  lives.push_back(process);
  Wake(process);
}

void Cluster::Kill(Process& process) {
  if (process.server) NoteEnd(process);
  process.alive = false;
  if (process.worker) process.clock = process.worker->clock();
  process.server.reset();
  process.worker.reset();
}

void Cluster::Strike(const Blow& blow) {
  if (blow.kind == Blow::Kind::kCut) {
    cut_.insert({blow.whom, blow.worker});
    return In(blow.lasts, [this, blow] { cut_.erase({blow.whom, blow.worker}); });
  }
  if (blow.kind == Blow::Kind::kSever) {
    severed_.insert(blow.whom);
    return In(blow.lasts, [this, blow] { severed_.erase(blow.whom); });
  }
  Process* process = Current(blow.server, blow.whom);
  if (process == nullptr || (!blow.server && gone_.contains(blow.whom))) return;
  const auto start = [this, blow] { blow.server ? StartServer(blow.whom) : StartWorker(blow.whom); };
  switch (blow.kind) {
    case Blow::Kind::kTear:
      return disks_[static_cast<size_t>(blow.whom)]->FailAfter(1 + static_cast<int64_t>(random_.Below(9)));
    case Blow::Kind::kFreeze:
    case Blow::Kind::kReplace:
      process->frozen_until = now() + milliseconds(blow.lasts);
      if (blow.kind == Blow::Kind::kReplace && blow.server) NoteEnd(*process);
      if (blow.kind == Blow::Kind::kReplace) start();
      return;
    default:
      Kill(*process);
      if (blow.kind == Blow::Kind::kCrash) disks_[static_cast<size_t>(blow.whom)]->Crash(random_);
      if (blow.kind == Blow::Kind::kLose) {
        disks_[static_cast<size_t>(blow.whom)]->Lose();
        lost_disks_.insert(blow.whom);
      }
      if (blow.lasts < 0) {
        gone_.insert(blow.whom);
      } else {
        In(blow.lasts, start);
      }
  }
}

void Cluster::Wake(const std::shared_ptr<Process>& process) {
  if (!process->alive || !wrong_.empty()) return;
  if (process->is_server && disks_[static_cast<size_t>(process->number)]->failing()) {
    Kill(*process);
    disks_[static_cast<size_t>(process->number)]->Crash(random_);
    if (Current(true, process->number) == nullptr) In(200, [this, n = process->number] { StartServer(n); });
    return;
  }
  if (!process->is_server) Compute(process);
  const TimePoint next = process->is_server ? process->server->NextTick() : process->worker->NextTick();
  if (next >= process->tick_at) return;
  process->tick_at = next;
  At(next, [this, process, next] {
    if (process->tick_at != next) return;
    process->tick_at = TimePoint::max();
    Tick(process);
  });
}

void Cluster::Tick(const std::shared_ptr<Process>& process) {
  if (!process->alive) return;
  if (process->frozen_until > now()) return At(process->frozen_until, [this, process] { Tick(process); });
  if (process->is_server) {
    process->server->Tick();
    CheckExpired(*process);
  } else {
    process->worker->Tick();
  }
  Wake(process);
}

void Cluster::Compute(const std::shared_ptr<Process>& process) {
  Worker& worker = *process->worker;
  if (process->pulling) {
    if (const auto server = worker.MissingRows()) {
      last_reason_ = absl::StrCat("rows of server ", *server);
      return;
    }
    process->pulling = false;
    process->computing = true;
    return In(1 + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(plan_.compute_ms))),
              [this, process] { EndStep(process); });
  }
  if (process->computing || worker.clock() >= plan_.steps || !worker.status().ok()) return;
  if (const auto waiting = worker.WhyWaiting()) {
    last_reason_ = waiting->text;
    return;
  }
  if (!worker.Begin().ok()) return Wrong("a step that may begin does not");
  ever_local_ = ever_local_ || worker.local_steps() > 0;
  if (worker.local_steps() > plan_.local_steps) Wrong("too many steps without a server");
  if (plan_.tables > 0) {
    process->pulling = true;
    return AskRows(*process);
  }
  process->computing = true;
  In(1 + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(plan_.compute_ms))),
     [this, process] { EndStep(process); });
}

void Cluster::EndStep(const std::shared_ptr<Process>& process) {
  if (!process->alive) return;
  if (process->frozen_until > now()) return At(process->frozen_until, [this, process] { EndStep(process); });
  Worker& worker = *process->worker;
  process->computing = false;
  std::vector<float> gradient(worker.model().size());
  for (const Partition& partition : layout_[0].partitions()) {
    if (partition.table >= 0) break;
    gradient[static_cast<size_t>(partition.offset + process->number)] = 1;
    for (auto i = plan_.workers; i < partition.count; ++i) {
      gradient[static_cast<size_t>(partition.offset + i)] = static_cast<float>((i * 7 + worker.clock() * 13) % 11) - 5;
    }
  }
  const uint64_t step = worker.clock();
  // First, for End sends.
  const bool status = worker.End(gradient, RowsOf(process->number)).ok();
  if (!status) return Wrong("a step does not end");
  if (worker.clock() == step + 1) {
    ended_[static_cast<size_t>(process->number)][process->incarnation] |= uint64_t{1} << step;
  }
  Wake(process);
}

// All workers' rows of one table, some twice.
void Cluster::AskRows(Process& process) {
  const auto table = static_cast<size_t>(process.worker->clock()) % ids_.size();
  std::vector<int64_t> ids;
  for (const auto& own : ids_[table]) {
    ids.insert(ids.end(), own.rbegin(), own.rend());
    ids.push_back(own[0]);
  }
  if (!process.worker->AskRows(static_cast<int>(table), ids).ok()) Wrong("rows are not asked for");
}

std::vector<Floats> Cluster::RowsOf(int worker) const {
  std::vector<Floats> rows;
  for (size_t table = 0; table < ids_.size(); ++table) {
    std::vector<int64_t> ids;
    std::vector<float> gradients;
    for (const float piece : {0.25f, 0.75f}) {
      for (const auto& own : ids_[table]) {
        ids.push_back(own[static_cast<size_t>(worker)]);
        gradients.insert(gradients.end(), {piece, 2 * piece});
      }
    }
    auto packed = *PackRows(layout_[0].tables()[table], plan_.servers, ids, gradients);
    std::ranges::move(packed, std::back_inserter(rows));
  }
  return rows;
}

// The next server has all that has changed. Messages that are lost keep changes back for a while.
bool Cluster::HasWholeCopy(int server) const {
  if (!plan_.replicas || layout_[0].OfServer(server).empty()) return true;
  const Process* const own = Current(true, server);
  const Process* const next = Current(true, NextOf(server));
  if (own == nullptr || next == nullptr || !next->server->follower()->has_copy()) return false;
  const Follower& follower = *next->server->follower();
  return follower.life() == own->incarnation && follower.position() == own->server->position();
}

bool Cluster::Done() const {
  for (int worker = 0; worker < plan_.workers; ++worker) {
    if (gone_.contains(worker)) continue;
    const Process* process = Current(false, worker);
    if (process == nullptr || process->pulling || process->computing || process->worker->clock() < plan_.steps)
      return false;
    if (process->worker->WhyWaiting()) return false;  // the last values too
  }
  for (int server = 0; server < plan_.servers; ++server) {
    if (Current(true, server) == nullptr || Current(true, server)->server->recovering()) return false;
    if (!HasWholeCopy(server)) return false;
  }
  return true;
}

std::string Cluster::Run() {
  TimePoint last_blow = now();
  for (const Blow& blow : plan_.blows)
    last_blow = std::max(last_blow, now() + milliseconds(blow.at + std::max<int64_t>(blow.lasts, 0)));
  TimePoint settled = TimePoint::max();
  while (wrong_.empty() && !lost_ && !events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    clock_.Advance(event.when - now());
    event.what();
    // All is settled a while after all is done: every message has come.
    if (now() <= last_blow || !Done()) {
      settled = TimePoint::max();
    } else if (settled == TimePoint::max()) {
      settled = now() + milliseconds(10'000);
    }
    if (now() >= settled) break;
    // A push that has little credit waits for two messages, with replicas for four, and a step with tables for its rows
    // besides: any of them may be lost or late.
    if (now() > last_blow + (plan_.replicas || plan_.tables > 0 ? 3 : 1) * kPatience)
      Wrong(absl::StrCat("no end; the last reason to wait: ", last_reason_));
  }
  if (wrong_.empty() && !lost_) CheckEnd();
  return wrong_;
}

void Cluster::Wrong(const std::string& what) {
  if (!wrong_.empty()) return;
  wrong_ = absl::StrCat(what, " [", now().time_since_epoch() / milliseconds(1), " ms]");
}

}  // namespace gyre::ps
