#include <algorithm>
#include <bit>

#include "absl/strings/str_format.h"
#include "compression.h"
#include "compression/accumulate.h"
#include "compression/codec.h"
#include "compression/index_code.h"
#include "compression/large_buffer.h"
#include "compression/selector.h"
#include "device/reduce.h"
#include "gyre/status_macros.h"
#include "nlohmann/json.hpp"
#include "sizes.h"
#include "timing.h"

namespace gyre::bench {

namespace {

using compression::IndexCode;
using compression::LargeBuffer;

// Keeps the compiler from leaving out what computes it.
template <typename T>
void Use(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

LargeBuffer Normal(int64_t count, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  FillNormal(values, seed);
  LargeBuffer buffer(count);
  std::ranges::copy(values, buffer.span().begin());
  return buffer;
}

struct PassTimes {
  std::vector<double> plain, fused;
  int rescans = 0;
};

// Both by turns, each on arrays of its own. Every step's gradient begins elsewhere in the same noise. Many steps go
// ahead, for at first the accumulated grows fast.
PassTimes TimePasses(int64_t count, int64_t kept, int samples) {
  constexpr int64_t kRoom = 1 << 20;
  constexpr int kWarmup = 15;
  LargeBuffer u(count), v(count), plain_u(count), plain_v(count);
  LargeBuffer noise = Normal(count + kRoom, 1);
  compression::Selector selector;
  PassTimes times;
  for (int i = 0; i < kWarmup + samples; ++i) {
    const float* const gradient = noise.data() + i * 40'503 % (kRoom / 16) * 16;
    const double fused = SecondsOf([&] {
      const auto result = selector.SelectLargest(
          {.momentum = u.data(), .velocity = v.data(), .gradient = gradient, .factor = 0.9f}, count, kept);
      if (i >= kWarmup && result.rescanned) ++times.rescans;
    });
    const double plain = SecondsOf([&] {
      compression::Accumulate(
          {.momentum = plain_u.data(), .velocity = plain_v.data(), .gradient = gradient, .factor = 0.9f}, 0, count);
    });
    if (i < kWarmup) continue;
    times.fused.push_back(fused);
    times.plain.push_back(plain);
  }
  return times;
}

struct CodeTimes {
  std::vector<double> encode, decode;
  size_t bytes = 0;
};

absl::StatusOr<CodeTimes> TimeCode(IndexCode code, std::span<const uint32_t> indices, int samples) {
  const auto count = static_cast<int64_t>(indices.size());
  const int parameter = compression::IndexParameter(code, count, compression::kMaxRange);
  std::vector<std::byte> bytes;
  std::vector<uint32_t> decoded(indices.size());
  CodeTimes times;
  bool good = true;
  constexpr int kCalls = 100;
  for (int i = 0; i < samples; ++i) {
    times.encode.push_back(SecondsOf([&] {
                             for (int call = 0; call < kCalls; ++call) {
                               bytes.clear();
                               compression::EncodeIndices(code, parameter, indices, compression::kMaxRange, bytes);
                               Use(bytes);
                             }
                           }) /
                           kCalls);
    times.decode.push_back(SecondsOf([&] {
                             for (int call = 0; call < kCalls; ++call) {
                               good &=
                                   compression::DecodeIndices(code, parameter, bytes, compression::kMaxRange, decoded);
                               Use(decoded);
                             }
                           }) /
                           kCalls);
  }
  times.bytes = bytes.size();
  if (!good || !std::ranges::equal(decoded, indices)) return absl::InternalError("positions came back as others");
  return times;
}

}  // namespace

absl::Status MeasurePass(const CompressionOptions& options, std::FILE* json) {
  ASSIGN_OR_RETURN(const int64_t bytes, ParseSize(options.size));
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  const int64_t kept = compression::KeptCount(options.sparsity, count);
  PassTimes times = TimePasses(count, kept, options.samples);
  const double traffic = 20.0 * static_cast<double>(count) * 1e-9;  // u and v read and written, the gradient read
  std::vector<double> shares;
  for (size_t i = 0; i < times.plain.size(); ++i) shares.push_back(times.plain[i] / times.fused[i]);
  const double plain = Summarize(times.plain).median, fused = Summarize(times.fused).median;
  const double share = Summarize(shares).median;
  absl::PrintF("# u, v update of %d elements, and the same with exact selection of %d and masking; %s, one core\n",
               count, kept, device::SimdTargetName());
  absl::PrintF("#%-15s %12s %10s %10s %10s\n", "pass", "ms", "GB/s", "of plain", "rescans");
  absl::PrintF("%-16s %12.2f %10.2f\n", "plain", plain * 1e3, traffic / plain);
  absl::PrintF("%-16s %12.2f %10.2f %9.1f%% %10d\n", "dgc", fused * 1e3, traffic / fused, share * 100, times.rescans);
  if (json == nullptr) return absl::OkStatus();
  const nlohmann::ordered_json line = {
      {"lib", "gyre"},           {"op", "dgc_pass"},      {"elements", count},       {"kept", kept},
      {"plain_ms", plain * 1e3}, {"dgc_ms", fused * 1e3}, {"share_of_plain", share}, {"rescans", times.rescans}};
  absl::FPrintF(json, "%s\n", line.dump());
  return absl::OkStatus();
}

absl::Status MeasureIndexCodes(const CompressionOptions& options, std::FILE* json) {
  // One chunk, one position from each run: gaps vary as those of positions spread evenly do.
  std::vector<float> lots(compression::kMaxRange);
  FillNormal(lots, 3);
  std::vector<uint32_t> indices;
  std::vector<float> sorted = lots;
  const int64_t kept = compression::KeptCount(options.sparsity, compression::kMaxRange);
  std::ranges::nth_element(sorted, sorted.begin() + (kept - 1), std::greater<>());
  for (uint32_t i = 0; i < compression::kMaxRange; ++i) {
    if (lots[i] >= sorted[static_cast<size_t>(kept - 1)]) indices.push_back(i);
  }
  absl::PrintF("# %d positions among %d, one core\n", indices.size(), compression::kMaxRange);
  absl::PrintF("#%-15s %12s %14s %14s\n", "code", "bits each", "encode (M/s)", "decode (M/s)");
  for (int i = 0; i < compression::kIndexCodeCount; ++i) {
    const auto code = static_cast<IndexCode>(i);
    ASSIGN_OR_RETURN(const CodeTimes times, TimeCode(code, indices, options.samples));
    const auto number = static_cast<double>(indices.size());
    const double bits = 8.0 * static_cast<double>(times.bytes) / number;
    const double encode = number / Summarize(times.encode).median * 1e-6;
    const double decode = number / Summarize(times.decode).median * 1e-6;
    const std::string name(compression::IndexCodeName(code));
    absl::PrintF("%-16s %12.2f %14.0f %14.0f\n", name, bits, encode, decode);
    if (json == nullptr) continue;
    const nlohmann::ordered_json line = {{"lib", "gyre"},      {"op", "index_code"},       {"code", name},
                                         {"bits", bits},       {"encode_m_per_s", encode}, {"decode_m_per_s", decode},
                                         {"positions", number}};
    absl::FPrintF(json, "%s\n", line.dump());
  }
  return absl::OkStatus();
}

}  // namespace gyre::bench
