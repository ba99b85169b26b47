#include "ps/wire.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "absl/strings/str_cat.h"

namespace gyre::ps {

namespace {

// Writes or reads the same fields in the same order.
class Writer {
 public:
  explicit Writer(std::string& out) : writer_(out) {}
  void Flag(bool value) { writer_.U8(value ? 1 : 0); }
  void Change(Entry value) { writer_.U8(static_cast<uint8_t>(value)); }
  void U32(uint32_t value) { writer_.U32(value); }
  void I32(int32_t value) { writer_.I32(value); }
  void U64(uint64_t value) { writer_.U64(value); }
  void Step(uint64_t value) { writer_.U64(value); }
  void Text(std::string_view value) { writer_.Text(value); }
  void Rate(float value) { writer_.U32(std::bit_cast<uint32_t>(value)); }
  void Floats(Bytes values) { writer_.Raw(AsText(values)); }
  void Steps(const std::vector<uint64_t>& values) {
    writer_.U32(static_cast<uint32_t>(values.size()));
    for (const uint64_t value : values) writer_.U64(value);
  }

 private:
  WireWriter writer_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : reader_(bytes), left_(bytes.size()) {}
  void Flag(bool& value) {
    const auto byte = Count(reader_.U8(), 1);
    good_ = good_ && byte <= 1;
    value = byte == 1;
  }
  void Change(Entry& value) {
    const auto byte = Count(reader_.U8(), 1);
    good_ = good_ && byte <= static_cast<uint8_t>(Entry::kRoster);
    value = static_cast<Entry>(byte);
  }
  void U32(uint32_t& value) { value = Count(reader_.U32(), 4); }
  void I32(int32_t& value) { value = Count(reader_.I32(), 4); }
  void U64(uint64_t& value) { value = Count(reader_.U64(), 8); }
  void Step(uint64_t& value) {
    U64(value);
    good_ = good_ && value < kMostSteps;
  }
  void Text(std::string_view& value) {
    value = reader_.Text();
    Count(0, 4 + value.size());
  }
  void Rate(float& value) {
    value = std::bit_cast<float>(Count(reader_.U32(), 4));
    good_ = good_ && std::isfinite(value) && value >= 0;
  }
  void Floats(Bytes& values) {
    good_ = good_ && left_ % sizeof(float) == 0;
    values = AsBytes(reader_.Raw(left_));
    left_ = 0;
  }
  void Steps(std::vector<uint64_t>& values) {
    uint32_t count = 0;
    U32(count);
    good_ = good_ && reader_.ok() && count <= left_ / 8;
    if (!good_) return;
    values.resize(count);
    for (uint64_t& value : values) Step(value);
  }
  bool AtEnd() const { return good_ && reader_.AtEnd(); }

 private:
  template <typename T>
  T Count(T value, size_t bytes) {
    left_ -= std::min(left_, bytes);
    return value;
  }

  WireReader reader_;
  size_t left_;  // bytes, while the reader is ok
  bool good_ = true;
};

template <typename Side, typename M>
bool Fields(Side& side, M& message) {
  side.Step(message.epoch);
  side.Step(message.incarnation);
  side.Step(message.to);
  switch (message.kind) {
    case Kind::kHello:
      side.U64(message.layout);
      side.Flag(message.flag);
      side.Flag(message.member);
      side.Step(message.clock);
      side.Steps(message.next);
      return true;
    case Kind::kWelcome:
      side.Flag(message.flag);
      side.Flag(message.member);
      side.Steps(message.next);
      side.Steps(message.durable);
      side.Steps(message.floors);
      return true;
    case Kind::kRefuse:
      side.Flag(message.flag);
      side.Text(message.text);
      return true;
    case Kind::kInit:
      side.U32(message.slot);
      side.Floats(message.values);
      return true;
    case Kind::kPush:
      side.U32(message.slot);
      side.Step(message.from);
      side.Step(message.sequence);
      side.Rate(message.rate);
      side.U32(message.packed);
      side.Floats(message.values);
      return true;
    case Kind::kAck:
      side.U32(message.slot);
      side.Step(message.sequence);
      return true;
    case Kind::kPull:
      side.U32(message.slot);
      side.Step(message.clock);
      return true;
    case Kind::kValues:
      side.U32(message.slot);
      side.Step(message.clock);
      side.U32(message.packed);
      side.Floats(message.values);
      return true;
    case Kind::kHeartbeat:
      side.Step(message.clock);
      side.Steps(message.next);
      return true;
    case Kind::kPulse:
      side.I32(message.worker);
      side.Steps(message.next);
      side.Steps(message.durable);
      return true;
    case Kind::kUnknown: return true;
    case Kind::kPullRows:
    case Kind::kRows:
      side.U32(message.slot);
      side.Step(message.clock);
      side.Step(message.sequence);
      side.Floats(message.values);
      return true;
    case Kind::kFetch:
      side.Step(message.sequence);
      side.Step(message.clock);
      return true;
    case Kind::kPiece:
      side.Flag(message.flag);
      side.Flag(message.last);
      side.Step(message.sequence);
      side.Step(message.from);
      side.Step(message.clock);
      side.Text(message.text);
      return true;
    case Kind::kForward:
      side.Change(message.entry);
      side.U32(message.slot);
      side.I32(message.worker);
      side.Step(message.from);
      side.Step(message.sequence);
      side.Rate(message.rate);
      side.Text(message.text);
      side.Floats(message.values);
      return true;
    case Kind::kConfirm:
      side.Step(message.sequence);
      side.Step(message.clock);
      return true;
  }
  return false;
}

bool Consistent(const Message& message) {
  if (message.kind == Kind::kPush) return message.from <= message.sequence;
  const size_t slots = message.next.size();
  if (message.kind == Kind::kPulse) return message.durable.size() == slots;
  if (message.kind == Kind::kWelcome) return message.durable.size() == slots && message.floors.size() == slots;
  return true;
}

}  // namespace

std::string Encode(const Message& message) {
  std::string payload;
  WireWriter(payload).U8(static_cast<uint8_t>(message.kind));
  Writer writer(payload);
  Fields(writer, message);
  return payload;
}

absl::StatusOr<Message> Decode(std::string_view payload) {
  if (payload.empty()) return absl::InvalidArgumentError("an empty message to a parameter server");
  Message message;
  message.kind = static_cast<Kind>(static_cast<uint8_t>(payload[0]));
  Reader reader(payload.substr(1));
  if (!Fields(reader, message) || !reader.AtEnd() || !Consistent(message)) {
    return absl::InvalidArgumentError(
        absl::StrCat("malformed message of a parameter server, of kind ", static_cast<int>(message.kind)));
  }
  return message;
}

}  // namespace gyre::ps
