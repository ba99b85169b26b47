#include "transport/ucx/exchange.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/thread.h"
#include "transport/ucx/slot.h"

namespace gyre::ucx {

namespace {

// Lines that no stream has entered yet: those of communicators that this rank is late to make.
constexpr size_t kMostEarly = 4096;

constexpr size_t kMostKept = 32;  // packets, for their memory

constexpr auto kLongestGoodbye = std::chrono::milliseconds(500), kLongestAnswer = std::chrono::milliseconds(20);

// How long the thread leaves the wire to others who have just driven it.
constexpr auto kStandAside = std::chrono::microseconds(500);

}  // namespace

Exchange::Exchange(int self) : self_(self) {}

absl::StatusOr<std::shared_ptr<Exchange>> Exchange::Create(int self, const Open& open) {
  const SignalsBlocked blocked;  // for UCX's thread
  std::shared_ptr<Exchange> exchange(new Exchange(self));
  ASSIGN_OR_RETURN(exchange->wire_, open(exchange->WireEvents()));
  exchange->wire_address_ = exchange->wire_->address();
  exchange->wire_descriptor_ = exchange->wire_->descriptor();
  exchange->nudge_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!exchange->nudge_) return ErrnoStatus("eventfd");
  return exchange;
}

Exchange::~Exchange() {
  Close();
}

absl::Status Exchange::Start(const std::map<int, Peer>& peers, std::function<absl::Status(int)> end_of) {
  const std::lock_guard closing(close_mutex_);
  const std::lock_guard lock(mutex_);
  end_of_ = std::move(end_of);
  for (const auto& [rank, peer] : peers) contacts_[rank].peer = peer;
  ASSIGN_OR_RETURN(thread_, StartThread("the UCX transport's thread", [this] { Attend(); }));
  return absl::OkStatus();
}

// --- What comes ---

Events Exchange::WireEvents() {
  return {.accept = [this](const Header& header, size_t bytes) { return Accept(header, bytes); },
          .on_message = [this](const Header& header,
                               std::unique_ptr<Content> content) { Arrived(header, std::move(content)); },
          .on_sent =
              [this](std::unique_ptr<Packet> packet) {
                const bool keep = packet->capacity >= kMostBytes && packets_.size() < kMostKept;
                if (keep) packets_.push_back(std::move(packet));
              },
          .on_failure = [this](int peer, const std::string& why) { Failed(peer, why); }};
}

// Nothing is believed of a header that does not prove to come from a peer.
bool Exchange::Accept(const Header& header, size_t bytes) {
  const auto message = DecodeMessage(header);
  if (!message.ok()) return false;
  const auto found = contacts_.find(message->sender);
  if (found == contacts_.end() || !HasToken(header, found->second.peer.sends)) return false;
  if (message->kind == Kind::kData && !AcceptData(*message, bytes)) return false;
  if (message->kind != Kind::kData && bytes > 0) return false;
  ++found->second.coming;
  return true;
}

bool Exchange::AcceptData(const Message& message, size_t bytes) {
  Slot& slot = FindOrMake(message.channel, message.sender);
  if (slot.left) return false;
  if (slot.line.Accept(message.number, bytes)) return true;
  slot.spoilt = true;
  return false;
}

void Exchange::Arrived(const Header& header, std::unique_ptr<Content> content) {
  const auto message = DecodeMessage(header);  // accepted before
  Contact& contact = contacts_.at(message->sender);
  --contact.coming;
  Interpret(contact, *message, std::move(content));
  AnswerGoodbye(message->sender);
}

// Once all that a leaving peer has sent is here, or is not awaited any more.
void Exchange::AnswerGoodbye(int peer) {
  Contact& contact = contacts_.at(peer);
  if (!contact.leaves || contact.coming > 0 || !HasAllFrom(peer)) return;
  contact.leaves = false;
  owed_.push_back({peer, Kind::kFarewell, 0});
}

// Whether no line that is still read misses a message.
bool Exchange::HasAllFrom(int peer) const {
  return std::ranges::all_of(slots_, [peer](const auto& entry) {
    const Slot& slot = *entry.second;
    return entry.first.second != peer || slot.left || slot.spoilt || slot.line.whole();
  });
}

void Exchange::Interpret(Contact& contact, const Message& message, std::unique_ptr<Content> content) {
  if (message.kind == Kind::kGoodbye) contact.leaves = contact.gone = true;
  if (message.kind == Kind::kFarewell) contact.let_go = true;
  if (message.kind == Kind::kGoodbye || message.kind == Kind::kFarewell) return;
  Slot* const slot =
      message.kind == Kind::kEnd ? &FindOrMake(message.channel, message.sender) : Find(message.channel, message.sender);
  if (slot == nullptr) return;  // it was left meanwhile
  if (message.kind == Kind::kEnd && slot->left) {
    slots_.erase({message.channel, message.sender});
    return;
  }
  if (message.kind == Kind::kEnd) slot->line.TakeEnd(message.number);
  if (message.kind == Kind::kCredit && !slot->line.Grant(message.number)) slot->spoilt = true;
  if (message.kind == Kind::kData && content == nullptr) slot->spoilt = true;
  if (message.kind == Kind::kData && content != nullptr && !slot->left) {
    slot->line.Take(message.number, std::move(content));
  }
  if (slot->bell != nullptr && slot->bell->armed) Ring(*slot);
}

void Exchange::Failed(int peer, const std::string& why) {
  contacts_.at(peer).failure = why;
  for (const auto& [key, slot] : slots_) {
    if (key.second == peer && slot->bell != nullptr) Ring(*slot);
  }
}

Exchange::Slot* Exchange::Find(uint64_t channel, int peer) {
  const auto found = slots_.find({channel, peer});
  return found == slots_.end() ? nullptr : found->second.get();
}

Exchange::Slot& Exchange::FindOrMake(uint64_t channel, int peer) {
  if (Slot* const slot = Find(channel, peer); slot != nullptr) return *slot;
  if (early_ >= kMostEarly) DropOldest();
  ++early_;
  return *slots_.emplace(std::pair(channel, peer), std::make_unique<Slot>(channel, peer, next_order_++)).first->second;
}

// Of the lines that nobody has entered. To its peer the stream ends, as if it had been used and left.
void Exchange::DropOldest() {
  auto oldest = slots_.end();
  for (auto slot = slots_.begin(); slot != slots_.end(); ++slot) {
    const bool early = slot->second->bell == nullptr && !slot->second->left;
    if (early && (oldest == slots_.end() || slot->second->order < oldest->second->order)) oldest = slot;
  }
  if (!oldest->second->line.end_known()) owed_.push_back({oldest->first.second, Kind::kEnd, oldest->first.first});
  slots_.erase(oldest);
  --early_;
}

// --- What goes ---

// Whether there is a connection to send by.
bool Exchange::Reach(int peer, Contact& contact) {
  if (contact.failure) return false;
  if (contact.connected) return true;
  if (const absl::Status status = wire_->Connect(peer, contact.peer.wire_address); !status.ok()) {
    Failed(peer, std::string(status.message()));
    return false;
  }
  contact.connected = true;
  return true;
}

void Exchange::Tell(int peer, Kind kind, uint64_t channel, uint64_t number) {
  Contact& contact = contacts_.at(peer);
  if (!Reach(peer, contact)) return;
  auto packet = std::make_unique<Packet>();
  packet->header = Encode(contact.peer.receives, {kind, self_, channel, number});
  wire_->Send(peer, std::move(packet));
}

void Exchange::TellOwed() {
  for (const Owed& owed : std::exchange(owed_, {})) Tell(owed.peer, owed.kind, owed.channel, 0);
}

bool Exchange::Progress() {
  const bool moved = wire_->Progress();
  if (!owed_.empty()) TellOwed();
  return moved;
}

// --- Streams come and go ---

Exchange::Slot* Exchange::Enter(uint64_t channel, int peer, Bell* bell) {
  const std::lock_guard lock(mutex_);
  if (!contacts_.contains(peer)) return nullptr;
  Slot* slot = Find(channel, peer);
  if (slot == nullptr || slot->left) {
    auto& made = slots_[{channel, peer}];
    made = std::make_unique<Slot>(channel, peer, next_order_++);
    slot = made.get();
  } else {
    --early_;
  }
  slot->bell = bell;
  return slot;
}

void Exchange::Leave(std::span<Slot* const> slots) {
  const std::lock_guard lock(mutex_);
  for (Slot* const slot : slots) {
    const int peer = slot->line.peer();
    slot->line.Clear();
    slot->bell = nullptr;
    slot->left = true;
    const bool tells = !closed_ && (contacts_.at(peer).connected || slot->line.heard());
    if (tells) Tell(peer, Kind::kEnd, slot->line.channel(), slot->line.sent());
    // Until its peer has left as well, what may still come is known to be late.
    if (!tells || slot->line.end_known()) slots_.erase({slot->line.channel(), peer});
    if (!closed_) AnswerGoodbye(peer);
  }
  if (!owed_.empty()) TellOwed();
}

void Exchange::Wake() {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, slot] : slots_) {
    if (slot->bell != nullptr && slot->bell->armed) Ring(*slot);
  }
}

// --- The thread ---

void Exchange::Attend() {
  for (uint64_t seen = touches_.load(); !stopping_.load();) {
    if (const uint64_t now = touches_.load(); now != seen) {
      seen = now;
      std::this_thread::sleep_for(kStandAside);
      continue;
    }
    resting_.store(true);
    bool armed = false;
    {
      const std::lock_guard lock(mutex_);
      if (!Progress()) armed = wire_->Arm();
    }
    // Whoever has touched the wire before the flag was seen to be set has not nudged.
    if (armed && touches_.load() == seen && !stopping_.load()) Rest(-1);
    resting_.store(false);
  }
}

// Until the wire or a nudge has something to be done.
void Exchange::Rest(int milliseconds) const {
  pollfd waits[] = {{wire_descriptor_, POLLIN, 0}, {nudge_.get(), POLLIN, 0}};
  poll(waits, std::size(waits), milliseconds);
  uint64_t count = 0;
  (void)!read(nudge_.get(), &count, sizeof(count));
}

void Exchange::Nudge() const {
  const uint64_t one = 1;
  (void)!write(nudge_.get(), &one, sizeof(one));
}

// --- The end ---

void Exchange::SayGoodbye(std::unique_lock<std::mutex>& lock) {
  std::vector<int> waited_for;
  for (const auto& [key, slot] : slots_) {
    if (slot->bell != nullptr && contacts_.at(key.second).connected) {
      Tell(key.second, Kind::kEnd, key.first, slot->line.sent());
    }
  }
  for (const auto& [rank, contact] : contacts_) {
    if (contact.connected && !contact.failure && end_of_(rank).ok()) waited_for.push_back(rank);
  }
  for (const int rank : waited_for) Tell(rank, Kind::kGoodbye, 0, 0);
  const TimePoint begin = std::chrono::steady_clock::now();
  for (TimePoint now = begin; now - begin < kLongestGoodbye; now = std::chrono::steady_clock::now()) {
    std::erase_if(waited_for, [&](int rank) {
      const Contact& contact = contacts_.at(rank);
      // Who is gone may have ended its wire before our goodbye came there.
      const bool gone = contact.gone && now - begin >= kLongestAnswer;
      return contact.let_go || contact.failure || gone || !end_of_(rank).ok();
    });
    if (waited_for.empty()) return;
    if (Progress()) continue;
    const bool armed = wire_->Arm();
    lock.unlock();
    if (armed) Rest(1);  // who leaves does not tell by the wire
    lock.lock();
  }
}

void Exchange::Close() {
  const std::lock_guard closing(close_mutex_);
  {
    std::unique_lock lock(mutex_);
    if (!closed_ && thread_.joinable()) SayGoodbye(lock);
    closed_ = true;
  }
  stopping_.store(true);
  Nudge();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  for (const auto& [key, slot] : slots_) {
    slot->line.Clear();
    if (slot->bell != nullptr) Ring(*slot);
  }
  wire_.reset();
  packets_.clear();
}

}  // namespace gyre::ucx
