#include <algorithm>
#include <utility>

#include "gyre/status_macros.h"
#include "step/contender.h"

namespace gyre::bench {

namespace {

class PlainContender : public StepContender {
 public:
  PlainContender(std::string lib, PlainGradients& gradients) : lib_(std::move(lib)), gradients_(gradients) {}

  std::string lib() const override { return lib_; }
  std::string buffers() const override { return "plain"; }
  int64_t copied_bytes() const override { return 0; }
  std::span<float> gradient(int i) override { return gradients_[static_cast<size_t>(i)]; }
  absl::Status Ready(int /*i*/) override { return absl::OkStatus(); }
  absl::Status Wait() override { return absl::OkStatus(); }

 private:
  const std::string lib_;
  PlainGradients& gradients_;
};

class PerTensor final : public PlainContender {
 public:
  PerTensor(std::string lib, SumInPlace sum, PlainGradients& gradients)
      : PlainContender(std::move(lib), gradients), sum_(std::move(sum)) {}

  absl::Status Ready(int i) override { return sum_(gradient(i)); }

 private:
  const SumInPlace sum_;
};

class Bucketed final : public PlainContender {
 public:
  Bucketed(std::string lib, SumInPlace sum, PlainGradients& gradients, const Model& model, int64_t bytes)
      : PlainContender(std::move(lib), gradients), sum_(std::move(sum)), copied_bytes_(2 * 4 * model.count()) {
    size_t room = static_cast<size_t>(bytes) / sizeof(float);
    for (const Parameter& each : model.parameters) room = std::max(room, static_cast<size_t>(each.count()));
    limit_ = static_cast<size_t>(bytes) / sizeof(float);
    bucket_.resize(room);
  }

  int64_t copied_bytes() const override { return copied_bytes_; }

  absl::Status Ready(int i) override {
    const std::span<float> next = gradient(i);
    if (used_ > 0 && used_ + next.size() > limit_) RETURN_IF_ERROR(Flush());
    std::ranges::copy(next, bucket_.begin() + static_cast<std::ptrdiff_t>(used_));
    members_.push_back(i);
    used_ += next.size();
    return used_ >= limit_ ? Flush() : absl::OkStatus();
  }

  absl::Status Wait() override { return used_ > 0 ? Flush() : absl::OkStatus(); }

 private:
  absl::Status Flush() {
    RETURN_IF_ERROR(sum_(std::span(bucket_.data(), used_)));
    const float* from = bucket_.data();
    for (const int i : members_) {
      const std::span<float> to = gradient(i);
      std::copy_n(from, to.size(), to.begin());
      from += to.size();
    }
    members_.clear();
    used_ = 0;
    return absl::OkStatus();
  }

  const SumInPlace sum_;
  const int64_t copied_bytes_;
  std::vector<float> bucket_;
  std::vector<int> members_;
  size_t limit_ = 0;  // elements of a bucket of several gradients
  size_t used_ = 0;   // elements
};

}  // namespace

PlainGradients MakePlainGradients(const Model& model) {
  PlainGradients gradients;
  for (const Parameter& each : model.parameters) gradients.emplace_back(static_cast<size_t>(each.count()));
  return gradients;
}

std::unique_ptr<StepContender> MakeComputeAlone(PlainGradients& gradients) {
  return std::make_unique<PlainContender>("compute", gradients);
}

std::unique_ptr<StepContender> MakePerTensor(std::string lib, SumInPlace sum, PlainGradients& gradients) {
  return std::make_unique<PerTensor>(std::move(lib), std::move(sum), gradients);
}

std::unique_ptr<StepContender> MakeBucketed(std::string lib, SumInPlace sum, PlainGradients& gradients,
                                            const Model& model, int64_t bytes) {
  return std::make_unique<Bucketed>(std::move(lib), std::move(sum), gradients, model, bytes);
}

}  // namespace gyre::bench
