// Sparse codecs, in two calls: every call costs the network's latency, which is most of what a sparse exchange takes.
//   1. allreduce of the gradients that are not covered; with them it tells all how much each rank sends in the other:
//      two floats a rank, which are 0 on all others, so that sums are exact
//   2. allgather of the elements that each rank has chosen, which all add up in the order of ranks
//
// What a rank sends there: for each covered gradient of the part u32 bytes, and a payload of compression/sparse.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compression/codec.h"
#include "compression/dgc.h"
#include "compression/payload.h"
#include "runtime/compressed_exchange.h"

namespace gyre::internal {

namespace {

using compression::Codec;
using compression::DgcTensor;

// Bytes that an entry of a sparse payload takes, and an element of a dense allreduce (twice over the wire).
constexpr double kEntryBytes = 6, kDenseBytes = 8;

class SparseExchange final : public CompressedExchange {
 public:
  SparseExchange(const Compression& compression, ExchangeSettings settings, std::vector<std::unique_ptr<Codec>> codecs)
      : settings_(std::move(settings)), codecs_(std::move(codecs)), sizes_(static_cast<size_t>(settings_.ranks)) {
    if (const auto* const dgc = std::get_if<Dgc>(&compression)) dgc_ = *dgc;
  }

  bool WantsNorm() const override { return dgc_ && dgc_->clip > 0; }

  void BeginStep(int64_t step, double norm) override {
    step_ = step;
    if (!dgc_) return;
    clip_scale_ = compression::ClipScale(*dgc_, norm, settings_.ranks);
    sparsity_ = compression::SparsityAt(*dgc_, step - 1);
    if (InWarmup() && Loses(sparsity_)) sparsity_ = 0;
    SetAll();
  }

  bool dense_step() const override { return dgc_ && sparsity_ == 0; }

  absl::Status Flush(int tensor, std::span<float> values) override {
    Codec& codec = *codecs_[static_cast<size_t>(tensor)];
    if (!dgc_) {
      const std::span<float> kept = codec.state()[0];
      for (size_t i = 0; i < kept.size(); ++i) {
        values[i] += kept[i];
        kept[i] = 0;
      }
      return absl::OkStatus();
    }
    auto& accumulator = static_cast<DgcTensor&>(codec);
    accumulator.Set(0, clip_scale_);
    RETURN_IF_ERROR(Annotate(accumulator.Encode(values, step_, payload_), NameOf(tensor)));
    accumulator.Set(sparsity_, clip_scale_);
    std::ranges::fill(values, 0.0f);
    return decoder_.DecodeAdd(payload_, 1, values);
  }

  void Begin(ExchangePart part) override {
    part_ = std::move(part);
    round_ = Round::kDense;
    sent_bytes_ = 0;
  }

  absl::StatusOr<std::optional<Call>> Next() override {
    switch (round_) {
      case Round::kDense:
        RETURN_IF_ERROR(Encode());
        round_ = Round::kPayloads;
        return Call{.kind = CallKind::kAllReduce, .in = FloatsView(dense_), .out = FloatsView(dense_)};
      case Round::kPayloads: round_ = Round::kEnd; return GatherPayloads();
      case Round::kEnd: break;
    }
    RETURN_IF_ERROR(Deliver());
    return std::nullopt;
  }

  int64_t sent_bytes() const override { return sent_bytes_; }

  std::vector<compression::StateArrays> state() override {
    std::vector<compression::StateArrays> all;
    for (const auto& codec : codecs_) {
      if (codec != nullptr) all.push_back(codec->state());
    }
    return all;
  }

 private:
  enum class Round { kDense, kPayloads, kEnd };
  using Length = uint32_t;
  static constexpr size_t kSizeUnit = 1 << 16;

  const std::string& NameOf(int tensor) const { return settings_.tensors[static_cast<size_t>(tensor)].name; }
  Codec* CodecOf(size_t i) const { return codecs_[static_cast<size_t>(part_.tensors[i])].get(); }

  bool InWarmup() const {
    return dgc_->warmup_steps > 0 && (step_ - 1) / dgc_->warmup_steps < std::ssize(dgc_->warmup);
  }
  bool Loses(double sparsity) const { return settings_.ranks * (1 - sparsity) * kEntryBytes >= kDenseBytes; }

  void SetAll() {
    for (const auto& codec : codecs_) {
      if (codec != nullptr) static_cast<DgcTensor&>(*codec).Set(sparsity_, clip_scale_);
    }
  }

  absl::Status Encode() {
    dense_.assign(2 * sizes_.size(), 0.0f);
    sent_.clear();
    for (size_t i = 0; i < part_.tensors.size(); ++i) {
      const std::span<float> values = part_.values[i];
      Codec* const codec = CodecOf(i);
      if (codec == nullptr) {
        dense_.insert(dense_.end(), values.begin(), values.end());
        continue;
      }
      RETURN_IF_ERROR(Annotate(codec->Encode(values, step_, payload_), NameOf(part_.tensors[i])));
      const size_t at = sent_.size();
      sent_.resize(at + sizeof(Length) + payload_.size());
      compression::Store(&sent_[at], static_cast<Length>(payload_.size()));
      std::memcpy(&sent_[at + sizeof(Length)], payload_.data(), payload_.size());
    }
    const size_t own = 2 * static_cast<size_t>(settings_.rank);
    const size_t units = sent_.size() / kSizeUnit;
    dense_[own] = static_cast<float>(sent_.size() - units * kSizeUnit);
    dense_[own + 1] = static_cast<float>(units);
    sent_bytes_ = std::ssize(sent_) + std::ssize(dense_) * static_cast<int64_t>(sizeof(float));
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<Call>> GatherPayloads() {
    // A payload is never much larger than its gradient with a bit for each position.
    int64_t most = 0;
    for (const auto& values : part_.values) most += 4096 + 8 * std::ssize(values);
    for (size_t rank = 0; rank < sizes_.size(); ++rank) {
      const double size = dense_[2 * rank] + double{kSizeUnit} * dense_[2 * rank + 1];
      if (!(size >= 0 && size <= static_cast<double>(most))) {
        return absl::DataLossError(absl::StrCat("rank ", rank, " sends ", size, " bytes of a bucket"));
      }
      sizes_[rank] = static_cast<int64_t>(size);
    }
    received_.resize(static_cast<size_t>(std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0})));
    return Call{.kind = CallKind::kAllGather, .in = BytesView(sent_), .out = BytesView(received_), .counts = sizes_};
  }

  absl::Status Deliver() {
    const float* dense = dense_.data() + 2 * sizes_.size();
    const float scale = settings_.scale();
    for (size_t i = 0; i < part_.tensors.size(); ++i) {
      const std::span<float> values = part_.values[i];
      if (CodecOf(i) != nullptr) {
        std::ranges::fill(values, 0.0f);
      } else {
        for (float& value : values) value = scale * *dense++;
      }
    }
    std::span<const std::byte> rest = received_;
    for (size_t rank = 0; rank < sizes_.size(); ++rank) {
      const auto size = static_cast<size_t>(sizes_[rank]);
      RETURN_IF_ERROR(Annotate(AddPayloads(rest.first(size)), absl::StrCat("from rank ", rank)));
      rest = rest.subspan(size);
    }
    return absl::OkStatus();
  }

  absl::Status AddPayloads(std::span<const std::byte> bytes) {
    const float scale = settings_.scale();
    for (size_t i = 0; i < part_.tensors.size(); ++i) {
      if (CodecOf(i) == nullptr) continue;
      if (bytes.size() < sizeof(Length)) return absl::DataLossError("compressed gradients are cut short");
      const auto length = size_t{compression::Load<Length>(bytes.data())};
      bytes = bytes.subspan(sizeof(Length));
      if (bytes.size() < length) return absl::DataLossError("compressed gradients are cut short");
      RETURN_IF_ERROR(
          Annotate(decoder_.DecodeAdd(bytes.first(length), scale, part_.values[i]), NameOf(part_.tensors[i])));
      bytes = bytes.subspan(length);
    }
    return bytes.empty() ? absl::OkStatus() : absl::DataLossError("compressed gradients have bytes left over");
  }

  const ExchangeSettings settings_;
  const std::vector<std::unique_ptr<Codec>> codecs_;  // by place; null: not covered
  std::optional<Dgc> dgc_;                            // then codecs are DgcTensors
  int64_t step_ = 0;
  double sparsity_ = 0;
  float clip_scale_ = 1;
  ExchangePart part_;
  Round round_ = Round::kDense;
  int64_t sent_bytes_ = 0;
  std::vector<float> dense_;
  std::vector<std::byte> payload_, sent_, received_;
  std::vector<int64_t> sizes_;  // of what each rank sends
  compression::Decoder decoder_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CompressedExchange>> MakeSparseExchange(const Compression& compression,
                                                                       ExchangeSettings settings) {
  std::vector<std::unique_ptr<Codec>> codecs;
  for (const ExchangeTensor& tensor : settings.tensors) {
    codecs.emplace_back();
    if (!tensor.covered) continue;
    ASSIGN_OR_RETURN(codecs.back(), compression::MakeCodec(compression, tensor.count,
                                                           {.link_bytes_per_second = settings.link_bytes_per_second}));
  }
  return std::make_unique<SparseExchange>(compression, std::move(settings), std::move(codecs));
}

}  // namespace gyre::internal
