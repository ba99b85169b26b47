#include "ps/server.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ps/state.h"

namespace gyre::ps {

namespace {

constexpr int kMostOfTime = 20;  // of so much time one part goes into snapshots at most: nobody is answered meanwhile

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options, const Layout& layout, const Clock& clock,
                                                      Network& network, Disk& disk) {
  if (options.server < 0 || options.server >= layout.servers()) {
    return absl::InvalidArgumentError(absl::StrCat("no server ", options.server, " among ", layout.servers()));
  }
  if (!IsForValues(options.values_as)) return absl::InvalidArgumentError("values cannot be sent in such payloads");
  std::unique_ptr<Server> server(new Server(std::move(options), layout, clock, network, disk));
  ASSIGN_OR_RETURN(server->shards_, server->MakeShards(server->options_.server, server->options_.make));
  server->waiting_.resize(server->shards_.size());
  server->rows_asked_.resize(server->shards_.size());
  server->encoders_.resize(server->shards_.size());
  if (server->options_.ring != nullptr) RETURN_IF_ERROR(server->EnterRing());
  RETURN_IF_ERROR(server->Load());
  return server;
}

Server::Server(ServerOptions options, const Layout& layout, const Clock& clock, Network& network, Disk& disk)
    : options_(std::move(options)),
      layout_(layout),
      clock_(clock),
      network_(network),
      snapshots_(disk, options_.server, options_.incarnation, options_.guards.fence),
      roster_(options_.guards),
      attended_(clock.Now()),
      next_pulse_(clock.Now()),
      next_snapshot_(DeadlineAfter(clock.Now(), options_.snapshot_interval)) {}

absl::StatusOr<std::vector<Shard>> Server::MakeShards(int server, const MakeFloats& make) const {
  std::vector<Shard> shards;
  for (const int partition : layout_.OfServer(server)) {
    const Partition& part = layout_.partitions()[static_cast<size_t>(partition)];
    ASSIGN_OR_RETURN(Shard shard,
                     part.table < 0
                         ? Shard::Create(part.count, options_.consistency, options_.rule, options_.guards, make)
                         : Shard::OfTable(layout_.tables()[static_cast<size_t>(part.table)], options_.consistency,
                                          options_.rule, options_.guards, make));
    shards.push_back(std::move(shard));
  }
  return shards;
}

absl::Status Server::Load() {
  ASSIGN_OR_RETURN(const std::optional<std::string> content, snapshots_.Open());
  disk_status_ = snapshots_.place_status();  // Write takes the place later
  if (content) RETURN_IF_ERROR(Annotate(Restore(*content), absl::StrCat("server ", options_.server)));
  founded_ = shards_.empty() || (content && AllHaveValues());
  ready_ = founded_ && !forwarder_;
  return absl::OkStatus();
}

std::string Server::Content() const {
  return EncodeContent(layout_.fingerprint(), EncodeRoster(roster_), shards_);
}

absl::Status Server::Restore(std::string_view content) {
  ASSIGN_OR_RETURN(const std::string_view roster, RestoreContent(content, layout_.fingerprint(), shards_));
  return RestoreRoster(roster, roster_, clock_.Now());
}

void Server::Receive(int worker, const Message& message) {
  if (message.epoch != options_.epoch && options_.guards.fence) return;
  if (absl::IsAborted(disk_status_) || recovery_) return;
  const Roster::Standing standing = roster_.Hear(worker, message.incarnation, clock_.Now());
  if (standing == Roster::Standing::kFenced) {
    return Refuse(
        worker, message, /*fenced=*/true,
        absl::StrCat("worker ", worker, ": a newer process has taken the place of incarnation ", message.incarnation));
  }
  if (message.kind == Kind::kHello) return Hello(worker, message);
  if (standing == Roster::Standing::kStranger) {
    return network_.Send(worker, {.kind = Kind::kUnknown,
                                  .epoch = options_.epoch,
                                  .incarnation = options_.incarnation,
                                  .to = message.incarnation});
  }
  if (message.kind == Kind::kHeartbeat) return Heartbeat(worker, message);
  if (message.slot >= shards_.size()) return;
  switch (message.kind) {
    case Kind::kInit: return Init(message);
    case Kind::kPush: return Push(worker, message);
    case Kind::kPull: return Pull(worker, message);
    case Kind::kPullRows: return PullRows(worker, message);
    default: return;
  }
}

void Server::Refuse(int worker, const Message& message, bool fenced, const std::string& text) {
  network_.Send(worker, {.kind = Kind::kRefuse,
                         .epoch = options_.epoch,
                         .incarnation = options_.incarnation,
                         .to = message.incarnation,
                         .flag = fenced,
                         .text = text});
}

void Server::Hello(int worker, const Message& message) {
  if (message.layout != layout_.fingerprint() || message.next.size() != shards_.size()) {
    return Refuse(
        worker, message, /*fenced=*/false,
        absl::StrCat("worker ", worker, ": its tensors or servers are not those of server ", options_.server));
  }
  // To begin anew, with this worker's model and the pushes that it kept, would apply some of these twice; and with a
  // worker that starts anew itself, values would be of another step than those of the other servers.
  if (!founded_ && (lost_ || message.member)) {
    lost_ = true;
    const std::string disk = disk_status_.ok() ? "" : absl::StrCat(" (the disk: ", disk_status_.message(), ")");
    return Refuse(worker, message, /*fenced=*/false,
                  absl::StrCat("server ", options_.server, " has started again without the values that it had: no ",
                               "snapshot of them was written", disk, "; start the job again"));
  }
  roster_.Know(worker, message.incarnation);
  if (message.flag) Join(worker, message);
  ForwardRoster();
  if (!founded_) Snapshot().IgnoreError();  // kept in disk_status_; Tick tries again
  Welcome(worker);
  Moved();
}

void Server::Join(int worker, const Message& message) {
  const bool returns = !roster_.IsMember(worker);
  for (size_t slot = 0; slot < shards_.size(); ++slot) {
    Shard& shard = shards_[slot];
    shard.Forget(worker, message.next[slot]);
    shard.Raise(worker, message.clock);
    if (returns && options_.consistency.mode != Mode::kAsynchronous) {
      shard.Raise(worker, shard.FloorFor(worker, roster_.members()));
    }
  }
  changed_ = true;
  roster_.Join(worker, clock_.Now());
}

void Server::Welcome(int worker) {
  Message welcome{.kind = Kind::kWelcome, .flag = ready_, .member = roster_.IsMember(worker)};
  for (const Shard& shard : shards_) {
    const uint64_t acknowledged = Acknowledged(static_cast<int>(welcome.next.size()), worker);
    welcome.next.push_back(acknowledged);
    welcome.durable.push_back(std::min(acknowledged, shard.Durable(worker)));
    welcome.floors.push_back(welcome.member ? shard.ClockOf(worker) : shard.FloorFor(worker, roster_.members()));
  }
  Send(worker, std::move(welcome));
}

void Server::Heartbeat(int worker, const Message& message) {
  if (message.next.size() != shards_.size()) return;
  for (size_t slot = 0; slot < shards_.size(); ++slot) {
    shards_[slot].Forget(worker, message.next[slot]);
    shards_[slot].Raise(worker, message.clock);
  }
  Moved();
}

void Server::Init(const Message& message) {
  if (!shards_[message.slot].Initialize(message.values)) return;
  changed_ = true;
  Snapshot().IgnoreError();
}

void Server::Push(int worker, const Message& message) {
  if (!ready_) return;
  const int slot = static_cast<int>(message.slot);
  Shard& shard = shards_[message.slot];
  std::optional<Gradient> gradient = GradientOf(worker, message);
  if (!gradient) return;
  if (forwarder_ && !gradient->keeper) gradient->keeper = Floats::CopyOf(gradient->bytes);
  const uint64_t before = shard.Next(worker);
  const auto outcome = shard.Push(worker, message.from, message.sequence, *gradient, [&](int from, uint64_t sequence) {
    options_.applied({slot, from, message.incarnation, sequence});
  });
  if (shard.Next(worker) > before) {
    // What was decoded: the next server's copy is of the same bits, whatever the push came as.
    const bool taken = outcome == Shard::Outcome::kTaken;
    Forward({.slot = message.slot,
             .sequence = message.sequence,
             .worker = worker,
             .rate = message.rate,
             .values = taken ? gradient->keeper.bytes() : Bytes(),
             .keeper = taken ? gradient->keeper : Floats(),
             .entry = taken ? Entry::kPush : Entry::kSettled});
  }
  Send(worker, {.kind = Kind::kAck, .slot = message.slot, .sequence = Acknowledged(slot, worker)});
  if (outcome != Shard::Outcome::kTaken) return;
  changed_ = true;
  MovedIn(slot);
}

// A payload is decoded as it comes, so that one that is none is not held for later: it is dropped.
std::optional<Gradient> Server::GradientOf(int worker, const Message& message) {
  const Gradient as_it_is{message.values, message.rate, message.keeper};
  const Shard& shard = shards_[message.slot];
  const bool known = options_.guards.duplicates && message.sequence < shard.Next(worker);
  if (message.packed == 0 || known) return as_it_is;
  if (shard.rows() != nullptr) return std::nullopt;  // rows are no payload
  if (message.packed > message.values.size()) return std::nullopt;
  const Floats decoded = decoder_.Decode(message.values.first(message.packed), shard.values().size());
  if (!decoded) return std::nullopt;
  return Gradient{decoded.bytes(), message.rate, decoded};
}

void Server::Pull(int worker, const Message& message) {
  if (!ready_) return;
  waiting_[message.slot][worker] = message.clock;
  MovedIn(static_cast<int>(message.slot));
}

void Server::Moved() {
  for (size_t slot = 0; slot < shards_.size(); ++slot) MovedIn(static_cast<int>(slot));
}

void Server::MovedIn(int slot) {
  Shard& shard = shards_[static_cast<size_t>(slot)];
  const uint64_t version = shard.version();
  shard.Advance(roster_.members(), AppliedIn(slot));
  if (options_.consistency.mode == Mode::kSynchronous && shard.version() > version) {
    Forward({.slot = static_cast<uint32_t>(slot), .sequence = shard.version(), .entry = Entry::kAdvance});
  }
  std::map<int, uint64_t>& waiting = waiting_[static_cast<size_t>(slot)];
  const auto least = shard.Clock(roster_.members());
  for (auto next = waiting.begin(); next != waiting.end();) {
    const auto [worker, clock] = *next;
    const bool member = roster_.IsMember(worker);
    if (member && !shard.Serves(worker, clock, least)) {
      ++next;
      continue;
    }
    next = waiting.erase(next);
    if (member) SendValues(worker, slot, clock);
  }
  AnswerRows(slot, least);
}

void Server::SendValues(int worker, int slot, uint64_t clock) {
  const Shard& shard = shards_[static_cast<size_t>(slot)];
  Message message{.kind = Kind::kValues, .slot = static_cast<uint32_t>(slot), .clock = clock};
  message.keeper = shard.held_values();
  if (options_.values_as != compression::PayloadKind::kF32) {
    const ValueEncoder::Encoded& encoded =
        encoders_[static_cast<size_t>(slot)].Encode(options_.values_as, shard.values(), shard.version(), options_.make);
    message.packed = static_cast<uint32_t>(encoded.bytes);
    if (encoded.bytes > 0) message.keeper = encoded.words;
  }
  message.values = message.keeper.bytes();
  Send(worker, std::move(message));
}

void Server::Send(int worker, Message message) {
  message.epoch = options_.epoch;
  message.incarnation = options_.incarnation;
  message.to = roster_.incarnation(worker);
  network_.Send(worker, message);
}

void Server::Tick() {
  if (absl::IsAborted(disk_status_)) return;
  Attend();
  if (recovery_) return recovery_->Tick();
  if (forwarder_ && founded_) forwarder_->Tick();
  const TimePoint now = clock_.Now();
  if (!roster_.Expire(now, options_.timing.timeout).empty()) {
    changed_ = true;
    ForwardRoster();
    Moved();
  }
  if (now >= next_snapshot_) Snapshot().IgnoreError();
  if (now >= next_pulse_) {
    Pulse();
    next_pulse_ = now + options_.timing.heartbeat;
  }
}

// Messages may lie unread from while it stood still, or was busy with those of others: they come next. However long
// that took, it counts as one heartbeat.
void Server::Attend() {
  const TimePoint now = clock_.Now();
  const Duration since = now - std::exchange(attended_, now);
  if (since > 2 * options_.timing.heartbeat) roster_.Excuse(since - options_.timing.heartbeat, now);
}

void Server::Hear(int worker, uint64_t incarnation) {
  roster_.Hear(worker, incarnation, clock_.Now());
}

// A connection can end without its worker, who then makes another at once.
void Server::Lose(int worker, uint64_t incarnation) {
  roster_.Doubt(worker, incarnation, clock_.Now() - options_.timing.timeout + 2 * options_.timing.heartbeat);
}

TimePoint Server::NextTick() const {
  if (absl::IsAborted(disk_status_)) return TimePoint::max();
  if (recovery_) return recovery_->NextTick();
  const TimePoint next = forwarder_ && founded_ ? forwarder_->NextTick() : TimePoint::max();
  return std::min({next, next_pulse_, next_snapshot_, roster_.NextExpiry(options_.timing.timeout)});
}

void Server::Pulse() {
  const int slowest = Slowest();
  for (const int worker : roster_.members()) {
    Message pulse{.kind = Kind::kPulse, .worker = slowest};
    for (const Shard& shard : shards_) {
      const uint64_t acknowledged = Acknowledged(static_cast<int>(pulse.next.size()), worker);
      pulse.next.push_back(acknowledged);
      pulse.durable.push_back(std::min(acknowledged, shard.Durable(worker)));
    }
    Send(worker, std::move(pulse));
  }
}

// Whom the others wait for, if they do.
int Server::Slowest() const {
  for (size_t slot = 0; slot < shards_.size(); ++slot) {
    if (waiting_[slot].empty()) continue;
    const auto least = shards_[slot].Clock(roster_.members());
    for (const int worker : roster_.members()) {
      if (shards_[slot].ClockOf(worker) == least) return worker;
    }
  }
  return -1;
}

absl::Status Server::Snapshot() {
  next_snapshot_ = DeadlineAfter(clock_.Now(), options_.snapshot_interval);
  // Half the first values are nothing to come back to.
  const bool complete = AllHaveValues() && (founded_ || std::ssize(roster_.members()) >= options_.workers);
  if (!changed_ || !complete) return absl::OkStatus();
  const TimePoint begin = clock_.Now();
  disk_status_ = snapshots_.Write(Content());
  const Duration took = clock_.Now() - begin;
  if (absl::IsAborted(disk_status_)) return disk_status_;
  Duration interval = options_.snapshot_interval;
  if (disk_status_.ok()) {
    changed_ = false;
    for (Shard& shard : shards_) shard.Saved();
  } else {
    interval = std::min<Duration>(interval, options_.timing.timeout);
  }
  next_snapshot_ = DeadlineAfter(begin, std::max(interval, kMostOfTime * took));
  // Training does not wait for the disk. Of the first values too one snapshot is tried before they are given away:
  // where it is written, no server comes back without them.
  founded_ = true;
  if (!forwarder_) BecomeReady();
  return disk_status_;
}

bool Server::AllHaveValues() const {
  return std::ranges::all_of(shards_, [](const Shard& shard) { return shard.has_values(); });
}

Shard::Applied Server::AppliedIn(int slot) {
  return [this, slot](int worker, uint64_t sequence) {
    options_.applied({slot, worker, roster_.incarnation(worker), sequence});
  };
}

}  // namespace gyre::ps
