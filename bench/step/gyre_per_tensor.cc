#include <utility>

#include "gyre/status_macros.h"
#include "step/contender.h"

namespace gyre::bench {

namespace {

constexpr int64_t kAlignment = 32;  // floats: the arena's 128 bytes

class GyrePerTensor final : public StepContender {
 public:
  GyrePerTensor(Communicator& world, Buffer arena, std::vector<std::span<float>> gradients, std::string buffers)
      : world_(world), arena_(std::move(arena)), gradients_(std::move(gradients)), buffers_(std::move(buffers)) {
    pending_.reserve(gradients_.size());
  }

  std::string lib() const override { return "gyre-per-tensor"; }
  std::string buffers() const override { return buffers_; }
  int64_t copied_bytes() const override { return 0; }
  std::span<float> gradient(int i) override { return gradients_[static_cast<size_t>(i)]; }

  absl::Status Ready(int i) override {
    pending_.push_back(world_.AllReduceAsync(gradient(i)));
    return absl::OkStatus();
  }

  absl::Status Wait() override {
    for (Work& work : pending_) RETURN_IF_ERROR(work.Wait());
    pending_.clear();
    return absl::OkStatus();
  }

 private:
  Communicator& world_;
  const Buffer arena_;
  const std::vector<std::span<float>> gradients_;
  const std::string buffers_;
  std::vector<Work> pending_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StepContender>> MakeGyrePerTensor(Runtime& runtime, const Model& model,
                                                                 PlainGradients* plain) {
  std::vector<std::span<float>> gradients;
  if (plain != nullptr) {
    for (std::vector<float>& each : *plain) gradients.emplace_back(each);
    return std::make_unique<GyrePerTensor>(runtime.world(), Buffer(), std::move(gradients), "plain");
  }
  const auto aligned = [](int64_t count) { return (count + kAlignment - 1) / kAlignment * kAlignment; };
  int64_t total = 0;
  for (const Parameter& each : model.parameters) total += aligned(each.count());
  ASSIGN_OR_RETURN(Buffer arena, runtime.Allocate(total * static_cast<int64_t>(sizeof(float))));
  float* at = arena.As<float>().data();
  for (const Parameter& each : model.parameters) {
    gradients.emplace_back(at, static_cast<size_t>(each.count()));
    at += aligned(each.count());
  }
  return std::make_unique<GyrePerTensor>(runtime.world(), std::move(arena), std::move(gradients), "arena");
}

}  // namespace gyre::bench
