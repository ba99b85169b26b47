// PowerSGD: the factors of all covered gradients of a part are averaged by one allreduce each. Gradients that are not
// covered go along with the first. Passes over matrices are the device's; factors are small, and come to the host in
// any case, where P is orthonormalised on its way back.
#include <algorithm>
#include <bit>
#include <utility>

#include "base/status.h"
#include "compression/power_sgd.h"
#include "compression/quantize.h"
#include "runtime/codec_device.h"
#include "runtime/compressed_exchange.h"

namespace gyre::internal {

namespace {

using compression::PowerSgdFactors;
using device::kernels::LowRankMatrix;
using device::kernels::LowRankPass;

constexpr auto kFactorBytes = int64_t{sizeof(float)};

std::span<float> FloatsHere(Parcel& parcel) {
  return {reinterpret_cast<float*>(parcel.here()), static_cast<size_t>(parcel.size() / kFactorBytes)};
}
float* FloatsThere(Parcel& parcel) {
  return reinterpret_cast<float*>(parcel.there());
}

class LowRankExchange final : public CompressedExchange {
 public:
  LowRankExchange(ExchangeSettings settings, std::shared_ptr<CodecDevice> device)
      : settings_(std::move(settings)),
        device_(std::move(device)),
        start_(device_->MakeParcel()),
        first_(device_->MakeParcel()),
        second_(device_->MakeParcel()) {}

  // Before all else.
  absl::Status Open(const PowerSgd& power) {
    for (const ExchangeTensor& tensor : settings_.tensors) {
      factors_.emplace_back();
      kept_.emplace_back();
      if (!tensor.covered) continue;
      const int64_t rows = tensor.shape[0];
      ASSIGN_OR_RETURN(factors_.back(), PowerSgdFactors::Create(power, rows, tensor.count / rows, factors_.size()));
      ASSIGN_OR_RETURN(kept_.back(), device_->Keep(tensor.count));
    }
    return absl::OkStatus();
  }

  absl::Status Flush(const ExchangePart& part) override {
    for (size_t i = 0; i < part.tensors.size(); ++i) {
      const std::span<float> kept = kept_[static_cast<size_t>(part.tensors[i])];
      if (!kept.empty()) RETURN_IF_ERROR(device_->Move(kept, part.values[i]));
    }
    return absl::OkStatus();
  }

  absl::Status Begin(ExchangePart part) override {
    part_ = std::move(part);
    round_ = 0;
    sent_bytes_ = 0;
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Ready() override { return device_->Done(); }
  std::string Awaited() const override { return device_->Awaited(); }

  absl::StatusOr<std::optional<Call>> Next() override {
    switch (round_++) {
      case 0: return AverageP();
      case 1: return AverageQ();
      default: RETURN_IF_ERROR(Deliver()); return std::nullopt;
    }
  }

  int64_t sent_bytes() const override { return sent_bytes_; }

  std::vector<compression::StateArrays> state() override {
    std::vector<compression::StateArrays> all;
    for (const std::span<float> kept : kept_) {
      if (!kept.empty()) all.push_back({kept});
    }
    return all;
  }

  // Of each covered gradient: Q, and two words of lots.
  std::vector<uint32_t> common() const override {
    std::vector<uint32_t> words;
    for (const auto& factors : factors_) {
      if (!factors) continue;
      for (const float value : factors->q()) words.push_back(std::bit_cast<uint32_t>(value));
      words.push_back(static_cast<uint32_t>(factors->lots()));
      words.push_back(static_cast<uint32_t>(factors->lots() >> 32));
    }
    return words;
  }

  bool TakeCommon(std::span<const uint32_t> words) override {
    size_t expected = 0;
    for (const auto& factors : factors_) expected += factors ? factors->q().size() + 2 : 0;
    if (words.size() != expected) return false;
    std::vector<float> q;
    for (auto& factors : factors_) {
      if (!factors) continue;
      q.resize(factors->q().size());
      std::ranges::transform(words.first(q.size()), q.begin(),
                             [](uint32_t word) { return std::bit_cast<float>(word); });
      words = words.subspan(q.size());
      factors->Restore(q, words[0] | uint64_t{words[1]} << 32);
      words = words.subspan(2);
    }
    return true;
  }

 private:
  // A covered gradient of the part, and where its factors begin in the parcels; one that goes along, which has no Q.
  struct Matrix {
    PowerSgdFactors& factors;
    size_t p, q;
    LowRankMatrix there;
  };
  struct Plain {
    std::span<float> values;
    size_t at;
  };

  // Finds its place for everything.
  absl::Status Lay() {
    matrices_.clear();
    plain_.clear();
    size_t p = 0, q = 0;
    for (size_t i = 0; i < part_.tensors.size(); ++i) {
      const auto place = static_cast<size_t>(part_.tensors[i]);
      const std::span<float> values = part_.values[i];
      if (!factors_[place]) {
        plain_.push_back({values, p});
        p += values.size();
        continue;
      }
      PowerSgdFactors& factors = *factors_[place];
      matrices_.push_back({factors,
                           p,
                           q,
                           {.gradient = values.data(),
                            .result = values.data(),
                            .matrix = kept_[place].data(),
                            .p = nullptr,
                            .q = nullptr,
                            .parts = nullptr,
                            .rows = factors.rows(),
                            .columns = factors.columns(),
                            .rank = factors.rank(),
                            .scale = factor()}});
      p += factors.p_size();
      q += factors.q().size();
    }
    RETURN_IF_ERROR(start_->Resize(static_cast<int64_t>(q) * kFactorBytes));
    RETURN_IF_ERROR(first_->Resize(static_cast<int64_t>(p) * kFactorBytes));
    return second_->Resize(static_cast<int64_t>(q) * kFactorBytes);
  }

  absl::StatusOr<Call> AverageP() {
    RETURN_IF_ERROR(Lay());
    for (const Matrix& matrix : matrices_) {
      std::ranges::copy(matrix.factors.q(), FloatsHere(*start_).begin() + static_cast<std::ptrdiff_t>(matrix.q));
    }
    RETURN_IF_ERROR(start_->Send());
    RETURN_IF_ERROR(RunPass(LowRankPass::kMakeP, *start_));
    for (const Plain& plain : plain_) {
      RETURN_IF_ERROR(CopyThere(plain.values.data(), plain.values.size(), FloatsThere(*first_) + plain.at));
    }
    return Average(*first_);
  }

  absl::StatusOr<Call> AverageQ() {
    const std::span<float> here = FloatsHere(*first_);
    for (const Matrix& matrix : matrices_) {
      matrix.factors.Orthonormalize(here.subspan(matrix.p, matrix.factors.p_size()));
    }
    for (const Plain& plain : plain_) {
      for (float& value : here.subspan(plain.at, plain.values.size())) value *= factor();
    }
    RETURN_IF_ERROR(first_->Send());
    for (const Plain& plain : plain_) {
      RETURN_IF_ERROR(CopyThere(FloatsThere(*first_) + plain.at, plain.values.size(), plain.values.data()));
    }
    RETURN_IF_ERROR(RunPass(LowRankPass::kMakeQ, *second_));
    return Average(*second_);
  }

  absl::Status Deliver() {
    for (const Matrix& matrix : matrices_) {
      matrix.factors.Keep(FloatsHere(*second_).subspan(matrix.q, matrix.factors.q().size()));
    }
    RETURN_IF_ERROR(second_->Send());
    return RunPass(LowRankPass::kFinish, *second_);
  }

  // By what an average becomes the result.
  float factor() const { return settings_.scale() * static_cast<float>(settings_.ranks); }

  absl::Status RunPass(LowRankPass pass, Parcel& q) {
    std::vector<LowRankMatrix> all;
    for (const Matrix& matrix : matrices_) {
      all.push_back(matrix.there);
      all.back().p = FloatsThere(*first_) + matrix.p;
      all.back().q = FloatsThere(q) + matrix.q;
    }
    return device_->RunPass(pass, all);
  }

  absl::Status CopyThere(const float* from, size_t count, float* to) {
    return device_->Quantize(compression::PayloadKind::kF32, from, nullptr, static_cast<int64_t>(count), 0,
                             reinterpret_cast<std::byte*>(to));
  }

  absl::StatusOr<Call> Average(Parcel& parcel) {
    RETURN_IF_ERROR(parcel.Bring());
    sent_bytes_ += parcel.size();
    const TensorView floats(parcel.here(), parcel.size() / kFactorBytes, DType::kF32);
    return Call{.kind = CallKind::kAllReduce, .in = floats, .out = floats, .op = ReduceOp::kAverage};
  }

  const ExchangeSettings settings_;
  const std::shared_ptr<CodecDevice> device_;
  std::vector<std::optional<PowerSgdFactors>> factors_;  // by place
  std::vector<std::span<float>> kept_;                   // likewise; empty where nothing is
  ExchangePart part_;
  std::vector<Matrix> matrices_;  // the part's
  std::vector<Plain> plain_;
  int round_ = 0;
  int64_t sent_bytes_ = 0;
  // What Qs the matrices begin with; Ps, and what goes along; Qs. What the host writes here it writes when what was
  // sent from here before has been done: each Send but the last of a part is followed by a Bring, and the last is of
  // Qs, which the host writes next only after the next part's first Bring.
  const std::unique_ptr<Parcel> start_, first_, second_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CompressedExchange>> MakeLowRankExchange(const PowerSgd& power,
                                                                        ExchangeSettings settings,
                                                                        std::shared_ptr<CodecDevice> device) {
  auto made = std::make_unique<LowRankExchange>(std::move(settings), std::move(device));
  RETURN_IF_ERROR(made->Open(power));
  return made;
}

}  // namespace gyre::internal
