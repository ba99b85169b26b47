#include "compression/state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compression/payload.h"
#include "xxhash.h"

namespace gyre::compression {

namespace {

constexpr uint32_t kMagic = 0x504d4347;  // "GCMP"
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 16, kCodecBytes = 16, kTrailerBytes = 8;

absl::Status Differs(std::string_view what, int64_t saved, int64_t expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("compression state: ", ToAbsl(what), " is ", saved, ", not ", expected));
}

int64_t ElementsOf(const StateArrays& arrays) {
  return arrays.empty() ? 0 : static_cast<int64_t>(arrays.front().size());
}

absl::Status CheckSaved(std::span<const std::byte> bytes, std::span<const StateArrays> codecs) {
  if (bytes.size() < kHeaderBytes + kTrailerBytes || Load<uint32_t>(bytes.data()) != kMagic) {
    return absl::DataLossError("compression state: these bytes are something else");
  }
  const auto body = bytes.first(bytes.size() - kTrailerBytes);
  if (Load<uint64_t>(body.data() + body.size()) != XXH3_64bits(body.data(), body.size())) {
    return absl::DataLossError("compression state: the checksum is wrong; cut short or altered");
  }
  if (const auto version = Load<uint32_t>(&body[4]); version != kVersion) {
    return Differs("the version", version, kVersion);
  }
  if (const auto number = Load<uint32_t>(&body[8]); number != codecs.size()) {
    return Differs("the number of codecs", number, static_cast<int64_t>(codecs.size()));
  }
  auto rest = body.subspan(kHeaderBytes);
  for (size_t i = 0; i < codecs.size(); ++i) {
    const StateArrays& arrays = codecs[i];
    if (rest.size() < kCodecBytes) return absl::DataLossError("compression state: cut short");
    const auto number = Load<uint32_t>(rest.data());
    const auto count = Load<int64_t>(&rest[8]);
    if (number != arrays.size()) {
      return Differs(absl::StrCat("codec ", i, "'s number of arrays"), number, static_cast<int64_t>(arrays.size()));
    }
    if (count != ElementsOf(arrays)) {
      return Differs(absl::StrCat("codec ", i, "'s number of elements"), count, ElementsOf(arrays));
    }
    const size_t bytes_of_arrays = arrays.size() * static_cast<size_t>(count) * sizeof(float);
    if (rest.size() - kCodecBytes < bytes_of_arrays) return absl::DataLossError("compression state: cut short");
    rest = rest.subspan(kCodecBytes + bytes_of_arrays);
  }
  return rest.empty() ? absl::OkStatus() : absl::DataLossError("compression state: bytes are left over");
}

// REQUIRES: Check was OK
void Add(std::span<const std::byte> bytes, std::span<const StateArrays> codecs) {
  const std::byte* from = bytes.data() + kHeaderBytes;
  for (const StateArrays& arrays : codecs) {
    from += kCodecBytes;
    for (const std::span<float> array : arrays) {
      for (float& value : array) {
        value += Load<float>(from);
        from += sizeof(float);
      }
    }
  }
}

std::vector<StateArrays> ArraysOf(std::span<Codec* const> codecs) {
  std::vector<StateArrays> all;
  for (Codec* codec : codecs) all.push_back(codec->state());
  return all;
}

}  // namespace

std::vector<std::byte> SaveState(std::span<const StateArrays> codecs) {
  size_t size = kHeaderBytes + kTrailerBytes;
  for (const StateArrays& arrays : codecs) {
    size += kCodecBytes + arrays.size() * static_cast<size_t>(ElementsOf(arrays)) * sizeof(float);
  }
  std::vector<std::byte> bytes(size);
  Store(bytes.data(), kMagic);
  Store(&bytes[4], kVersion);
  Store(&bytes[8], static_cast<uint32_t>(codecs.size()));
  std::byte* to = bytes.data() + kHeaderBytes;
  for (const StateArrays& arrays : codecs) {
    Store(to, static_cast<uint32_t>(arrays.size()));
    Store(to + 8, ElementsOf(arrays));
    to += kCodecBytes;
    for (const std::span<float> array : arrays) {
      if (!array.empty()) std::memcpy(to, array.data(), array.size_bytes());
      to += array.size_bytes();
    }
  }
  Store(to, XXH3_64bits(bytes.data(), size - kTrailerBytes));
  return bytes;
}

std::vector<std::byte> SaveState(std::span<Codec* const> codecs) {
  return SaveState(ArraysOf(codecs));
}

absl::Status RestoreState(std::span<const std::span<const std::byte>> saved, std::span<const StateArrays> codecs) {
  for (const auto bytes : saved) RETURN_IF_ERROR(CheckSaved(bytes, codecs));
  for (const StateArrays& arrays : codecs) {
    for (const std::span<float> array : arrays) std::ranges::fill(array, 0.0f);
  }
  for (const auto bytes : saved) Add(bytes, codecs);
  return absl::OkStatus();
}

absl::Status RestoreState(std::span<const std::span<const std::byte>> saved, std::span<Codec* const> codecs) {
  return RestoreState(saved, ArraysOf(codecs));
}

}  // namespace gyre::compression
