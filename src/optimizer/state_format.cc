#include "optimizer/state_format.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "xxhash.h"

namespace gyre {

namespace {

constexpr uint32_t kMagic = 0x54504f47;  // "GOPT"
constexpr uint32_t kVersion = 1;

struct Header {
  uint32_t magic;
  uint32_t version;
  uint32_t rule;
  uint32_t buffers;
};

struct BufferHeader {
  int64_t count;
  int64_t steps;
};

void Append(std::vector<std::byte>& bytes, const void* data, size_t size) {
  bytes.resize(bytes.size() + size);
  if (size > 0) std::memcpy(bytes.data() + bytes.size() - size, data, size);
}

absl::Status Differs(std::string_view what, uint64_t saved, uint64_t expected) {
  return absl::InvalidArgumentError(absl::StrCat("optimizer state: ", ToAbsl(what), " is ", saved, ", not ", expected));
}

}  // namespace

StateWriter::StateWriter(size_t rule, size_t buffers) {
  const Header header = {kMagic, kVersion, static_cast<uint32_t>(rule), static_cast<uint32_t>(buffers)};
  Append(bytes_, &header, sizeof(header));
}

void StateWriter::Add(int64_t count, int64_t steps, std::span<const float> first, std::span<const float> second) {
  const BufferHeader header = {count, steps};
  Append(bytes_, &header, sizeof(header));
  Append(bytes_, first.data(), first.size_bytes());
  Append(bytes_, second.data(), second.size_bytes());
}

std::vector<std::byte> StateWriter::Finish() && {
  const uint64_t sum = XXH3_64bits(bytes_.data(), bytes_.size());
  Append(bytes_, &sum, sizeof(sum));
  return std::move(bytes_);
}

absl::StatusOr<StateReader> StateReader::Open(std::span<const std::byte> bytes, size_t rule, size_t buffers) {
  Header header;
  uint64_t sum;
  if (bytes.size() < sizeof(header) + sizeof(sum)) {
    return absl::DataLossError(absl::StrCat("optimizer state: only ", bytes.size(), " bytes"));
  }
  const auto body = bytes.first(bytes.size() - sizeof(sum));
  std::memcpy(&header, body.data(), sizeof(header));
  std::memcpy(&sum, body.data() + body.size(), sizeof(sum));
  if (header.magic != kMagic) return absl::DataLossError("optimizer state: these bytes are something else");
  if (sum != XXH3_64bits(body.data(), body.size())) {
    return absl::DataLossError("optimizer state: the checksum is wrong; cut short or altered");
  }
  if (header.version != kVersion) return Differs("the version", header.version, kVersion);
  if (header.rule != rule) return Differs("the rule's number", header.rule, rule);
  if (header.buffers != buffers) return Differs("the number of buffers", header.buffers, buffers);
  return StateReader(body.subspan(sizeof(header)));
}

absl::Status StateReader::Next(int64_t count, int64_t& steps, std::span<float> first, std::span<float> second) {
  BufferHeader header;
  if (!Take(&header, sizeof(header))) return absl::DataLossError("optimizer state: cut short");
  if (header.count != count) {
    return Differs(absl::StrCat("the count of buffer ", buffer_), header.count, count);
  }
  if (header.steps < 0 || !Take(first.data(), first.size_bytes()) || !Take(second.data(), second.size_bytes())) {
    return absl::DataLossError(absl::StrCat("optimizer state: buffer ", buffer_, " is damaged"));
  }
  steps = header.steps;
  ++buffer_;
  return absl::OkStatus();
}

absl::Status StateReader::CheckEnd() const {
  if (rest_.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("optimizer state: ", rest_.size(), " bytes too many"));
}

bool StateReader::Take(void* out, size_t size) {
  if (size > rest_.size()) return false;
  if (size > 0) std::memcpy(out, rest_.data(), size);
  rest_ = rest_.subspan(size);
  return true;
}

}  // namespace gyre
