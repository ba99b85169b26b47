#include "compression/sparse_codec.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compression/large_buffer.h"
#include "compression/payload.h"
#include "compression/selector.h"
#include "device/kernels/random.h"
#include "device/kernels/sample.h"

namespace gyre::compression {

namespace {

absl::Status CheckCount(std::span<const float> gradient, int64_t count) {
  if (static_cast<int64_t>(gradient.size()) == count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a gradient of ", gradient.size(), " elements, not ", count));
}

class TopKCodec final : public Codec {
 public:
  TopKCodec(const TopK& options, int64_t count, double link)
      : options_(options), count_(count), sparse_{options.values, link}, kept_(count) {}

  absl::Status Encode(std::span<const float> gradient, int64_t step, std::vector<std::byte>& out) override {
    return EncodeTo(gradient, nullptr, step, out);
  }
  absl::Status EncodeAndClear(std::span<float> gradient, int64_t step, std::vector<std::byte>& out) override {
    return EncodeTo(gradient, gradient.data(), step, out);
  }

  std::vector<std::span<float>> state() override { return {kept_.span()}; }

 private:
  absl::Status EncodeTo(std::span<const float> gradient, float* cleared, int64_t step, std::vector<std::byte>& out) {
    RETURN_IF_ERROR(CheckCount(gradient, count_));
    if (count_ > 0) {
      const int64_t k = KeptCount(options_.sparsity, count_);
      const Accumulation arrays{.velocity = kept_.data(), .gradient = gradient.data(), .cleared = cleared};
      if (options_.sampled) {
        selector_.SelectAbove(arrays, count_, k, SampledThreshold(gradient, k, step));
      } else {
        selector_.SelectLargest(arrays, count_, k);
      }
    }
    EncodeSparse(selector_.indices(), selector_.values(), count_, sparse_, out);
    const auto errors = selector_.values();
    for (size_t i = 0; i < errors.size(); ++i) kept_.data()[selector_.indices()[i]] = errors[i];
    return absl::OkStatus();
  }

  // What the k largest of all would be above, if a sample were like all.
  float SampledThreshold(std::span<const float> gradient, int64_t k, int64_t step) {
    const device::kernels::SamplePlan plan = device::kernels::PlanSample(count_, k);
    sample_.resize(static_cast<size_t>(plan.elements));
    for (int64_t i = 0; i < plan.elements; ++i) {
      const uint32_t at = RandomPosition(static_cast<uint64_t>(step), i, plan.elements, count_);
      const float magnitude = std::abs(kept_.data()[at] + gradient[at]);
      sample_[static_cast<size_t>(i)] = std::isfinite(magnitude) ? magnitude : 0;
    }
    const auto kth = sample_.begin() + (plan.rank - 1);
    std::ranges::nth_element(sample_, kth, std::greater<>());
    return std::nextafter(*kth, 0.0f);  // itself included
  }

  const TopK options_;
  const int64_t count_;
  const SparseOptions sparse_;
  LargeBuffer kept_;
  Selector selector_;
  std::vector<float> sample_;
};

class RandomKCodec final : public Codec {
 public:
  RandomKCodec(const RandomK& options, int64_t count) : options_(options), count_(count), kept_(count) {}

  absl::Status Encode(std::span<const float> gradient, int64_t step, std::vector<std::byte>& out) override {
    RETURN_IF_ERROR(CheckCount(gradient, count_));
    Accumulate({.velocity = kept_.data(), .gradient = gradient.data()}, 0, count_);
    const int64_t sent = KeptCount(options_.sparsity, count_);
    const uint64_t seed = RandomSeed(options_, step);
    out.resize(kRandomHeaderBytes + static_cast<size_t>(sent) * sizeof(float));
    StoreRandomHeader(out.data(), count_, seed, sent);
    for (int64_t i = 0; i < sent; ++i) {
      float& value = kept_.data()[RandomPosition(seed, i, sent, count_)];
      Store(out.data() + kRandomHeaderBytes + static_cast<size_t>(i) * sizeof(float), value);
      value = 0;
    }
    return absl::OkStatus();
  }

  std::vector<std::span<float>> state() override { return {kept_.span()}; }

 private:
  const RandomK options_;
  const int64_t count_;
  LargeBuffer kept_;
};

}  // namespace

uint32_t RandomPosition(uint64_t seed, int64_t i, int64_t kept, int64_t count) {
  return static_cast<uint32_t>(device::kernels::PositionOf({seed, kept, count}, i));
}

int64_t KeptCount(double sparsity, int64_t count) {
  return std::clamp(std::llround((1 - sparsity) * static_cast<double>(count)), std::min<long long>(1, count),
                    static_cast<long long>(count));
}

std::unique_ptr<Codec> MakeTopK(const TopK& options, int64_t count, double link_bytes_per_second) {
  return std::make_unique<TopKCodec>(options, count, link_bytes_per_second);
}

std::unique_ptr<Codec> MakeRandomK(const RandomK& options, int64_t count) {
  return std::make_unique<RandomKCodec>(options, count);
}

uint64_t RandomSeed(const RandomK& options, int64_t step) {
  return device::kernels::Mix(options.seed + static_cast<uint64_t>(step) * 0x9e3779b97f4a7c15u);
}

void StoreRandomHeader(std::byte* to, int64_t count, uint64_t seed, int64_t sent) {
  StoreHeader(to, {PayloadKind::kRandom, 0, count});
  Store(to + kPayloadHeaderBytes, seed);
  Store(to + kPayloadHeaderBytes + 8, static_cast<uint32_t>(sent));
}

absl::StatusOr<RandomPayload> ReadRandom(std::span<const std::byte> bytes, int64_t count) {
  const auto header = LoadHeader(bytes);
  if (!header || header->kind != PayloadKind::kRandom || header->detail != 0 || header->count != count ||
      count > int64_t{UINT32_MAX} || bytes.size() < kRandomHeaderBytes) {
    return absl::DataLossError("random payload: the header is none");
  }
  const auto seed = Load<uint64_t>(&bytes[kPayloadHeaderBytes]);
  const auto sent = int64_t{Load<uint32_t>(&bytes[kPayloadHeaderBytes + 8])};
  const auto values = bytes.subspan(kRandomHeaderBytes);
  if (sent > count || values.size() != static_cast<size_t>(sent) * sizeof(float)) {
    return absl::DataLossError(absl::StrCat("random payload: ", values.size(), " bytes for ", sent, " values"));
  }
  return RandomPayload{seed, sent, values};
}

absl::Status DecodeAddRandom(std::span<const std::byte> bytes, float scale, std::span<float> sum) {
  const auto count = static_cast<int64_t>(sum.size());
  ASSIGN_OR_RETURN(const RandomPayload payload, ReadRandom(bytes, count));
  for (int64_t i = 0; i < payload.sent; ++i) {
    const auto value = Load<float>(&payload.values[static_cast<size_t>(i) * sizeof(float)]);
    sum[RandomPosition(payload.seed, i, payload.sent, count)] += scale * value;
  }
  return absl::OkStatus();
}

}  // namespace gyre::compression
