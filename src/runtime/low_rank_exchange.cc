// PowerSGD: the factors of all covered gradients of a part are averaged by one allreduce each. Gradients that are not
// covered go along with the first.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "compression/power_sgd.h"
#include "runtime/compressed_exchange.h"

namespace gyre::internal {

namespace {

using compression::PowerSgdTensor;

class LowRankExchange final : public CompressedExchange {
 public:
  LowRankExchange(ExchangeSettings settings, std::vector<std::optional<PowerSgdTensor>> matrices)
      : settings_(std::move(settings)), matrices_(std::move(matrices)) {}

  absl::Status Flush(const ExchangePart& part) override {
    for (size_t i = 0; i < part.tensors.size(); ++i) {
      auto& matrix = matrices_[static_cast<size_t>(part.tensors[i])];
      if (!matrix) continue;
      const std::span<float> kept = matrix->kept();
      for (size_t k = 0; k < kept.size(); ++k) {
        part.values[i][k] += kept[k];
        kept[k] = 0;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Begin(ExchangePart part) override {
    part_ = std::move(part);
    round_ = 0;
    sent_bytes_ = 0;
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<Call>> Next() override {
    switch (round_++) {
      case 0:
        Collect([&](size_t i) { return MatrixOf(i) ? MatrixOf(i)->MakeP(part_.values[i]) : part_.values[i]; });
        return Average();
      case 1:
        Spread();
        Collect([&](size_t i) { return MatrixOf(i) ? MatrixOf(i)->MakeQ() : std::span<float>(); });
        return Average();
      default:
        Spread();
        Deliver();
        return std::nullopt;
    }
  }

  int64_t sent_bytes() const override { return sent_bytes_; }

  std::vector<compression::StateArrays> state() override {
    std::vector<compression::StateArrays> all;
    for (auto& matrix : matrices_) {
      if (matrix) all.push_back({matrix->kept()});
    }
    return all;
  }

 private:
  std::optional<PowerSgdTensor>& MatrixOf(size_t i) { return matrices_[static_cast<size_t>(part_.tensors[i])]; }

  // Copies what is to be averaged into one piece, and remembers where it came from.
  template <typename Source>
  void Collect(Source source) {
    all_.clear();
    sources_.clear();
    for (size_t i = 0; i < part_.tensors.size(); ++i) {
      sources_.push_back(source(i));
      all_.insert(all_.end(), sources_.back().begin(), sources_.back().end());
    }
    sent_bytes_ += std::ssize(all_) * static_cast<int64_t>(sizeof(float));
  }

  Call Average() {
    return {.kind = CallKind::kAllReduce, .in = FloatsView(all_), .out = FloatsView(all_), .op = ReduceOp::kAverage};
  }

  void Spread() {
    const float* from = all_.data();
    for (const std::span<float> source : sources_) {
      std::copy_n(from, source.size(), source.begin());
      from += source.size();
    }
  }

  void Deliver() {
    const float factor = settings_.scale() * static_cast<float>(settings_.ranks);
    for (size_t i = 0; i < part_.tensors.size(); ++i) {
      const std::span<float> values = part_.values[i];
      if (MatrixOf(i)) MatrixOf(i)->Finish(values);
      if (factor == 1) continue;
      for (float& value : values) value *= factor;
    }
  }

  const ExchangeSettings settings_;
  std::vector<std::optional<PowerSgdTensor>> matrices_;  // by place
  ExchangePart part_;
  int round_ = 0;
  int64_t sent_bytes_ = 0;
  std::vector<float> all_;
  std::vector<std::span<float>> sources_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CompressedExchange>> MakeLowRankExchange(const PowerSgd& power,
                                                                        ExchangeSettings settings) {
  std::vector<std::optional<PowerSgdTensor>> matrices;
  for (const ExchangeTensor& tensor : settings.tensors) {
    matrices.emplace_back();
    if (!tensor.covered) continue;
    const int64_t rows = tensor.shape[0];
    ASSIGN_OR_RETURN(matrices.back(), PowerSgdTensor::Create(power, rows, tensor.count / rows, matrices.size()));
  }
  return std::make_unique<LowRankExchange>(std::move(settings), std::move(matrices));
}

}  // namespace gyre::internal
