// The store's messages, and the store itself: whatever a client that has proved itself asks for.
#include <algorithm>
#include <map>
#include <set>

#include "bootstrap/store_protocol.h"
#include "bootstrap/store_state.h"
#include "fuzzers.h"

namespace gyre::fuzz {

namespace {

// What a request's views point into.
struct Texts {
  std::string key, value;
};

StoreRequest RandomRequest(Mutator& random, Texts& texts) {
  texts.key = random.OneIn(20) ? random.RandomBytes(random.Below(1100)) : "key " + std::to_string(random.Below(6));
  texts.value =
      random.OneIn(3) ? std::to_string(static_cast<int64_t>(random.Number())) : random.RandomBytes(random.Below(100));
  return {.kind = static_cast<StoreMessage>(1 + random.Below(5)),
          .key = texts.key,
          .value = texts.value,
          .amount = static_cast<int64_t>(random.Number()),
          .timeout_ms = static_cast<uint32_t>(random.Number()),
          .size = static_cast<uint32_t>(random.OneIn(10) ? random.Number() : 2),
          .process = static_cast<uint32_t>(random.Below(3)),
          .life = random.OneIn(20) ? random.Number() : 1 + random.Below(3)};
}

std::string FuzzValues(Mutator& random) {
  std::vector<std::string> values(random.Below(20));
  for (std::string& value : values) value = random.RandomBytes(random.Below(60));
  std::string payload = EncodeValues(values);
  const bool valid = random.OneIn(4);
  if (!valid) payload = random.Mutated(std::move(payload));
  // A text on the wire has 4 bytes at least, in memory 32, and vectors grow by doubling.
  return CheckDecoder(payload, valid, /*factor=*/26, DecodeValues, EncodeValues);
}

}  // namespace

std::string FuzzStoreMessages(Mutator& random) {
  if (random.OneIn(4)) return FuzzValues(random);
  Texts texts;
  const StoreRequest request = RandomRequest(random, texts);
  std::string payload = EncodeRequest(request);
  const bool valid = random.OneIn(4) && !texts.key.empty() && texts.key.size() <= kMaxStoreKeyBytes;
  uint16_t type = static_cast<uint16_t>(request.kind);
  if (!valid && random.OneIn(2)) payload = random.Mutated(std::move(payload));
  if (!valid && random.OneIn(4)) type = static_cast<uint16_t>(random.Number());
  const auto decoded = DecodeRequest(type, payload);
  if (decoded.ok() && decoded->kind != StoreMessage::kJoin && !CheckKey(decoded->key).ok()) return "let a key pass";
  return CheckDecoder(
      payload, valid, /*factor=*/0, [type](std::string_view bytes) { return DecodeRequest(type, bytes); },
      EncodeRequest);
}

namespace {

constexpr int kRanks = 2;
constexpr uint64_t kStoreEpoch = 7;

// A store and its clients for some requests, and what it must hold after each.
class StoreSession {
 public:
  explicit StoreSession(Mutator& random) : random_(random), state_(kRanks, kStoreEpoch, random.OneIn(2)) {
    // What an entry costs besides its key and value.
    StoreState other(kRanks, kStoreEpoch);
    other.Connected(1, {"job", kStoreEpoch, -1, Role::kLauncher});
    const StoreRequest set{.kind = StoreMessage::kSet, .key = "k", .value = "v"};
    other.Handle(1, {{static_cast<uint16_t>(StoreMessage::kSet), 0, kStoreEpoch, 1}, EncodeRequest(set)}, now_);
    entry_bytes_ = other.stored_bytes() - 2;
  }

  std::string Run() {
    for (uint64_t steps = 5 + random_.Below(40); steps > 0; --steps) {
      if (std::string wrong = Step(); !wrong.empty()) return wrong;
    }
    return End();
  }

 private:
  std::string Step() {
    switch (random_.Below(12)) {
      case 0: Connect(); break;
      case 1: Disconnect(random_.Below(next_ + 1)); break;
      case 2:
        now_ += std::chrono::milliseconds(random_.Below(3000));
        state_.Expire(now_);
        break;
      default: Ask();
    }
    return TakeReplies();
  }

  void Connect() {
    const auto role = static_cast<Role>(1 + random_.Below(3));
    state_.Connected(next_, {"job", kStoreEpoch, static_cast<int>(random_.Below(5)) - 1, role});
    connected_.insert(next_++);
  }

  void Disconnect(uint64_t id) {
    state_.Disconnected(id);
    connected_.erase(id);
  }

  void Ask() {
    if (connected_.empty()) Connect();
    const uint64_t id = random_.OneIn(20)
                            ? random_.Below(next_ + 1)
                            : *std::next(connected_.begin(), static_cast<ptrdiff_t>(random_.Below(connected_.size())));
    Texts texts;
    const StoreRequest request = RandomRequest(random_, texts);
    Frame frame{{static_cast<uint16_t>(request.kind), 0, kStoreEpoch, next_sequence_++}, EncodeRequest(request)};
    if (random_.OneIn(5)) frame.payload = random_.Mutated(std::move(frame.payload));
    if (random_.OneIn(20)) frame.header.type = static_cast<uint16_t>(random_.Number());
    if (random_.OneIn(20)) frame.header.epoch = random_.Number();
    asked_[frame.header.sequence] = {id, frame};
    state_.Handle(id, frame, now_);
  }

  std::string TakeReplies() {
    for (const StoreState::Reply& reply : state_.TakeReplies()) {
      const auto asked = asked_.find(reply.sequence);
      if (asked == asked_.end() || asked->second.first != reply.to) return "an answer to nothing, or a second one";
      if (!connected_.contains(reply.to)) return "an answer to one who has gone";
      if (reply.code == absl::StatusCode::kOk) Remember(asked->second.second, reply);
      asked_.erase(asked);
    }
    return "";
  }

  // What a request that was granted has changed.
  void Remember(const Frame& frame, const StoreState::Reply& reply) {
    const auto request = DecodeRequest(frame.header.type, frame.payload);
    if (!request.ok()) return;
    if (request->kind == StoreMessage::kSet) values_[std::string(request->key)] = request->value;
    if (request->kind == StoreMessage::kAdd) values_[std::string(request->key)] = reply.payload;
  }

  // When all have gone, the values are all that is left.
  std::string End() {
    for (uint64_t id = 0; id < next_; ++id) Disconnect(id);
    state_.TakeReplies();
    size_t expected = 0;
    for (const auto& [key, value] : values_) expected += key.size() + value.size() + entry_bytes_;
    if (state_.stored_bytes() != expected) {
      return "counts " + std::to_string(state_.stored_bytes()) + " bytes, holds " + std::to_string(expected);
    }
    return state_.NextExpiry() == TimePoint::max() ? "" : "somebody who has gone still waits";
  }

  Mutator& random_;
  StoreState state_;
  TimePoint now_{};
  size_t entry_bytes_ = 0;
  uint64_t next_ = 0;
  uint32_t next_sequence_ = 0;
  std::set<uint64_t> connected_;
  std::map<uint32_t, std::pair<uint64_t, Frame>> asked_;  // by sequence, without an answer so far
  std::map<std::string, std::string> values_;
};

}  // namespace

std::string FuzzStoreState(Mutator& random) {
  std::string wrong;
  const int64_t peak = PeakBytes([&] { wrong = StoreSession(random).Run(); });
  if (wrong.empty() && peak > int64_t{1} << 20) return "took " + std::to_string(peak) + " bytes";
  return wrong;
}

}  // namespace gyre::fuzz
