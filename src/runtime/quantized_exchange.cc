// Quantised codecs, in two rounds. Elements of the part are cut into a slice for each rank.
//   1. alltoall: each rank sends every other one its slice, encoded, and gets what the others have for its own
//   2. allgather: the sum of a slice, encoded once more, goes to all
// An element is rounded twice, however many ranks there are, and what either rounding takes away is kept: of the
// second, the slice's owner adds it to its own gradient of the next step.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "compression/quantize.h"
#include "runtime/codec_device.h"
#include "runtime/compressed_exchange.h"

namespace gyre::internal {

namespace {

using compression::kQuantizeBlock;
using compression::PayloadKind;
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
  QuantizedExchange(PayloadKind kind, uint64_t seed, ExchangeSettings settings, std::shared_ptr<CodecDevice> device)
      : kind_(kind),
        seed_(seed),
        settings_(std::move(settings)),
        scale_(settings_.scale()),
        device_(std::move(device)),
        sent_(device_->MakeParcel()),
        received_(device_->MakeParcel()),
        own_sum_(device_->MakeParcel()),
        gathered_(device_->MakeParcel()) {}

  // Before all else.
  absl::Status Open() {
    for (const ExchangeTensor& tensor : settings_.tensors) {
      kept_.emplace_back();
      if (!tensor.covered || !keeps()) continue;
      ASSIGN_OR_RETURN(kept_.back(), device_->Keep(tensor.count));
    }
    return absl::OkStatus();
  }

  void BeginStep(int64_t step, double /*norm*/) override { step_ = step; }

  absl::Status Flush(const ExchangePart& part) override {
    for (size_t i = 0; i < part.tensors.size(); ++i) {
      const std::span<float> kept = kept_[static_cast<size_t>(part.tensors[i])];
      if (!kept.empty()) RETURN_IF_ERROR(device_->Move(kept, part.values[i]));
    }
    return absl::OkStatus();
  }

  absl::Status Begin(ExchangePart part) override {
    part_ = std::move(part);
    slices_ = Cut(part_, settings_.ranks);
    round_ = 0;
    sent_bytes_ = 0;
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Ready() override { return device_->Done(); }
  std::string Awaited() const override { return device_->Awaited(); }

  absl::StatusOr<std::optional<Call>> Next() override {
    switch (round_++) {
      case 0: return Scatter();
      case 1: return Gather();
      default: RETURN_IF_ERROR(Deliver()); return std::nullopt;
    }
  }

  int64_t sent_bytes() const override { return sent_bytes_; }

  std::vector<compression::StateArrays> state() override {
    std::vector<compression::StateArrays> all;
    for (size_t i = 0; i < kept_.size(); ++i) {
      if (!settings_.tensors[i].covered) continue;
      all.emplace_back();
      if (keeps()) all.back().push_back(kept_[i]);
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
  std::span<float> values(const Piece& piece) const {
    return part_.values[piece.tensor].subspan(static_cast<size_t>(piece.begin), static_cast<size_t>(piece.count));
  }
  float* kept(const Piece& piece) {
    return covered(piece) && keeps() ? kept_[place(piece)].data() + piece.begin : nullptr;
  }
  const Slice& own_slice() const { return slices_[static_cast<size_t>(settings_.rank)]; }

  int64_t BytesOf(const Piece& piece, PayloadKind kind) const {
    const int64_t bytes = QuantizedBytes(KindFor(piece, kind), piece.count), unit = device_->alignment();
    return (bytes + unit - 1) / unit * unit;
  }

  // By rank; and room for all of it.
  absl::Status Measure(PayloadKind kind, std::vector<int64_t>& counts, Parcel& all) const {
    counts.clear();
    int64_t total = 0;
    for (const Slice& slice : slices_) {
      int64_t& bytes = counts.emplace_back(0);
      for (const Piece& piece : slice) bytes += BytesOf(piece, kind);
      total += bytes;
    }
    return all.Resize(total);
  }

  // Another lot for every rank, step and run of elements.
  uint64_t SeedOf(const Piece& piece) const {
    const auto numbers = {static_cast<uint64_t>(step_), static_cast<uint64_t>(settings_.rank),
                          static_cast<uint64_t>(place(piece)), static_cast<uint64_t>(piece.begin)};
    uint64_t seed = seed_;
    for (const uint64_t number : numbers) seed = (seed ^ number) * 0x9e3779b97f4a7c15u + (seed >> 29);
    return seed;
  }

  absl::StatusOr<Call> Scatter() {
    RETURN_IF_ERROR(Measure(kind_, send_counts_, *sent_));
    receive_counts_.assign(slices_.size(), send_counts_[static_cast<size_t>(settings_.rank)]);
    RETURN_IF_ERROR(received_->Resize(std::ssize(slices_) * receive_counts_[0]));
    std::byte* to = sent_->there();
    for (const Slice& slice : slices_) {
      for (const Piece& piece : slice) {
        RETURN_IF_ERROR(device_->Quantize(KindFor(piece, kind_), values(piece).data(), kept(piece), piece.count,
                                          SeedOf(piece), to));
        to += BytesOf(piece, kind_);
      }
    }
    RETURN_IF_ERROR(sent_->Bring());
    sent_bytes_ += sent_->size();
    return Call{.kind = CallKind::kAllToAll,
                .in = sent_->view(),
                .out = received_->view(),
                .counts = send_counts_,
                .receive_counts = receive_counts_};
  }

  // Adds up this rank's slice, and encodes the sum.
  absl::StatusOr<Call> Gather() {
    RETURN_IF_ERROR(Measure(second_kind(), gather_counts_, *gathered_));
    RETURN_IF_ERROR(own_sum_->Resize(gather_counts_[static_cast<size_t>(settings_.rank)]));
    RETURN_IF_ERROR(received_->Send());
    int64_t offset = 0, to = 0;
    for (const Piece& piece : own_slice()) {
      RETURN_IF_ERROR(AddUp(piece, offset, own_sum_->there() + to));
      offset += BytesOf(piece, kind_);
      to += BytesOf(piece, second_kind());
    }
    RETURN_IF_ERROR(own_sum_->Bring());
    sent_bytes_ += own_sum_->size();
    return Call{
        .kind = CallKind::kAllGather, .in = own_sum_->view(), .out = gathered_->view(), .counts = gather_counts_};
  }

  // What of the sum's encoding receivers do not get, its owner keeps, as if it were its own gradient's.
  absl::Status AddUp(const Piece& piece, int64_t offset, std::byte* to) {
    const PayloadKind second = KindFor(piece, second_kind());
    const float inverse = 1 / scale_;
    const bool keeps_error = kept(piece) != nullptr && std::isfinite(inverse);
    ASSIGN_OR_RETURN(const std::span<float> scratch, device_->Scratch(2 * Padded(piece.count)));
    const auto count = static_cast<size_t>(piece.count);
    const auto sum = scratch.first(count), error = scratch.subspan(static_cast<size_t>(Padded(piece.count)), count);
    RETURN_IF_ERROR(device_->Zero(sum));
    for (int rank = 0; rank < settings_.ranks; ++rank) {
      const std::byte* const from = received_->there() + rank * receive_counts_[0] + offset;
      RETURN_IF_ERROR(device_->DequantizeAdd(KindFor(piece, kind_), from, piece.count, scale_, sum.data()));
    }
    if (!keeps_error) return device_->Quantize(second, sum.data(), nullptr, piece.count, 0, to);
    RETURN_IF_ERROR(device_->Zero(error));
    RETURN_IF_ERROR(device_->Quantize(second, sum.data(), error.data(), piece.count, 0, to));
    return device_->AddScaled(error, inverse, {kept(piece), count});
  }

  // So that what follows is as well aligned.
  static int64_t Padded(int64_t count) { return (count + 3) / 4 * 4; }

  absl::Status Deliver() {
    RETURN_IF_ERROR(gathered_->Send());
    const std::byte* from = gathered_->there();
    for (const Slice& slice : slices_) {
      for (const Piece& piece : slice) {
        RETURN_IF_ERROR(device_->Zero(values(piece)));
        RETURN_IF_ERROR(
            device_->DequantizeAdd(KindFor(piece, second_kind()), from, piece.count, 1, values(piece).data()));
        from += BytesOf(piece, second_kind());
      }
    }
    return absl::OkStatus();
  }

  const PayloadKind kind_;
  const uint64_t seed_;
  const ExchangeSettings settings_;
  const float scale_;
  const std::shared_ptr<CodecDevice> device_;
  std::vector<std::span<float>> kept_;  // by place; empty where nothing is kept
  int64_t step_ = 0;
  ExchangePart part_;
  std::vector<Slice> slices_;  // by rank
  int round_ = 0;
  int64_t sent_bytes_ = 0;
  std::vector<int64_t> send_counts_, receive_counts_, gather_counts_;
  const std::unique_ptr<Parcel> sent_, received_, own_sum_, gathered_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CompressedExchange>> MakeQuantizedExchange(const Compression& compression,
                                                                          ExchangeSettings settings,
                                                                          std::shared_ptr<CodecDevice> device) {
  const auto* const ternary = std::get_if<Ternary>(&compression);
  auto made =
      std::make_unique<QuantizedExchange>(std::visit(KindOf(), compression), ternary != nullptr ? ternary->seed : 0,
                                          std::move(settings), std::move(device));
  RETURN_IF_ERROR(made->Open());
  return made;
}

}  // namespace gyre::internal
