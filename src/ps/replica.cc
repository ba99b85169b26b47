#include "ps/replica.h"

#include <algorithm>

#include "ps/state.h"

namespace gyre::ps {

namespace {

// The piece that was asked for, of the state, or word that there is none. It points at the state.
Message PieceOf(const std::string* state, const Message& fetch, size_t most) {
  Message piece{.kind = Kind::kPiece, .flag = state != nullptr, .sequence = fetch.sequence, .clock = fetch.clock};
  const std::string_view all = state != nullptr ? std::string_view(*state) : std::string_view();
  const size_t begin = std::min<size_t>(fetch.clock, all.size());
  piece.text = all.substr(begin, most);
  piece.last = begin + piece.text.size() == all.size();
  return piece;
}

}  // namespace

Forwarder::Forwarder(ReplicaOptions options, size_t slots, const Clock& clock, Network& ring)
    : options_(options), clock_(clock), ring_(ring), confirmed_(slots), next_beat_(clock.Now()) {}

void Forwarder::Append(Message change) {
  change.kind = Kind::kForward;
  change.from = ++position_;
  std::string text(change.text);
  log_.push_back({std::move(change), std::move(text)});
  if (log_.size() == 1) next_resend_ = clock_.Now() + options_.timing.resend;
  if (following_) Send(log_.back());
}

void Forwarder::Send(const Change& change) {
  Message message = change.message;
  message.epoch = options_.epoch;
  message.incarnation = options_.incarnation;
  message.text = change.text;
  if (!options_.guards.forward && message.entry == Entry::kPush) {
    message.entry = Entry::kSettled;
    message.values = {};
    message.keeper = {};
  }
  ring_.Send(kNext, message);
}

void Forwarder::SendAll() {
  next_resend_ = clock_.Now() + options_.timing.resend;
  for (const Change& change : log_) Send(change);
}

// A new process has no copy, and what the old one had counts no more.
bool Forwarder::Hear(uint64_t incarnation) {
  if (incarnation < next_life_ && options_.guards.fence) return false;
  if (incarnation <= next_life_) return true;
  next_life_ = incarnation;
  request_ = 0;
  following_ = false;
  state_.reset();
  for (auto& slot : confirmed_) slot.clear();
  return true;
}

void Forwarder::Fetch(const Message& fetch, const std::function<State()>& save) {
  if (!Hear(fetch.incarnation) || fetch.sequence < request_) return;
  if (fetch.sequence > request_) {
    request_ = fetch.sequence;
    state_ = save();
    state_position_ = position_;
    following_ = false;
  }
  if (!state_) return;
  Message piece = PieceOf(&state_->bytes, fetch, options_.piece_bytes);
  piece.epoch = options_.epoch;
  piece.incarnation = options_.incarnation;
  piece.to = next_life_;
  piece.from = state_position_;
  ring_.Send(kNext, piece);
}

Forwarder::Confirmed Forwarder::Confirm(const Message& confirm) {
  Confirmed result;
  const uint64_t position = confirm.sequence;
  if (confirm.incarnation != next_life_ || confirm.clock != request_ || position > position_) return result;
  if (!following_) {
    if (!state_ || position < state_position_) return result;
    for (size_t slot = 0; slot < confirmed_.size(); ++slot) {
      for (const auto& [worker, next] : state_->next[slot]) {
        uint64_t& known = confirmed_[slot][worker];
        known = std::max(known, next);
      }
    }
    state_.reset();
    following_ = result.begins = true;
  }
  const bool news = !log_.empty() && log_.front().message.from <= position;
  for (; !log_.empty() && log_.front().message.from <= position; log_.pop_front()) {
    const Message& change = log_.front().message;
    if (change.entry != Entry::kPush && change.entry != Entry::kSettled) continue;
    uint64_t& known = confirmed_[change.slot][change.worker];
    known = std::max(known, change.sequence + 1);
    result.pushes.emplace_back(static_cast<int>(change.slot), change.worker);
  }
  if (result.begins) SendAll();
  if (news) next_resend_ = clock_.Now() + options_.timing.resend;
  return result;
}

void Forwarder::Reach() {
  next_beat_ = next_resend_ = clock_.Now();
}

// With each beat the next server asks for what it lacks, and confirms what it has.
void Forwarder::Tick() {
  const TimePoint now = clock_.Now();
  if (now >= next_beat_) {
    next_beat_ = now + options_.timing.heartbeat;
    Send({{.kind = Kind::kForward, .from = position_}, ""});
  }
  if (following_ && !log_.empty() && now >= next_resend_) SendAll();
}

TimePoint Forwarder::NextTick() const {
  return following_ && !log_.empty() ? std::min(next_beat_, next_resend_) : next_beat_;
}

uint64_t Forwarder::Next(int slot, int worker) const {
  const auto& workers = confirmed_[static_cast<size_t>(slot)];
  const auto found = workers.find(worker);
  return found == workers.end() ? 0 : found->second;
}

Recovery::Recovery(ReplicaOptions options, const Clock& clock, Network& ring)
    : options_(options), clock_(clock), ring_(ring), next_ask_(clock.Now()) {}

void Recovery::Ask() {
  next_ask_ = clock_.Now() + options_.timing.resend;
  ring_.Send(kNext, {.kind = Kind::kFetch,
                     .epoch = options_.epoch,
                     .incarnation = options_.incarnation,
                     .sequence = request_,
                     .clock = state_->size()});
}

void Recovery::Tick() {
  if (clock_.Now() >= next_ask_) Ask();
}

bool Recovery::Take(const Message& piece) {
  if (piece.incarnation < life_ || piece.sequence != request_) return false;
  if (piece.incarnation > life_ && !state_->empty()) {
    // Another process has taken its place, and knows only what it says itself.
    life_ = piece.incarnation;
    ++request_;
    state_ = "";
    Ask();
    return false;
  }
  life_ = piece.incarnation;
  if (piece.clock != state_->size()) return false;
  if (!piece.flag) {
    state_.reset();
    return true;
  }
  state_->append(piece.text);
  if (!piece.last) Ask();
  return piece.last;
}

Follower::Follower(ReplicaOptions options, uint64_t layout, std::function<std::vector<Shard>()> make,
                   const Clock& clock, Network& ring)
    : options_(options), layout_(layout), make_(std::move(make)), clock_(clock), ring_(ring) {}

void Follower::Receive(const Message& message, const std::function<bool()>& holds_place) {
  if (message.incarnation < life_ && options_.guards.fence) return;
  if (message.incarnation > life_) {
    life_ = message.incarnation;
    fetching_.reset();
    giving_.reset();
  }
  switch (message.kind) {
    // A process that was replaced could have an old copy, and would not hear of it.
    case Kind::kFetch: return holds_place() ? Give(message) : void();
    case Kind::kForward: return TakeChange(message);
    case Kind::kPiece: return TakePiece(message);
    default: return;
  }
}

// The copy stays as it is while its server has not begun anew: who forwarded to it before is not listened to any more.
void Follower::Give(const Message& fetch) {
  if (!giving_ || giving_->request < fetch.sequence) {
    giving_ = {.request = fetch.sequence, .bytes = {}};
    if (copy_) giving_->bytes = EncodeWhole(layout_, copy_->roster, copy_->shards);
  }
  if (giving_->request == fetch.sequence) {
    Send(PieceOf(giving_->bytes ? &*giving_->bytes : nullptr, fetch, options_.piece_bytes));
  }
}

void Follower::TakeChange(const Message& change) {
  if (!copy_ || copy_->life != life_) {
    if (!fetching_) fetching_ = {.request = ++requests_, .bytes = {}};
    if (clock_.Now() - fetching_->asked >= options_.timing.resend) Ask();
    return;
  }
  if (change.entry != Entry::kNone && change.from == copy_->position + 1) {
    if (!Apply(change)) {
      // It is not the state that has changed so: it is fetched anew.
      copy_.reset();
      return;
    }
    copy_->position = change.from;
  }
  Confirm();
}

bool Follower::Apply(const Message& change) {
  const Shard::Applied nobody = [](int, uint64_t) {};
  if (change.entry == Entry::kRoster) {
    copy_->roster = std::string(change.text);
    return true;
  }
  if (change.slot >= copy_->shards.size()) return false;
  Shard& shard = copy_->shards[change.slot];
  switch (change.entry) {
    case Entry::kPush:
      return shard.Push(change.worker, 0, change.sequence, {change.values, change.rate, change.keeper}, nobody) ==
             Shard::Outcome::kTaken;
    case Entry::kSettled: shard.Forget(change.worker, change.sequence + 1); return true;
    case Entry::kAdvance: shard.AdvanceTo(change.sequence, nobody); return true;
    default: return false;
  }
}

void Follower::Ask() {
  fetching_->asked = clock_.Now();
  Send({.kind = Kind::kFetch, .sequence = fetching_->request, .clock = fetching_->bytes.size()});
}

void Follower::TakePiece(const Message& piece) {
  if (!fetching_ || piece.sequence != fetching_->request || piece.clock != fetching_->bytes.size() || !piece.flag) {
    return;
  }
  fetching_->bytes.append(piece.text);
  if (!piece.last) return Ask();
  Copy copy{.life = life_, .request = fetching_->request, .position = piece.from, .roster = {}, .shards = make_()};
  const auto roster = RestoreWhole(fetching_->bytes, layout_, copy.shards);
  if (roster.ok()) {
    copy.roster = std::string(*roster);
    copy_ = std::move(copy);
    giving_.reset();
  }
  fetching_.reset();
  if (roster.ok()) Confirm();
}

void Follower::Confirm() {
  Send({.kind = Kind::kConfirm, .sequence = copy_->position, .clock = copy_->request});
}

void Follower::Send(Message message) {
  message.epoch = options_.epoch;
  message.incarnation = options_.incarnation;
  message.to = life_;
  ring_.Send(kBefore, message);
}

}  // namespace gyre::ps
