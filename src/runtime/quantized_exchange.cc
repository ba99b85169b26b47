// Quantised codecs, in two rounds. Elements of the part are cut into a slice for each rank.
//   1. alltoall: each rank sends every other one its slice, encoded, and gets what the others have for its own
//   2. allgather: the sum of a slice, encoded once more, goes to all
// An element is rounded twice, however many ranks there are, and what either rounding takes away is kept: of the
// second, the slice's owner adds it to its own gradient of the next step.
#include <algorithm>
#include <utility>

#include "compression/large_buffer.h"
#include "compression/quantize.h"
#include "runtime/compressed_exchange.h"

namespace gyre::internal {

namespace {

using compression::DequantizeAdd;
using compression::kQuantizeBlock;
using compression::LargeBuffer;
using compression::PayloadKind;
using compression::Quantize;
using compression::QuantizedBytes;

struct KindOf {
  PayloadKind operator()(const Fp16& /*none*/) const { return PayloadKind::kF16; }
  PayloadKind operator()(const Bf16& /*none*/) const { return PayloadKind::kBF16; }
  PayloadKind operator()(const Fp8& fp8) const {
    return fp8.format == Fp8::Format::kE4M3 ? PayloadKind::kFp8E4M3 : PayloadKind::kFp8E5M2;
  }
  PayloadKind operator()(const Int8& /*none*/) const { return PayloadKind::kInt8; }
  PayloadKind operator()(const Int4& /*none*/) const { return PayloadKind::kInt4; }
  PayloadKind operator()(const Sign& /*none*/) const { return PayloadKind::kSign; }
  PayloadKind operator()(const Ternary& /*none*/) const { return PayloadKind::kTernary; }
  template <typename Other>
  PayloadKind operator()(const Other& /*is none of these*/) const {
    return PayloadKind::kF32;
  }
};

// A run of one gradient's elements in one slice.
struct Piece {
  size_t tensor;  // of the part
  int64_t begin, count;
};
using Slice = std::vector<Piece>;

// Slices of nearly the same length, which begin at multiples of a block, so that few blocks are short.
std::vector<Slice> Cut(const ExchangePart& part, int ranks) {
  int64_t total = 0;
  for (const auto& values : part.values) total += std::ssize(values);
  const int64_t blocks = (total + kQuantizeBlock - 1) / kQuantizeBlock;
  std::vector<Slice> slices(static_cast<size_t>(ranks));
  size_t tensor = 0;
  int64_t at = 0, tensor_begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t end = std::min(total, blocks * (rank + 1) / ranks * kQuantizeBlock);
    while (at < end) {
      const int64_t tensor_end = tensor_begin + std::ssize(part.values[tensor]);
      const int64_t piece_end = std::min(end, tensor_end);
      if (piece_end > at) slices[static_cast<size_t>(rank)].push_back({tensor, at - tensor_begin, piece_end - at});
      at = piece_end;
      if (at == tensor_end) {
        tensor_begin = tensor_end;
        ++tensor;
      }
    }
  }
  return slices;
}

class QuantizedExchange final : public CompressedExchange {
 public:
  QuantizedExchange(PayloadKind kind, uint64_t seed, ExchangeSettings settings)
      : kind_(kind), seed_(seed), settings_(std::move(settings)), scale_(settings_.scale()) {
    for (const ExchangeTensor& tensor : settings_.tensors) {
      kept_.emplace_back(tensor.covered && keeps() ? tensor.count : 0);
    }
  }

  void BeginStep(int64_t step, double /*norm*/) override { step_ = step; }

  absl::Status Flush(int tensor, std::span<float> values) override {
    const std::span<float> kept = kept_[static_cast<size_t>(tensor)].span();
    for (size_t i = 0; i < kept.size(); ++i) {
      values[i] += kept[i];
      kept[i] = 0;
    }
    return absl::OkStatus();
  }

  void Begin(ExchangePart part) override {
    part_ = std::move(part);
    slices_ = Cut(part_, settings_.ranks);
    round_ = 0;
    sent_bytes_ = 0;
  }

  absl::StatusOr<std::optional<Call>> Next() override {
    switch (round_++) {
      case 0: return Scatter();
      case 1: return Gather();
      default: Deliver(); return std::nullopt;
    }
  }

  int64_t sent_bytes() const override { return sent_bytes_; }

  std::vector<compression::StateArrays> state() override {
    std::vector<compression::StateArrays> all;
    for (size_t i = 0; i < kept_.size(); ++i) {
      if (!settings_.tensors[i].covered) continue;
      all.emplace_back();
      if (keeps()) all.back().push_back(kept_[i].span());
    }
    return all;
  }

 private:
  // Ternary is unbiased and keeps nothing; a second lot would only add noise, so its sums travel as integers.
  bool keeps() const { return kind_ != PayloadKind::kTernary; }
  PayloadKind second_kind() const { return keeps() ? kind_ : PayloadKind::kInt8; }

  size_t place(const Piece& piece) const { return static_cast<size_t>(part_.tensors[piece.tensor]); }
  bool covered(const Piece& piece) const { return settings_.tensors[place(piece)].covered; }
  PayloadKind KindFor(const Piece& piece, PayloadKind kind) const { return covered(piece) ? kind : PayloadKind::kF32; }
  float* values(const Piece& piece) const { return part_.values[piece.tensor].data() + piece.begin; }
  float* kept(const Piece& piece) {
    return covered(piece) && keeps() ? kept_[place(piece)].data() + piece.begin : nullptr;
  }
  const Slice& own_slice() const { return slices_[static_cast<size_t>(settings_.rank)]; }

  int64_t BytesOf(const Slice& slice, PayloadKind kind) const {
    int64_t bytes = 0;
    for (const Piece& piece : slice) bytes += QuantizedBytes(KindFor(piece, kind), piece.count);
    return bytes;
  }

  // By rank; and room for all of it.
  void Measure(PayloadKind kind, std::vector<int64_t>& counts, std::vector<std::byte>& all) const {
    counts.clear();
    int64_t total = 0;
    for (const Slice& slice : slices_) total += counts.emplace_back(BytesOf(slice, kind));
    all.resize(static_cast<size_t>(total));
  }

  // Another lot for every rank, step and run of elements.
  uint64_t SeedOf(const Piece& piece) const {
    const auto numbers = {static_cast<uint64_t>(step_), static_cast<uint64_t>(settings_.rank),
                          static_cast<uint64_t>(place(piece)), static_cast<uint64_t>(piece.begin)};
    uint64_t seed = seed_;
    for (const uint64_t number : numbers) seed = (seed ^ number) * 0x9e3779b97f4a7c15u + (seed >> 29);
    return seed;
  }

  Call Scatter() {
    Measure(kind_, send_counts_, sent_);
    std::byte* to = sent_.data();
    for (const Slice& slice : slices_) {
      for (const Piece& piece : slice) {
        const PayloadKind kind = KindFor(piece, kind_);
        Quantize(kind, values(piece), kept(piece), piece.count, SeedOf(piece), to);
        to += QuantizedBytes(kind, piece.count);
      }
    }
    sent_bytes_ += std::ssize(sent_);
    receive_counts_.assign(slices_.size(), send_counts_[static_cast<size_t>(settings_.rank)]);
    received_.resize(slices_.size() * static_cast<size_t>(receive_counts_[0]));
    return {.kind = CallKind::kAllToAll,
            .in = BytesView(sent_),
            .out = BytesView(received_),
            .counts = send_counts_,
            .receive_counts = receive_counts_};
  }

  // Adds up this rank's slice, and encodes the sum.
  Call Gather() {
    Measure(second_kind(), gather_counts_, gathered_);
    sum_bytes_.resize(static_cast<size_t>(gather_counts_[static_cast<size_t>(settings_.rank)]));
    const int64_t stride = receive_counts_[0];
    int64_t offset = 0;
    std::byte* to = sum_bytes_.data();
    for (const Piece& piece : own_slice()) {
      const PayloadKind kind = KindFor(piece, kind_);
      sum_.assign(static_cast<size_t>(piece.count), 0.0f);
      for (int rank = 0; rank < settings_.ranks; ++rank) {
        DequantizeAdd(kind, received_.data() + rank * stride + offset, piece.count, scale_, sum_.data());
      }
      offset += QuantizedBytes(kind, piece.count);
      const PayloadKind second = KindFor(piece, second_kind());
      EncodeSum(piece, second, to);
      to += QuantizedBytes(second, piece.count);
    }
    sent_bytes_ += std::ssize(sum_bytes_);
    return {.kind = CallKind::kAllGather,
            .in = BytesView(sum_bytes_),
            .out = BytesView(gathered_),
            .counts = gather_counts_};
  }

  void EncodeSum(const Piece& piece, PayloadKind kind, std::byte* to) {
    float* const kept_here = kept(piece);
    if (kept_here == nullptr || scale_ == 0) return Quantize(kind, sum_.data(), nullptr, piece.count, 0, to);
    error_.assign(static_cast<size_t>(piece.count), 0.0f);
    Quantize(kind, sum_.data(), error_.data(), piece.count, 0, to);
    for (int64_t i = 0; i < piece.count; ++i) kept_here[i] += error_[static_cast<size_t>(i)] / scale_;
  }

  void Deliver() {
    const std::byte* from = gathered_.data();
    for (const Slice& slice : slices_) {
      for (const Piece& piece : slice) {
        const PayloadKind kind = KindFor(piece, second_kind());
        std::fill_n(values(piece), piece.count, 0.0f);
        DequantizeAdd(kind, from, piece.count, 1, values(piece));
        from += QuantizedBytes(kind, piece.count);
      }
    }
  }

  const PayloadKind kind_;
  const uint64_t seed_;
  const ExchangeSettings settings_;
  const float scale_;
  std::vector<LargeBuffer> kept_;  // by place
  int64_t step_ = 0;
  ExchangePart part_;
  std::vector<Slice> slices_;  // by rank
  int round_ = 0;
  int64_t sent_bytes_ = 0;
  std::vector<int64_t> send_counts_, receive_counts_, gather_counts_;
  std::vector<std::byte> sent_, received_, sum_bytes_, gathered_;
  std::vector<float> sum_, error_;
};

}  // namespace

std::unique_ptr<CompressedExchange> MakeQuantizedExchange(const Compression& compression, ExchangeSettings settings) {
  const auto* const ternary = std::get_if<Ternary>(&compression);
  return std::make_unique<QuantizedExchange>(std::visit(KindOf(), compression), ternary != nullptr ? ternary->seed : 0,
                                             std::move(settings));
}

}  // namespace gyre::internal
