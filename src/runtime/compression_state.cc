#include "runtime/compression_state.h"

#include <cstring>

#include "compression/payload.h"
#include "xxhash.h"

namespace gyre::internal {

namespace {

using compression::Load;
using compression::Store;

constexpr uint32_t kCommonMagic = 0x4e4d4347;  // "GCMN"
constexpr size_t kCommonBytes = 32;            // behind the words

}  // namespace

void AppendCommon(const CommonState& common, std::vector<std::byte>& kept) {
  const size_t words = kept.size(), end = words + common.words.size() * sizeof(uint32_t);
  kept.resize(end + kCommonBytes);
  if (!common.words.empty()) std::memcpy(&kept[words], common.words.data(), end - words);
  Store(&kept[end], kCommonMagic);
  Store(&kept[end + 4], static_cast<uint32_t>(common.ranks));
  Store(&kept[end + 8], common.step);
  Store(&kept[end + 16], uint64_t{common.words.size()});
  Store(&kept[end + 24], uint64_t{XXH3_64bits(kept.data(), end + 24)});
}

absl::StatusOr<OpenedState> OpenState(std::span<const std::byte> saved) {
  if (saved.size() < kCommonBytes) return absl::DataLossError("compression state: these bytes are something else");
  const size_t end = saved.size() - kCommonBytes;
  const std::byte* const from = saved.data() + end;
  if (Load<uint64_t>(from + 24) != XXH3_64bits(saved.data(), end + 24)) {
    return absl::DataLossError("compression state: the checksum is wrong; cut short or altered");
  }
  const auto words = Load<uint64_t>(from + 16);
  if (Load<uint32_t>(from) != kCommonMagic || words > end / sizeof(uint32_t)) {
    return absl::DataLossError("compression state: these bytes are something else, or of an older version");
  }
  OpenedState opened;
  opened.common.ranks = static_cast<int>(Load<uint32_t>(from + 4));
  opened.common.step = Load<int64_t>(from + 8);
  opened.common.words.resize(words);
  opened.kept = saved.first(end - words * sizeof(uint32_t));
  if (words > 0) std::memcpy(opened.common.words.data(), saved.data() + opened.kept.size(), words * sizeof(uint32_t));
  return opened;
}

}  // namespace gyre::internal
