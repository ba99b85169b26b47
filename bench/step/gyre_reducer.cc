#include <utility>

#include "gyre/reducer.h"
#include "gyre/status_macros.h"
#include "step/contender.h"

namespace gyre::bench {

namespace {

class GyreReducer final : public StepContender {
 public:
  // `plain`: null where gradients live in the reducer's arena.
  GyreReducer(std::string lib, std::unique_ptr<GradientReducer> reducer, PlainGradients* plain, const Model& model)
      : lib_(std::move(lib)),
        reducer_(std::move(reducer)),
        plain_(plain),
        copied_bytes_(plain != nullptr ? 2 * 4 * model.count() : 0) {}

  std::string lib() const override { return lib_; }
  std::string buffers() const override { return plain_ != nullptr ? "plain" : "arena"; }
  int64_t copied_bytes() const override { return copied_bytes_; }

  std::span<float> gradient(int i) override {
    if (plain_ != nullptr) return (*plain_)[static_cast<size_t>(i)];
    const TensorView view = reducer_->gradient(i);
    return {static_cast<float*>(view.data), static_cast<size_t>(view.count)};
  }

  absl::Status Ready(int i) override {
    return plain_ != nullptr ? reducer_->Ready(i, gradient(i)) : reducer_->Ready(i);
  }

  absl::Status Wait() override { return reducer_->Wait().status(); }

 private:
  const std::string lib_;
  const std::unique_ptr<GradientReducer> reducer_;
  PlainGradients* const plain_;
  const int64_t copied_bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StepContender>> MakeGyreReducer(Runtime& runtime, const Model& model,
                                                               PlainGradients* plain, std::optional<int64_t> bytes) {
  ASSIGN_OR_RETURN(auto reducer,
                   GradientReducer::Create(runtime.world(), {.op = ReduceOp::kSum, .bucket_bytes = bytes}));
  for (const Parameter& each : model.parameters) {
    RETURN_IF_ERROR(reducer->Register(each.name, each.shape).status());  // indices count up from 0, as the model's
  }
  RETURN_IF_ERROR(reducer->Start());
  return std::make_unique<GyreReducer>(bytes ? "gyre-by-size" : "gyre", std::move(reducer), plain, model);
}

}  // namespace gyre::bench
