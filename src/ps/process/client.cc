#include "ps/process/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/thread.h"

namespace gyre::ps {

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options,
                                                       std::span<const std::span<float>> weights) {
  ASSIGN_OR_RETURN(Layout layout, Layout::Create(options.setup.tensors, static_cast<int>(options.servers.size()),
                                                 std::nullopt, options.setup.tables));
  options.setup.servers = layout.servers();
  options.worker.rule = options.setup.rule;
  ASSIGN_OR_RETURN(auto loop, EventLoop::Create());
  std::unique_ptr<Client> client(new Client(std::move(options), std::move(layout), std::move(loop)));
  WorkerOptions worker = client->options_.worker;
  worker.make = [c = client.get()](int server, size_t count) { return c->Make(server, count); };
  worker.way = [c = client.get()](int server) { return c->WayTo(server); };
  ASSIGN_OR_RETURN(client->worker_, Worker::Create(worker, client->layout_, weights, client->clock_, *client, *client));
  ASSIGN_OR_RETURN(client->thread_, StartThread("speak with parameter servers", [c = client.get()] { c->Run(); }));
  return client;
}

Client::Client(ClientOptions options, Layout layout, std::unique_ptr<EventLoop> loop)
    : options_(std::move(options)),
      layout_(std::move(layout)),
      setup_(Encode(options_.setup)),
      loop_(std::move(loop)),
      random_(std::random_device()()),
      peers_(options_.servers.size()) {}

Client::~Client() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  loop_->Wake();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<uint64_t> Client::Begin(TimePoint deadline) {
  uint64_t begun = 0;
  RETURN_IF_ERROR(Call(
      [&]() -> std::optional<absl::Status> {
        if (worker_->WhyWaiting() && worker_->status().ok()) return std::nullopt;
        const absl::StatusOr<uint64_t> step = worker_->Begin();
        if (!step.ok()) return step.status();
        begun = *step;
        pulled_bytes_ = worker_->pulled_bytes();
        return absl::OkStatus();
      },
      [&] { return WhyNotBegun(); }, deadline));
  return begun;
}

absl::Status Client::End(std::span<const float> gradient, float learning_rate, std::vector<Floats> rows) {
  return Call(
      [&]() -> std::optional<absl::Status> {
        worker_->SetLearningRate(learning_rate);
        const absl::Status ended = worker_->End(gradient, rows);
        rows.clear();  // the thread's from now on
        RETURN_IF_ERROR(ended);
        pushed_bytes_ = worker_->pushed_bytes();
        return absl::OkStatus();
      },
      [] { return std::string(); }, TimePoint::max());
}

absl::Status Client::PullRows(int table, std::span<const int64_t> ids, std::span<float> values, TimePoint deadline) {
  bool asked = false;
  return Call(
      [&]() -> std::optional<absl::Status> {
        if (!worker_->status().ok()) return worker_->status();
        if (!asked) RETURN_IF_ERROR(worker_->AskRows(table, ids));
        asked = true;
        if (worker_->MissingRows()) return std::nullopt;
        worker_->SpreadRows(values);
        pulled_bytes_ = worker_->pulled_bytes();
        return absl::OkStatus();
      },
      [&] { return WhyNoRows(); }, deadline);
}

absl::Status Client::Deliver(TimePoint deadline) {
  return Call(
      [&]() -> std::optional<absl::Status> {
        if (!worker_->status().ok()) return worker_->status();
        if (!worker_->delivered()) return std::nullopt;
        return absl::OkStatus();
      },
      [&] { return WhyNotDelivered(); }, deadline);
}

absl::Status Client::Call(const Attempt& attempt, const Reason& reason, TimePoint deadline) {
  std::unique_lock lock(mutex_);
  attempt_ = &attempt;
  reason_ = &reason;
  why_not_ = "not asked yet";
  answer_.reset();
  loop_->Wake();
  const auto answered = [this] { return answer_.has_value(); };
  if (deadline == TimePoint::max()) {
    answered_.wait(lock, answered);
  } else if (!answered_.wait_until(lock, deadline, answered)) {
    attempt_ = nullptr;
    return absl::DeadlineExceededError(
        absl::StrCat("the parameter servers did not let this worker go on in time: ", why_not_));
  }
  return *std::move(answer_);
}

// On the thread, as all that follows.
void Client::Run() {
  for (int server = 0; server < layout_.servers(); ++server) Connect(server);
  while (true) {
    if (absl::Status status = loop_->RunOnce(worker_->NextTick()); !status.ok()) broken_ = std::move(status);
    AfterEvents();
    Try();
    for (Peer& peer : peers_) {
      if (peer.link != nullptr) peer.link->Flush();
    }
    std::lock_guard lock(mutex_);
    if (stop_) break;
  }
  peers_.clear();
}

void Client::Take(int server, const Message& message) {
  peers_[static_cast<size_t>(server)].incarnation = message.incarnation;
  worker_->Receive(server, message);
}

void Client::Hear(int server) {
  worker_->Hear(server, peers_[static_cast<size_t>(server)].incarnation);
}

void Client::AfterEvents() {
  const TimePoint now = clock_.Now();
  if (now >= worker_->NextTick()) {
    for (int server = 0; server < layout_.servers(); ++server) {
      const Peer& peer = peers_[static_cast<size_t>(server)];
      if (peer.link != nullptr && peer.link->IsStarved(now, options_.worker.timing.timeout)) Hear(server);
    }
    worker_->Tick();
  }
  for (int server = 0; server < layout_.servers(); ++server) {
    Peer& peer = peers_[static_cast<size_t>(server)];
    if (peer.link == nullptr || peer.link->status().ok()) continue;
    peer.trouble = peer.link->status();
    peer.link.reset();
    Connect(server);
  }
}

void Client::Try() {
  std::lock_guard lock(mutex_);
  if (attempt_ == nullptr) return;
  answer_ = broken_.ok() ? (*attempt_)() : broken_;
  if (!answer_) {
    why_not_ = (*reason_)();
    return;
  }
  attempt_ = nullptr;
  answered_.notify_one();
}

std::string Client::WhyNotBegun() const {
  const std::optional<Waiting> waiting = worker_->WhyWaiting();
  if (!waiting) return "";
  return absl::StrCat(waiting->text, TroubleWith(std::max(waiting->server, 0)));
}

std::string Client::WhyNotDelivered() const {
  const std::optional<int> server = worker_->Undelivered();
  if (!server) return "";
  return absl::StrCat("server ", *server, " has not taken all pushes", TroubleWith(*server));
}

std::string Client::WhyNoRows() const {
  const std::optional<int> server = worker_->MissingRows();
  if (!server) return "";
  return absl::StrCat("server ", *server, " has not sent its rows", TroubleWith(*server));
}

std::string Client::TroubleWith(int server) const {
  const Peer& peer = peers_[static_cast<size_t>(server)];
  return peer.link != nullptr || peer.trouble.ok() ? "" : absl::StrCat(": ", peer.trouble.message());
}

void Client::Connect(int server) {
  Peer& peer = peers_[static_cast<size_t>(server)];
  const Endpoint& endpoint = options_.servers[static_cast<size_t>(server)];
  const HandshakeIdentity self{options_.job_id, options_.worker.epoch, options_.worker.worker, Role::kRank};
  const auto on_done = [this, server](absl::StatusOr<Connected> connected) {
    Peer& own = peers_[static_cast<size_t>(server)];
    const auto fail = [&](absl::Status status) { own.trouble = broken_ = std::move(status); };
    if (!connected.ok()) return fail(connected.status());
    if (connected->peer.role != Role::kServer || connected->peer.rank != server) {
      return fail(absl::FailedPreconditionError(
          absl::StrCat("at the address of server ", server, " is ", Describe(connected->peer))));
    }
    auto link = Link::Create(*loop_, std::move(connected->fd), options_.worker.epoch, options_.host,
                             {.on_setup = [](std::string_view) {},
                              .on_message = [this, server](const Message& m) { Take(server, m); },
                              .on_bytes = [this, server] { Hear(server); }});
    if (!link.ok()) return fail(link.status());
    own.link = *std::move(link);
    own.incarnation = 0;
    own.link->SendSetup(setup_);
    own.arena.reset();
    if (auto arena = FloatArena::Create(ArenaBytes(server)); arena.ok()) {
      own.link->Offer(own.arena.emplace(*std::move(arena)));
    }
    worker_->Reach(server);
  };
  peer.connector = std::make_unique<Connector>(
      *loop_,
      ConnectorOptions{.what = absl::StrCat("server ", server, " at ", ToString(endpoint)), .endpoint = endpoint}, self,
      options_.secret, on_done,
      [this, server](const absl::Status& why) { peers_[static_cast<size_t>(server)].trouble = why; });
}

Way Client::WayTo(int server) const {
  const Link* const link = peers_[static_cast<size_t>(server)].link.get();
  if (link == nullptr) return Way::kHost;  // nothing is on a link
  if (link->lends()) return Way::kMemory;
  return link->on_host() ? Way::kHost : Way::kLink;
}

Floats Client::Make(int server, size_t count) {
  Peer& peer = peers_[static_cast<size_t>(server)];
  // What an ended link has lent is free here, although the server may still read it: until there is another link, with
  // memory of its own, none is taken from there.
  const bool lends = peer.arena && peer.link != nullptr && peer.link->status().ok();
  return lends ? peer.arena->Make(count) : Floats(count);
}

// For the pushes that are kept, and some that are under way.
int64_t Client::ArenaBytes(int server) const {
  constexpr int64_t kMostKept = int64_t{1} << 30, kUnderWay = 4, kRounding = int64_t{1} << 20;
  const int64_t bytes = std::max<int64_t>(1, layout_.BytesOf(server));
  const auto retain = static_cast<int64_t>(std::min<size_t>(options_.worker.retain, 4096));
  return bytes * (kUnderWay + std::min(retain, kMostKept / bytes)) + kRounding;
}

void Client::Send(int peer, const Message& message) {
  Link* const link = peers_[static_cast<size_t>(peer)].link.get();
  if (link == nullptr || !link->status().ok()) return;
  link->Send(message);
  // What is sent in the midst of more: it is on its way meanwhile, or shows that this side lives.
  if (message.kind == Kind::kPush || message.kind == Kind::kHeartbeat) link->Flush();
}

}  // namespace gyre::ps
