#include <algorithm>
#include <barrier>
#include <memory>
#include <thread>

#include "absl/strings/str_format.h"
#include "compression.h"
#include "compression/accumulate.h"
#include "compression/codec.h"
#include "compression/index_code.h"
#include "compression/large_buffer.h"
#include "compression/selector.h"
#include "gyre/status_macros.h"
#include "hwy/highway.h"
#include "hwy/targets.h"
#include "nlohmann/json.hpp"
#include "noise.h"
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

// One thread's share of the arrays, and what it does there by turns.
class PassShare {
 public:
  PassShare(int64_t count, int64_t kept, uint64_t seed)
      : count_(count),
        kept_(kept),
        u_(count),
        v_(count),
        plain_u_(count),
        plain_v_(count),
        noise_(Normal(count + kRoom, seed)) {}

  // Every step's gradient begins elsewhere in the same noise.
  void Fused(int step) {
    const auto result = selector_.SelectLargest(
        {.momentum = u_.data(), .velocity = v_.data(), .gradient = gradient(step), .factor = 0.9f}, count_, kept_);
    rescanned_ = result.rescanned;
  }
  void Plain(int step) {
    compression::Accumulate(
        {.momentum = plain_u_.data(), .velocity = plain_v_.data(), .gradient = gradient(step), .factor = 0.9f}, 0,
        count_);
  }
  bool rescanned() const { return rescanned_; }

 private:
  static constexpr int64_t kRoom = 1 << 20;
  const float* gradient(int step) { return noise_.data() + step * 40'503 % (kRoom / 16) * 16; }

  const int64_t count_, kept_;
  LargeBuffer u_, v_, plain_u_, plain_v_, noise_;
  compression::Selector selector_;
  bool rescanned_ = false;
};

// Seconds until all shares have done it, each on a thread of its own; the first on this one. Threads meet before, so
// that their start is not counted.
template <typename Body>
double SecondsOnAll(std::vector<std::unique_ptr<PassShare>>& shares, Body body) {
  std::barrier<> begin(std::ssize(shares)), end(std::ssize(shares));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < shares.size(); ++i) {
    threads.emplace_back([&, i] {
      begin.arrive_and_wait();
      body(*shares[i]);
      end.arrive_and_wait();
    });
  }
  begin.arrive_and_wait();
  const double seconds = SecondsOf([&] {
    body(*shares[0]);
    end.arrive_and_wait();
  });
  for (std::thread& thread : threads) thread.join();
  return seconds;
}

// Both by turns, each on arrays of its own. Many steps go ahead, for at first the accumulated grows fast.
PassTimes TimePasses(int64_t count, int64_t kept, int samples, int threads) {
  constexpr int kWarmup = 15;
  std::vector<std::unique_ptr<PassShare>> shares;
  for (int i = 0; i < threads; ++i) {
    shares.push_back(std::make_unique<PassShare>(count / threads, kept / threads, static_cast<uint64_t>(i) + 1));
  }
  PassTimes times;
  for (int i = 0; i < kWarmup + samples; ++i) {
    const double fused = SecondsOnAll(shares, [i](PassShare& share) { share.Fused(i); });
    const double plain = SecondsOnAll(shares, [i](PassShare& share) { share.Plain(i); });
    if (i < kWarmup) continue;
    times.fused.push_back(fused);
    times.plain.push_back(plain);
    for (const auto& share : shares) times.rescans += share->rescanned() ? 1 : 0;
  }
  return times;
}

// The instruction sets to measure: the best one, and AVX2 where that is not it. Of those that code is compiled for: a
// processor may have better ones, and to choose one of them would be to measure the slowest code of all.
std::vector<int64_t> Targets() {
  const int64_t supported = hwy::SupportedTargets() & HWY_TARGETS;
  std::vector<int64_t> targets = {supported & -supported};
  if (targets[0] != HWY_AVX2 && (supported & HWY_AVX2) != 0) targets.push_back(HWY_AVX2);
  return targets;
}

void UseTarget(int64_t target) {  // 0: the best
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
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
  const double traffic = 20.0 * static_cast<double>(count) * 1e-9;  // u and v read and written, the gradient read
  absl::PrintF("# u, v update of %d elements, and the same with exact selection of %d and masking\n", count, kept);
  absl::PrintF("#%-11s %8s %12s %12s %14s %10s %10s\n", "target", "threads", "plain (ms)", "dgc (ms)", "dgc (GB/s)",
               "of plain", "rescans");
  for (const int64_t target : Targets()) {
    for (const int threads : {1, 2}) {
      UseTarget(target);
      PassTimes times = TimePasses(count, kept, options.samples, threads);
      UseTarget(0);
      std::vector<double> shares;
      for (size_t i = 0; i < times.plain.size(); ++i) shares.push_back(times.plain[i] / times.fused[i]);
      const double plain = Summarize(times.plain).median, fused = Summarize(times.fused).median;
      const double share = Summarize(shares).median;
      absl::PrintF("%-12s %8d %12.2f %12.2f %14.2f %9.1f%% %10d\n", hwy::TargetName(target), threads, plain * 1e3,
                   fused * 1e3, traffic / fused, share * 100, times.rescans);
      std::fflush(stdout);
      if (json == nullptr) continue;
      const nlohmann::ordered_json line = {{"lib", "gyre"},
                                           {"op", "dgc_pass"},
                                           {"elements", count},
                                           {"kept", kept},
                                           {"target", hwy::TargetName(target)},
                                           {"threads", threads},
                                           {"plain_ms", plain * 1e3},
                                           {"dgc_ms", fused * 1e3},
                                           {"share_of_plain", share},
                                           {"rescans", times.rescans}};
      absl::FPrintF(json, "%s\n", line.dump());
    }
  }
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
