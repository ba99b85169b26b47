#include "compression/dense_codec.h"

#include "absl/strings/str_cat.h"
#include "compression/large_buffer.h"
#include "compression/quantize.h"

namespace gyre::compression {

namespace {

class DenseCodec final : public Codec {
 public:
  DenseCodec(PayloadKind kind, int64_t count, uint64_t seed)
      : kind_(kind), count_(count), seed_(seed), kept_(KeepsError(kind) ? count : 0) {}

  absl::Status Encode(std::span<const float> gradient, int64_t step, std::vector<std::byte>& out) override {
    if (static_cast<int64_t>(gradient.size()) != count_) {
      return absl::InvalidArgumentError(absl::StrCat("a gradient of ", gradient.size(), " elements, not ", count_));
    }
    EncodeDense(kind_, gradient, kept_.data(), seed_ + (static_cast<uint64_t>(step) << 32), out);
    return absl::OkStatus();
  }

  std::vector<std::span<float>> state() override {
    if (!KeepsError(kind_)) return {};
    return {kept_.span()};
  }

 private:
  static bool KeepsError(PayloadKind kind) { return kind != PayloadKind::kF32 && kind != PayloadKind::kTernary; }

  const PayloadKind kind_;
  const int64_t count_;
  const uint64_t seed_;
  LargeBuffer kept_;
};

}  // namespace

std::unique_ptr<Codec> MakeDenseCodec(PayloadKind kind, int64_t count, uint64_t seed) {
  return std::make_unique<DenseCodec>(kind, count, seed);
}

void EncodeDense(PayloadKind kind, std::span<const float> values, float* kept, uint64_t seed,
                 std::vector<std::byte>& out) {
  const auto count = static_cast<int64_t>(values.size());
  out.resize(kPayloadHeaderBytes + static_cast<size_t>(QuantizedBytes(kind, count)));
  StoreHeader(out.data(), {kind, 0, count});
  Quantize(kind, values.data(), kept, count, seed, out.data() + kPayloadHeaderBytes);
}

}  // namespace gyre::compression
