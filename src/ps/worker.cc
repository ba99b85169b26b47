#include "ps/worker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ps/pull_codec.h"

namespace gyre::ps {

namespace {

float RateOf(const Rule& rule) {
  return rule ? std::visit([](const auto& config) { return config.learning_rate; }, *rule) : 0.0f;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(const WorkerOptions& options, const Layout& layout,
                                                       std::vector<float> model, const Clock& clock, Network& network,
                                                       Random& random) {
  if (static_cast<int64_t>(model.size()) != layout.elements()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a model of ", model.size(), " elements for a layout of ", layout.elements()));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, Make(options, layout, clock, network, random));
  worker->model_ = std::move(model);
  for (const Partition& part : layout.partitions()) {
    if (part.table >= 0) break;
    worker->values_.push_back(
        std::span(worker->model_).subspan(static_cast<size_t>(part.offset), static_cast<size_t>(part.count)));
  }
  worker->AddMarks();
  return worker;
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(const WorkerOptions& options, const Layout& layout,
                                                       std::span<const std::span<float>> weights, const Clock& clock,
                                                       Network& network, Random& random) {
  std::vector<int64_t> offsets;
  int64_t elements = 0;
  for (const std::span<float> tensor : weights) {
    offsets.push_back(elements);
    elements += std::ssize(tensor);
  }
  if (elements != layout.elements()) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights of ", elements, " elements for a layout of ", layout.elements()));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, Make(options, layout, clock, network, random));
  for (const Partition& part : layout.partitions()) {
    if (part.table >= 0) break;
    const auto tensor = static_cast<size_t>(part.tensor);
    worker->values_.push_back(
        weights[tensor].subspan(static_cast<size_t>(part.offset - offsets[tensor]), static_cast<size_t>(part.count)));
  }
  worker->AddMarks();
  return worker;
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::Make(const WorkerOptions& options, const Layout& layout,
                                                     const Clock& clock, Network& network, Random& random) {
  if (options.rule) RETURN_IF_ERROR(Optimizer::Create(*options.rule, {}).status());
  ASSIGN_OR_RETURN(PushCodec codec, PushCodec::Create(options.compression, layout, options.worker));
  return std::unique_ptr<Worker>(new Worker(options, layout, std::move(codec), clock, network, random));
}

Worker::Worker(const WorkerOptions& options, const Layout& layout, PushCodec codec, const Clock& clock,
               Network& network, Random& random)
    : options_(options),
      layout_(layout),
      time_(clock),
      network_(network),
      random_(random),
      codec_(std::move(codec)),
      rate_(RateOf(options.rule)),
      peers_(static_cast<size_t>(layout.servers())),
      parts_(layout.partitions().size()),
      attended_(clock.Now()) {
  for (int server = 0; server < layout.servers(); ++server) {
    Peer& peer = peers_[static_cast<size_t>(server)];
    peer.bytes = static_cast<size_t>(layout.BytesOf(server));
    peer.next_hello = clock.Now();
  }
  for (size_t slot = 0; order_.size() < parts_.size(); ++slot) {
    for (int i = 0; i < layout.servers(); ++i) {
      const int server = (i + options.worker) % layout.servers();
      if (slot < layout.OfServer(server).size()) order_.push_back(Index(server, slot));
    }
  }
}

void Worker::Receive(int server, const Message& message) {
  if (!status_.ok() || !Notice(server, message)) return;
  Beat();
  Peer& peer = peers_[static_cast<size_t>(server)];
  const size_t slots = layout_.OfServer(server).size();
  switch (message.kind) {
    case Kind::kWelcome:
      if (message.next.size() == slots) Welcomed(server, message);
      return;
    case Kind::kRefuse: return Refused(server, message);
    case Kind::kUnknown: {  // of each message that was under way, which all come again with each welcome: one will do
      const bool was_member = std::exchange(peer.member, false);
      if (was_member) peer.models = 0;  // some of which was turned away
      if (was_member || time_.Now() >= peer.next_hello) SayHello(server);
      return;
    }
    case Kind::kAck:
      if (message.slot < slots && message.sequence > PartOf(server, message.slot).outbox.acknowledged()) {
        Acknowledge(server, message.slot, message.sequence);
        Trim(server, message.slot);
        peer.next_resend = time_.Now() + options_.timing.resend;
        SendPushes();
      }
      return;
    case Kind::kPulse:
      peer.slowest = message.worker;
      if (message.next.size() == slots) TakeStanding(server, message);
      return;
    case Kind::kValues:
      if (message.slot < slots) TakeValues(server, message);
      return;
    case Kind::kRows: return TakeRows(server, message);
    default: return;
  }
}

void Worker::Hear(int server, uint64_t incarnation) {
  Peer& peer = peers_[static_cast<size_t>(server)];
  if (incarnation == peer.incarnation) peer.heard = time_.Now();
}

bool Worker::Notice(int server, const Message& message) {
  if (server < 0 || server >= layout_.servers()) return false;
  Peer& peer = peers_[static_cast<size_t>(server)];
  if (options_.guards.fence) {
    if (message.epoch != options_.epoch || message.to != options_.incarnation) return false;
    if (message.incarnation < peer.incarnation) return false;
  }
  peer.heard = time_.Now();
  if (message.incarnation <= peer.incarnation) return true;
  peer.incarnation = message.incarnation;
  peer.member = peer.ready = false;
  peer.models = 0;
  if (message.kind == Kind::kWelcome || message.kind == Kind::kRefuse) return true;
  SayHello(server);
  return false;
}

void Worker::Welcomed(int server, const Message& message) {
  Peer& peer = peers_[static_cast<size_t>(server)];
  if (peer.welcomed != peer.incarnation) {
    for (size_t slot = 0; slot < message.next.size(); ++slot) PartOf(server, slot).outbox.Restart(message.next[slot]);
    peer.pushed = next_push_ = 0;
    peer.welcomed = peer.incarnation;
  }
  TakeStanding(server, message);
  peer.answered = true;
  peer.ready = message.flag;
  const uint64_t floor = message.floors.empty() ? 0 : std::ranges::max(message.floors);
  if (!joined_) {
    floor_ = std::max(floor_, floor);
    if (std::ranges::all_of(peers_, &Peer::answered)) Start();
    return;
  }
  if (!message.member) return SayHello(server);
  peer.member = true;
  peer.next_heartbeat = std::min(peer.next_heartbeat, time_.Now() + options_.timing.heartbeat);
  if (floor > clock_) Jump(floor);
  if (!peer.ready) return SendModel(server);
  SendAgain(server);
}

void Worker::Acknowledge(int server, size_t slot, uint64_t next) {
  Outbox& outbox = PartOf(server, slot).outbox;
  size_t& under_way = peers_[static_cast<size_t>(server)].pushed;
  under_way -= outbox.BytesUnderWay();
  outbox.Acknowledge(next);
  under_way += outbox.BytesUnderWay();
}

// What is in the snapshot is not needed any more, and what has arrived perhaps not much longer.
void Worker::TakeStanding(int server, const Message& message) {
  Peer& peer = peers_[static_cast<size_t>(server)];
  if (peer.welcomed != peer.incarnation) return;
  for (size_t slot = 0; slot < message.next.size(); ++slot) {
    Acknowledge(server, slot, message.next[slot]);
    Outbox& outbox = PartOf(server, slot).outbox;
    outbox.Release(message.durable[slot]);
    Trim(server, slot);
  }
  SendPushes();
}

// The others have gone on: so does this worker, and is not awaited for the steps between.
void Worker::Jump(uint64_t clock) {
  clock_ = floor_ = clock;
  for (int server = 0; server < layout_.servers(); ++server) {
    if (!peers_[static_cast<size_t>(server)].member) continue;
    SendHeartbeat(server);
    AskAnew(server);
  }
}

void Worker::TakeValues(int server, const Message& message) {
  const size_t partition = Index(server, message.slot);
  const std::span<float> values = ValuesOf(partition);
  // In the middle of a step the model stands still; the next step's values are asked for at its end.
  if (computing_ || message.clock != clock_ || HasValues(parts_[partition])) return;
  if (message.packed > 0) {
    if (message.packed > message.values.size() || !DecodeValues(message.values.first(message.packed), values)) return;
  } else {
    if (message.values.size() != values.size_bytes()) return;
    std::memcpy(values.data(), message.values.data(), values.size_bytes());
  }
  pulled_bytes_ += static_cast<int64_t>(message.packed > 0 ? message.packed : message.values.size());
  Part& part = parts_[partition];
  Peer& peer = peers_[static_cast<size_t>(server)];
  if (std::exchange(part.asked_for, 0) == message.clock + 1) peer.pulled -= values.size_bytes();
  part.values_for = message.clock + 1;
  part.optimizer.reset();
  peer.next_resend = time_.Now() + options_.timing.resend;
  SendPulls(server);
}

void Worker::Refused(int server, const Message& message) {
  const std::string text = absl::StrCat("server ", server, " refuses this worker: ", ToAbsl(message.text));
  // A fenced worker is told so in its own name.
  status_ = message.flag ? absl::AbortedError(text) : absl::FailedPreconditionError(text);
}

std::optional<Waiting> Worker::WhyWaiting() const {
  for (int server = 0; server < layout_.servers(); ++server) {
    const Peer& peer = peers_[static_cast<size_t>(server)];
    if (!joined_ && !peer.answered) {
      return Waiting{Waiting::Reason::kJoining, server, -1, absl::StrCat("server ", server, " has not answered yet")};
    }
    const auto& own = layout_.OfServer(server);
    const bool complete = std::ranges::all_of(own, [this](int p) { return HasValues(parts_[static_cast<size_t>(p)]); });
    if (complete) continue;
    if (!IsPresent(peer)) {
      if (auto waiting = WhyNotLocal(server)) return waiting;
      continue;
    }
    const std::string whom = peer.slowest < 0 ? "" : absl::StrCat("; it waits for worker ", peer.slowest);
    return Waiting{Waiting::Reason::kOthers, server, peer.slowest,
                   absl::StrCat("server ", server, " has no values for step ", clock_, " yet", whom)};
  }
  return std::nullopt;
}

bool Worker::HasHadValues(int server) const {
  const auto& own = layout_.OfServer(server);
  return std::ranges::any_of(own, [this](int p) { return parts_[static_cast<size_t>(p)].values_for > 0; });
}

std::optional<Waiting> Worker::WhyNotLocal(int server) const {
  std::string why;
  const auto& own = layout_.OfServer(server);
  const bool complete =
      std::ranges::all_of(own, [this](int p) { return parts_[static_cast<size_t>(p)].values_for > 0; });
  if (!complete) {
    why = ", and this worker has not had its values yet";
  } else if (local_steps_ >= options_.local_steps) {
    why = absl::StrCat("; ", local_steps_, " steps were made without it, which is all that is allowed");
  } else if (local_steps_ > 0 && time_.Now() - local_since_ >= options_.local_time) {
    why = absl::StrCat("; the time for steps without it is over after ", local_steps_);
  } else {
    return std::nullopt;
  }
  return Waiting{Waiting::Reason::kServerAway, server, -1, absl::StrCat("server ", server, " is away", why)};
}

absl::StatusOr<uint64_t> Worker::Begin() {
  RETURN_IF_ERROR(status_);
  if (computing_) return absl::FailedPreconditionError(absl::StrCat("step ", *computing_, " has not ended"));
  if (const auto waiting = WhyWaiting()) return absl::UnavailableError(waiting->text);
  if (std::ranges::all_of(parts_, [this](const Part& part) { return HasValues(part); })) {
    local_steps_ = 0;
  } else if (local_steps_++ == 0) {
    local_since_ = time_.Now();
  }
  computing_ = clock_;
  return clock_;
}

absl::Status Worker::End(std::span<const float> gradient, std::span<const Floats> rows) {
  if (!computing_) return absl::FailedPreconditionError("no step has begun");
  if (static_cast<int64_t>(gradient.size()) != layout_.elements()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a gradient of ", gradient.size(), " elements for a model of ", layout_.elements()));
  }
  if (*computing_ == clock_) RETURN_IF_ERROR(codec_.BeginStep(clock_, gradient));
  rows_.reset();
  const bool current = *std::exchange(computing_, std::nullopt) == clock_;
  const uint64_t step = current ? clock_++ : clock_;
  for (size_t place = 0; current && place < order_.size(); ++place) {
    const size_t i = order_[place];
    const Partition& partition = layout_.partitions()[i];
    const auto own = gradient.subspan(static_cast<size_t>(partition.offset), static_cast<size_t>(partition.count));
    Beat();
    if (partition.table >= 0) {
      AddRows(i, step, rows);
    } else {
      AddPush(i, step, own);
    }
    Peer& peer = peers_[static_cast<size_t>(partition.server)];
    const bool present = IsPresent(peer);
    if (!present) UpdateLocally(i);
    if (!present || !peer.ready) continue;
    // One after the other: what is sent already is on its way while the next one is copied. Values are asked for right
    // behind the first, so that they come back while gradients still go.
    next_push_ = std::min(next_push_, place);
    SendPushes();
    if (partition.slot == 0) AskAnew(partition.server);
  }
  for (int server = 0; server < layout_.servers(); ++server) {
    Peer& peer = peers_[static_cast<size_t>(server)];
    if (!peer.ready || !IsPresent(peer)) continue;  // it gets all when it welcomes this worker again
    peer.next_resend = time_.Now() + options_.timing.resend;
    if (!current) AskAnew(server);
  }
  return absl::OkStatus();
}

// With what its server will apply: what was pushed.
void Worker::UpdateLocally(size_t partition) {
  if (layout_.partitions()[partition].table >= 0) return;  // a table's rows are at their server alone
  const std::span<float> values = ValuesOf(partition);
  const Outbox::Push& push = parts_[partition].outbox.pushes().back();
  const Floats pushed =
      push.packed > 0 ? decoder_.Decode(push.gradient.bytes().first(push.packed), values.size()) : push.gradient;
  const std::span<const float> gradient = pushed.span();
  if (!options_.rule) {
    for (size_t i = 0; i < values.size(); ++i) values[i] += gradient[i];
    return;
  }
  const auto count = static_cast<int64_t>(values.size());
  std::optional<Optimizer>& optimizer = parts_[partition].optimizer;
  // Its state begins anew with each absence: the server's is where the server is. Create checked the rule.
  if (!optimizer) optimizer = *Optimizer::Create(*options_.rule, std::span(&count, 1));
  optimizer->SetLearningRate(rate_).IgnoreError();
  optimizer->Step(0, values, gradient).IgnoreError();
}

void Worker::Tick() {
  if (!status_.ok()) return;
  Attend();
  Beat();
  const TimePoint now = time_.Now();
  for (int server = 0; server < layout_.servers(); ++server) {
    Peer& peer = peers_[static_cast<size_t>(server)];
    // A server that has come back hears from all its workers: not at once.
    const bool well = peer.ready && IsPresent(peer);
    if (!well && now >= peer.next_hello) SayHello(server);
    if (peer.member && now >= peer.next_resend) {
      peer.next_resend = now + options_.timing.resend;
      if (well) SendAgain(server);
    }
  }
}

TimePoint Worker::NextTick() const {
  TimePoint next = TimePoint::max();
  if (!status_.ok()) return next;
  for (const Peer& peer : peers_) {
    if (!peer.ready || !peer.member) next = std::min(next, peer.next_hello);
    if (!peer.member) continue;
    // Who falls silent is asked again.
    next = std::min({next, peer.next_heartbeat, std::max(peer.next_hello, peer.heard + options_.timing.timeout)});
    // What is said in the midst of other work puts heartbeats off, but not the look at who is silent.
    next = std::min({next, peer.next_resend, attended_ + options_.timing.heartbeat});
  }
  return next;
}

// It stood still itself, or was busy: no server's silence counts meanwhile, but for one heartbeat.
void Worker::Attend() {
  const TimePoint now = time_.Now();
  const Duration since = now - std::exchange(attended_, now);
  if (since <= 2 * options_.timing.heartbeat) return;
  for (Peer& peer : peers_) peer.heard = std::min(peer.heard + since - options_.timing.heartbeat, now);
}

bool Worker::IsPresent(const Peer& peer) const {
  return peer.member && attended_ - peer.heard < options_.timing.timeout;
}

std::optional<int> Worker::Undelivered() const {
  for (int server = 0; server < layout_.servers(); ++server) {
    for (const int partition : layout_.OfServer(server)) {
      const Outbox& outbox = parts_[static_cast<size_t>(partition)].outbox;
      if (!outbox.pushes().empty() && outbox.IsPending(outbox.pushes().back())) return server;
    }
  }
  return std::nullopt;
}

}  // namespace gyre::ps
