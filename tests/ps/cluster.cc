#include "cluster.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "xxhash.h"

namespace gyre::ps {

namespace {

using std::chrono::milliseconds;

constexpr Timing kTiming{.heartbeat = milliseconds(200), .timeout = milliseconds(1000), .resend = milliseconds(400)};
constexpr milliseconds kPatience(60'000);  // after the last blow, all must be over within so long

std::string Text(std::string_view what, const std::vector<uint64_t>& numbers) {
  return absl::StrCat(ToAbsl(what), " ", absl::StrJoin(numbers, " "));
}

std::vector<Tensor> Tensors(const Plan& plan) {
  std::vector<Tensor> tensors;
  // Fewer elements are not worth a payload.
  const int more = std::holds_alternative<NoCompression>(plan.compression) ? 0 : 100;
  for (int t = 0; t < plan.tensors; ++t) tensors.push_back({absl::StrCat("t", t), plan.workers + more});
  return tensors;
}

constexpr int64_t kColumns = 2;

std::vector<Table> Tables(const Plan& plan) {
  std::vector<Table> tables;
  for (int t = 0; t < plan.tables; ++t) {
    tables.push_back({.name = absl::StrCat("rows", t), .rows = int64_t{1} << 40, .columns = kColumns});
  }
  return tables;
}

}  // namespace

// A life of a server or worker. What is on its way to a number reaches every living process that has it.
struct Cluster::Process {
  bool is_server = false;
  int number = 0;
  uint64_t incarnation = 0;
  bool alive = true;
  TimePoint frozen_until{};
  TimePoint tick_at = TimePoint::max();
  std::unique_ptr<Network> link, ring;
  std::unique_ptr<Server> server;
  std::unique_ptr<Worker> worker;
  // Of a server:
  History history;
  std::map<int, uint64_t> welcomed;  // by worker: its newest life that was welcomed
  std::map<int, TimePoint> heard;    // by worker: when its newest life was
  std::set<int> members, gaps;       // gaps: who was given up, or came anew, at some time
  // Of a worker:
  bool pulling = false, computing = false;  // it waits for rows; it makes a gradient
  uint64_t clock = 0;                       // where it was when it ended
};

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
                               .timing = kTiming,
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
                                 .timing = kTiming,
                                 .local_steps = plan_.local_steps,
                                 .local_time = milliseconds(5000),
                                 .retain = plan_.retain,
                                 .window = plan_.window,
                                 .compression = {.compression = plan_.compression, .workers = plan_.workers},
                                 .guards = plan_.guards},
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

void Cluster::Send(Process& from, int to, const Message& message) {
  if (from.is_server) CheckSent(from, to, message);
  // Where it joined; a floor further on: it was given up somewhere, and has gone on from where the others were.
  if (message.kind == Kind::kHeartbeat || (message.kind == Kind::kHello && message.flag)) {
    const auto [joined, first] = joined_.try_emplace({from.number, from.incarnation}, message.clock);
    if (!first && joined->second != message.clock) jumped_.insert(joined->first);
  }
  const bool to_server = !from.is_server;
  if (message.kind == Kind::kPush) {
    CheckPush(from, to, message);
    most_under_way_ = std::max(most_under_way_, static_cast<size_t>(++under_way_[{from.number, to}]));
  }
  const auto lost = [this](uint64_t one_in) { return one_in > 0 && random_.OneIn(one_in); };
  if (cut_.contains({to_server ? to : from.number, to_server ? from.number : to}) || lost(plan_.drop)) return;
  const std::string bytes = Encode(message);
  for (int copies = lost(plan_.duplicate) ? 2 : 1; copies > 0; --copies) {
    const auto late = static_cast<int64_t>(lost(plan_.delay) ? random_.Below(1500) : 1);
    In(late, [this, to_server, to, number = from.number, bytes] { Deliver(to_server, to, number, bytes); });
  }
}

void Cluster::Deliver(bool to_server, int to, int from, const std::string& bytes) {
  const auto lives = (to_server ? servers_ : workers_)[static_cast<size_t>(to)];
  for (const auto& process : lives) {
    if (!process->alive) continue;
    if (process->frozen_until > now()) {
      At(process->frozen_until, [this, to_server, to, from, bytes] { Deliver(to_server, to, from, bytes); });
      return;
    }
    ++messages_;
    const int64_t key[] = {now().time_since_epoch().count(), to_server ? 1 : 0, to, from};
    trace_ = XXH3_64bits_withSeed(key, sizeof(key), trace_);
    trace_ = XXH3_64bits_withSeed(bytes.data(), bytes.size(), trace_);
    const auto message = Decode(bytes);
    if (!message.ok()) return Wrong("a message is not understood");
    if (process->is_server) {
      if (message->incarnation >= process->welcomed[from]) process->heard[from] = now();
      process->server->Receive(from, *message);
    } else {
      if (message->kind == Kind::kAck) --under_way_[{to, from}];
      process->worker->Receive(from, *message);
    }
    Wake(process);
  }
}

void Cluster::SendInRing(Process& from, Side to, const Message& message) {
  const int number = from.number;
  const int other = to == kNext ? NextOf(number) : (number + plan_.servers - 1) % plan_.servers;
  if (to == kBefore && message.kind == Kind::kConfirm) {
    const std::span<const Shard> copy = from.server->follower()->shards();
    for (size_t slot = 0; slot < copy.size(); ++slot) {
      for (size_t worker = 0; worker < workers_.size(); ++worker) {
        uint64_t& there = at_next_[static_cast<size_t>(other)][slot][worker];
        there = std::max(there, copy[slot].Next(static_cast<int>(worker)));
      }
    }
  }
  const Follower* const follower = from.server ? from.server->follower() : nullptr;
  if (to == kBefore && message.kind == Kind::kPiece && follower->has_copy()) {
    given_[{number, from.incarnation}] = {follower->life(), follower->position()};
  }
  const auto lost = [this](uint64_t one_in) { return one_in > 0 && random_.OneIn(one_in); };
  if (severed_.contains(to == kNext ? number : other) || lost(plan_.drop)) return;
  const std::string bytes = Encode(message);
  for (int copies = lost(plan_.duplicate) ? 2 : 1; copies > 0; --copies) {
    const auto late = static_cast<int64_t>(lost(plan_.delay) ? random_.Below(1500) : 1);
    In(late, [this, other, side = to == kNext ? kBefore : kNext, bytes] { DeliverInRing(other, side, bytes); });
  }
}

void Cluster::DeliverInRing(int to, Side from, const std::string& bytes) {
  const auto lives = servers_[static_cast<size_t>(to)];
  for (const auto& process : lives) {
    if (!process->alive) continue;
    if (process->frozen_until > now()) {
      At(process->frozen_until, [this, to, from, bytes] { DeliverInRing(to, from, bytes); });
      return;
    }
    ++messages_;
    const int64_t key[] = {now().time_since_epoch().count(), 2, to, from};
    trace_ = XXH3_64bits_withSeed(key, sizeof(key), trace_);
    trace_ = XXH3_64bits_withSeed(bytes.data(), bytes.size(), trace_);
    const auto message = Decode(bytes);
    if (!message.ok()) return Wrong("a message between servers is not understood");
    const bool recovering = process->server->recovering();
    process->server->ReceiveFromServer(from, *message);
    if (recovering && !process->server->recovering()) {
      const auto given = given_.find({NextOf(to), message->incarnation});
      if (process->server->recovered()) {
        ++recoveries_;
        const auto& known = histories_[{to, given->second.first}];
        process->history = std::prev(known.upper_bound(given->second.second))->second;
        histories_[{to, process->incarnation}][0] = process->history;
      }
      CheckRecovered(*process);
    }
    Wake(process);
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
  while (wrong_.empty() && !events_.empty()) {
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
  if (wrong_.empty()) CheckEnd();
  return wrong_;
}

void Cluster::Wrong(const std::string& what) {
  if (!wrong_.empty()) return;
  wrong_ = absl::StrCat(what, " [", now().time_since_epoch() / milliseconds(1), " ms]");
}

void Cluster::CheckApplied(Process& server, const AppliedPush& push) {
  const uint64_t bit = uint64_t{1} << push.sequence;
  uint64_t& applied = server.history[static_cast<size_t>(push.slot)][static_cast<size_t>(push.worker)];
  const std::vector<uint64_t> who = {static_cast<uint64_t>(push.worker), push.sequence};
  if ((applied & bit) != 0) Wrong(Text("applied twice: worker, step", who));
  applied |= bit;
  if (plan_.replicas) {
    histories_[{server.number, server.incarnation}][server.server->position() + 1] = server.history;
  }
  if (push.incarnation < server.welcomed[push.worker]) Wrong(Text("applied, but fenced: worker, step", who));
}

void Cluster::CheckSent(Process& server, int worker, const Message& message) {
  const auto w = static_cast<size_t>(worker);
  if (message.kind == Kind::kWelcome) {
    uint64_t& newest = server.welcomed[worker];
    if (message.to > newest && newest > 0) server.gaps.insert(worker);
    newest = std::max(newest, message.to);
    uint64_t& granted = granted_[{worker, message.to}];
    if (message.member && !message.floors.empty()) granted = std::max(granted, std::ranges::max(message.floors));
    // Whoever comes anew belongs no more, without being given up.
    message.member ? void(server.members.insert(worker)) : void(server.members.erase(worker));
  }
  if (plan_.replicas) {
    if (message.kind == Kind::kAck) CheckTold(server, worker, message.slot, message.sequence);
    for (size_t slot = 0; slot < message.next.size(); ++slot) CheckTold(server, worker, slot, message.next[slot]);
  }
  for (size_t slot = 0; slot < message.durable.size() && !plan_.replicas; ++slot) {
    uint64_t& durable = durable_[static_cast<size_t>(server.number)][slot][w];
    // A process that was replaced knows less, and is not believed.
    if (&server != servers_[static_cast<size_t>(server.number)].back().get()) continue;
    if (message.durable[slot] < durable) Wrong(Text("what was durable is not: worker, step", {w, durable}));
    durable = std::max(durable, message.durable[slot]);
  }
  if (message.kind == Kind::kRefuse) {
    const auto& lives = workers_[w];
    if (message.to >= lives.back()->incarnation) Wrong("the newest life of a worker is refused");
  }
  if (message.kind == Kind::kValues || message.kind == Kind::kRows) CheckValues(server, worker, message);
  if (message.kind == Kind::kRows) CheckRows(server, message);
}

// The worker goes on to step `clock` with these values: how far must the others have come, and what must be in them?
void Cluster::CheckValues(Process& server, int worker, const Message& message) {
  const Mode mode = plan_.consistency.mode;
  const bool replaced = &server != servers_[static_cast<size_t>(server.number)].back().get();  // nobody listens to it
  if (mode == Mode::kAsynchronous || replaced) return;
  const uint64_t bound = mode == Mode::kStale ? plan_.consistency.bound : 0;
  const uint64_t due = message.clock - std::min(message.clock, bound);
  for (const int other : server.server->roster().members()) {
    const auto& lives = workers_[static_cast<size_t>(other)];
    const uint64_t life = server.server->roster().incarnation(other);
    const Process& process = *lives[life - 1];
    const uint64_t granted = granted_[{other, life}];
    const uint64_t ended = ended_[static_cast<size_t>(other)][life];
    // A dead one, not given up yet, has come as far as it had.
    const uint64_t clock = process.alive ? process.worker->clock() : process.clock;
    const std::vector<uint64_t> who = {static_cast<uint64_t>(worker), message.clock, static_cast<uint64_t>(other),
                                       clock};
    if (std::max(clock, granted) < due) Wrong(Text("the bound is broken: worker, step, other, its step", who));
    // What it pushed is in there, if it could be: it was there all the time, and had kept what it pushed.
    const uint64_t before = ended & ((uint64_t{1} << due) - 1);
    const uint64_t in = server.history[message.slot][static_cast<size_t>(other)];
    const bool gaps = server.gaps.contains(other) || jumped_.contains({other, life});
    if (gaps || server.incarnation > 1 || !process.alive) continue;
    if ((before & ~in) != 0) Wrong(Text("pushes are missing in values: worker, step, of worker, its step", who));
  }
}

// What is sent is what was applied: no push twice, none missing, none of another table.
void Cluster::CheckRows(Process& server, const Message& message) {
  std::vector<float> sent(message.values.size() / sizeof(float));
  if (std::ssize(sent) != kColumns * plan_.workers) return Wrong("rows are sent that were not asked for");
  std::memcpy(sent.data(), message.values.data(), message.values.size());
  const std::vector<float> expected = Expected(server, message.slot);
  for (size_t worker = 0; worker < expected.size(); ++worker) {  // whose ids rise with their number
    if (std::abs(sent[2 * worker] - expected[worker]) > 1e-3f) Wrong(Text("rows are not what was applied", {worker}));
    if (sent[2 * worker + 1] != 2 * sent[2 * worker]) Wrong(Text("a row has another's values", {worker}));
  }
}

std::vector<float> Cluster::Expected(const Process& server, size_t slot) const {
  std::vector<float> expected;
  const std::vector<uint64_t>& history = server.history[slot];
  for (const uint64_t own : history) {
    expected.push_back(static_cast<float>(std::popcount(own)));
    if (plan_.consistency.mode != Mode::kSynchronous) continue;
    expected.back() = 0;
    for (uint64_t step = 0; step < plan_.steps; ++step) {
      const auto has = [step](uint64_t steps) { return (steps >> step & 1) != 0; };
      if (has(own)) expected.back() += 1.0f / static_cast<float>(std::ranges::count_if(history, has));
    }
  }
  return expected;
}

std::vector<float> Cluster::ValuesOf(const Process& server, size_t slot) const {
  const Shard& shard = server.server->shard(static_cast<int>(slot));
  if (shard.rows() == nullptr) return {shard.values().begin(), shard.values().end()};
  const auto table = slot + ids_.size() - server.history.size();
  std::vector<float> rows(ids_[table][static_cast<size_t>(server.number)].size() * kColumns), values;
  shard.rows()->Read(std::as_bytes(std::span(ids_[table][static_cast<size_t>(server.number)])), rows);
  for (size_t i = 0; i < rows.size(); i += kColumns) values.push_back(rows[i]);
  return values;
}

void Cluster::CheckExpired(Process& server) {
  const std::vector<int>& members = server.server->roster().members();
  for (auto member = server.members.begin(); member != server.members.end();) {
    if (std::ranges::binary_search(members, *member)) {
      ++member;
      continue;
    }
    server.gaps.insert(*member);
    const auto heard = server.heard.find(*member);
    if (heard != server.heard.end() && now() - heard->second < kTiming.timeout) {
      Wrong(Text("given up though heard: worker", {static_cast<uint64_t>(*member)}));
    }
    member = server.members.erase(member);
  }
}

// A new life begins where the snapshot is, and all that was said to be durable is in it.
void Cluster::CheckRestored(Process& server) {
  const auto number = static_cast<size_t>(server.number);
  const auto names = disks_[number]->List();
  for (const std::string& name : *names) {
    const auto end = name.find(".snapshot");
    if (end != std::string::npos) server.history = saved_[number][std::string(name, 0, end)];
  }
  // With replicas it is what the next server has that counts.
  for (size_t slot = 0; slot < server.history.size() && !plan_.replicas; ++slot) {
    const Shard& shard = server.server->shard(static_cast<int>(slot));
    for (size_t worker = 0; worker < workers_.size(); ++worker) {
      const uint64_t told = durable_[number][slot][worker];
      if (shard.Next(static_cast<int>(worker)) < told) Wrong(Text("durable pushes are lost: worker", {worker, told}));
    }
  }
}

void Cluster::CheckPush(const Process& worker, int server, const Message& message) {
  const bool of_table = IsOfTable(server, message.slot);
  if (of_table && message.packed != 0) return Wrong("rows are pushed as a payload");
  if (!compressed() || of_table) return;
  const auto number = static_cast<size_t>(worker.number);
  const auto slot = static_cast<size_t>(message.slot);
  const auto& partition = layout_[0].partitions()[static_cast<size_t>(layout_[0].OfServer(server)[slot])];
  const Floats pushed = message.packed == 0 ? Floats::CopyOf(message.values)
                                            : PushDecoder().Decode(message.values.first(message.packed),
                                                                   static_cast<size_t>(partition.count));
  if (static_cast<int64_t>(pushed.size()) != partition.count) return Wrong("a push is not what it says");
  const Sent sent{XXH3_64bits(message.values.data(), message.values.size()), pushed.span()[number]};
  const auto [known, first] = sent_[{server, slot, number, message.sequence}].try_emplace(worker.incarnation, sent);
  if (!first && known->second.hash != sent.hash) {
    Wrong(Text("what is pushed again is something else: worker, step", {number, message.sequence}));
  }
}

std::optional<float> Cluster::Pushed(int server, size_t slot, size_t worker, uint64_t step) const {
  if (!compressed() || IsOfTable(server, slot)) return 1.0f;
  const auto found = sent_.find({server, slot, worker, step});
  if (found == sent_.end()) return std::nullopt;
  const float own = found->second.begin()->second.own;
  for (const auto& [_, sent] : found->second) {
    if (sent.own != own) return std::nullopt;
  }
  return own;
}

// What a worker's element has of these steps, if that is known.
std::optional<float> Cluster::SumOf(int server, size_t slot, size_t worker, uint64_t steps) const {
  float sum = 0;
  for (; steps != 0; steps &= steps - 1) {
    const auto pushed = Pushed(server, slot, worker, static_cast<uint64_t>(std::countr_zero(steps)));
    if (!pushed) return std::nullopt;
    sum += *pushed;
  }
  return sum;
}

// What all workers' elements have together of the means of these steps' pushes.
std::optional<float> Cluster::MeansOf(int server, size_t slot, const std::vector<uint64_t>& history) const {
  float means = 0;
  for (uint64_t step = 0; step < plan_.steps; ++step) {
    float sum = 0, pushes = 0;
    for (size_t worker = 0; worker < history.size(); ++worker) {
      const uint64_t bit = history[worker] & (uint64_t{1} << step);
      const auto pushed = SumOf(server, slot, worker, bit);
      if (!pushed) return std::nullopt;
      sum += *pushed;
      pushes += bit != 0 ? 1 : 0;
    }
    means += pushes > 0 ? sum / pushes : 0;
  }
  return means;
}

// What a worker is told is acknowledged is at two servers.
void Cluster::CheckTold(Process& server, int worker, size_t slot, uint64_t next) {
  const auto number = static_cast<size_t>(server.number);
  const auto w = static_cast<size_t>(worker);
  if (next > at_next_[number][slot][w])
    Wrong(Text("acknowledged, but not at the next server: worker, step", {w, next}));
  if (&server != servers_[number].back().get()) return;
  uint64_t& told = told_[number][slot][w];
  told = std::max(told, next);
  told_history_[number][slot][w] |= server.history[slot][w] & ((uint64_t{1} << next) - 1);
}

// Its process ends, or another takes its place: who has its state now?
void Cluster::NoteEnd(Process& server) {
  if (!plan_.replicas || Current(true, server.number) != &server) return;
  const Process* const next = Current(true, NextOf(server.number));
  const bool copy = next != nullptr && next->server->follower() != nullptr && next->server->follower()->has_copy();
  copy_at_end_[static_cast<size_t>(server.number)] = copy ? next->incarnation : 0;
}

// It has its state again, and all that workers were told of is in it, unless two servers were lost at once.
void Cluster::CheckRecovered(Process& server) {
  const auto number = static_cast<size_t>(server.number);
  const Process* const next = Current(true, NextOf(server.number));
  const bool must = copy_at_end_[number] > 0 && next != nullptr && next->incarnation == copy_at_end_[number];
  for (size_t slot = 0; slot < server.history.size(); ++slot) {
    const Shard& shard = server.server->shard(static_cast<int>(slot));
    for (size_t worker = 0; worker < workers_.size(); ++worker) {
      uint64_t& told = told_[number][slot][worker];
      uint64_t& applied = told_history_[number][slot][worker];
      const uint64_t is = shard.Next(static_cast<int>(worker));
      // In BSP what was applied may be held there.
      const bool synchronous = plan_.consistency.mode == Mode::kSynchronous;
      const bool missing = !synchronous && (applied & ~server.history[slot][worker]) != 0;
      if (must && (is < told || missing)) {
        Wrong(Text("acknowledged pushes are lost: of server, worker, told, is", {number, worker, told, is}));
      }
      if (must) continue;
      told = applied = 0;
    }
  }
  if (!must) doubly_lost_.insert(server.number);
  if (!must && !server.server->shard(0).has_values()) begun_anew_.insert(server.number);
}

// In the end each copy is what it is a copy of.
void Cluster::CheckCopies() {
  for (int number = 0; number < plan_.servers && plan_.replicas; ++number) {
    const Server& server = *Current(true, number)->server;
    const Follower* const follower = Current(true, NextOf(number))->server->follower();
    for (size_t slot = 0; slot < layout_[0].OfServer(number).size(); ++slot) {
      const Shard& shard = server.shard(static_cast<int>(slot));
      if (!follower->has_copy()) return Wrong("there is no copy of a server");
      const Shard& copy = follower->shards()[slot];
      const bool same_rows = shard.rows() == nullptr || copy.rows()->Save() == shard.rows()->Save();
      if (copy.version() != shard.version() || !std::ranges::equal(copy.values(), shard.values()) || !same_rows) {
        return Wrong(Text("the copy of a server is another one: server, life and change of both, steps of both",
                          {static_cast<uint64_t>(number), Current(true, number)->incarnation, server.position(),
                           follower->life(), follower->position(), shard.version(), copy.version()}));
      }
    }
  }
}

void Cluster::CheckEnd() {
  CheckCopies();
  const bool synchronous = plan_.consistency.mode == Mode::kSynchronous;
  for (int number = 0; number < plan_.servers; ++number) {
    const Process& process = *Current(true, number);
    if (begun_anew_.contains(number)) continue;
    for (size_t slot = 0; slot < process.history.size(); ++slot) {
      const std::vector<float> values = ValuesOf(process, slot), expected = Expected(process, slot);
      const bool plain = !compressed() || IsOfTable(number, slot);
      float all = 0;
      for (size_t worker = 0; worker < workers_.size(); ++worker) {
        const uint64_t in = process.history[slot][worker];
        all += values[worker];
        const auto sum = plain ? expected[worker] : SumOf(number, slot, worker, in);
        const bool judged = plain || !synchronous;
        if (judged && sum && std::abs(values[worker] - *sum) > (plain && !synchronous ? 0.0f : 1e-3f)) {
          Wrong(Text("values do not hold what was applied: of worker", {worker}));
        }
        // Who lived to the end, and kept all until it was safe, has lost nothing. Late steps count for nobody in BSP.
        const uint64_t ended = ended_[worker][workers_[worker].back()->incarnation];
        const bool lived = !gone_.contains(static_cast<int>(worker));
        const bool once = plan_.replicas && !doubly_lost_.contains(number);
        const bool kept = once || (plan_.retain >= plan_.steps && !lost_disks_.contains(number));
        if (lived && !synchronous && kept && (ended & ~in) != 0) {
          Wrong(Text("pushes are lost: of worker, steps, applied", {worker, ended, in}));
        }
      }
      const auto means = MeansOf(number, slot, process.history[slot]);
      if (synchronous && means && std::abs(all - *means) > 0.01f) Wrong("the mean of a step is no mean");
    }
  }
  const std::span<const float> model = Current(false, 0)->worker->model();
  final_model_.assign(model.begin(), model.end());
  for (int number = 0; number < plan_.servers; ++number) {
    const Process& process = *Current(true, number);
    for (size_t slot = process.history.size() - ids_.size(); slot < process.history.size(); ++slot) {
      std::ranges::copy(ValuesOf(process, slot), std::back_inserter(final_model_));
      const size_t touched = process.server->shard(static_cast<int>(slot)).rows()->touched();
      if (touched > workers_.size()) Wrong("a server holds rows that nobody has pushed");
    }
  }
}

Plan RandomPlan(uint64_t seed) {
  support::Mutator random(seed * 0x9e3779b97f4a7c15 + 1);
  const auto between = [&](uint64_t least, uint64_t most) {
    return static_cast<int64_t>(least + random.Below(most - least + 1));
  };
  Plan plan{.seed = seed};
  const bool crowd = random.OneIn(25);
  plan.workers = static_cast<int>(crowd ? between(100, 130) : between(1, 8));
  plan.servers = static_cast<int>(between(1, crowd ? 2 : 4));
  plan.tensors = static_cast<int>(between(1, crowd ? 3 : 8));
  plan.consistency = {static_cast<Mode>(random.Below(3)), random.Below(5)};
  plan.steps = static_cast<uint64_t>(between(1, crowd ? 8 : 40));
  plan.local_steps = random.Below(4) * 3;
  plan.retain = random.OneIn(4) ? random.Below(4) : 64;
  plan.snapshot_ms = between(50, 1500);
  plan.compute_ms = between(1, 150);
  const uint64_t faults = random.Below(4);
  if (faults > 0) plan.drop = static_cast<uint64_t>(between(20, 200));
  if (faults > 1) plan.duplicate = static_cast<uint64_t>(between(5, 100));
  if (faults > 1) plan.delay = static_cast<uint64_t>(between(10, 100));
  for (int64_t blows = between(0, crowd ? 60 : 12); blows > 0; --blows) {
    Blow blow{.kind = static_cast<Blow::Kind>(random.Below(6)), .server = random.OneIn(3)};
    if (blow.kind == Blow::Kind::kCrash || blow.kind == Blow::Kind::kTear || blow.kind == Blow::Kind::kCut) {
      blow.server = true;
    }
    blow.whom = static_cast<int>(random.Below(static_cast<uint64_t>(blow.server ? plan.servers : plan.workers)));
    blow.worker = static_cast<int>(random.Below(static_cast<uint64_t>(plan.workers)));
    blow.at = between(0, 4000);
    blow.lasts = random.OneIn(3) ? between(1000, 4000) : between(1, 900);
    plan.blows.push_back(blow);
  }
  // The first one stays.
  if (random.OneIn(3) && plan.workers > 1) {
    const auto worker = static_cast<int>(between(1, static_cast<uint64_t>(plan.workers) - 1));
    plan.blows.push_back({.whom = worker, .at = between(50, 1000), .lasts = -1});
  }
  // Half the workers at once, and back.
  if (random.OneIn(6)) {
    for (int worker = 0; worker < plan.workers; worker += 2) {
      plan.blows.push_back({.whom = worker, .at = between(300, 600), .lasts = between(500, 3000)});
    }
  }
  // Half of them with credit for one to three partitions.
  if (random.OneIn(2)) plan.window = static_cast<size_t>(between(1, 3) * plan.workers) * sizeof(float);
  if (random.OneIn(2)) plan.tables = static_cast<int>(between(1, 2));
  if (random.OneIn(3)) {
    const Compression kinds[] = {Fp16{}, Int8{}, Int4{}, TopK{.sparsity = 0.9}, Dgc{.sparsity = 0.9, .momentum = 0.5f}};
    plan.compression = kinds[random.Below(std::size(kinds))];
  }
  if (random.OneIn(4)) plan.values_as = compression::PayloadKind::kInt8;
  // Half of them with replicas, and disks that are lost.
  if (plan.servers == 1 || random.OneIn(2)) return plan;
  plan.replicas = true;
  if (random.OneIn(2)) plan.retain = 0;
  // A state is some pieces, not so many that messages which are lost keep it from coming over before the end.
  plan.piece_bytes = static_cast<size_t>(between(100, 1000) * plan.workers);
  for (int64_t blows = between(0, 6); blows > 0; --blows) {
    const auto kind = random.OneIn(3) ? Blow::Kind::kSever : Blow::Kind::kLose;
    const auto whom = static_cast<int>(random.Below(static_cast<uint64_t>(plan.servers)));
    plan.blows.push_back({kind, true, whom, 0, between(0, 4000), between(1, 1500)});
  }
  return plan;
}

}  // namespace gyre::ps
