#include <algorithm>
#include <string_view>
#include <utility>

#include "compression.h"
#include "gyre/reducer.h"
#include "gyre/status_macros.h"
#include "noise.h"
#include "step/contender.h"

namespace gyre::bench {

namespace {

// Within a host larger gradients are reduced where they are (docs/fusion.md).
constexpr int64_t kCopiedBytes = 512 << 10;

// What a step copies of gradients in the program's memory, into buckets and back.
int64_t CopiedBytes(const Model& model, int hosts) {
  int64_t bytes = 0;
  for (const Parameter& each : model.parameters) {
    const int64_t size = each.count() * static_cast<int64_t>(sizeof(float));
    if (hosts > 1 || size < kCopiedBytes) bytes += 2 * size;
  }
  return bytes;
}

class GyreReducer : public StepContender {
 public:
  // `plain`: null where gradients live in the reducer's arena.
  GyreReducer(std::string lib, std::unique_ptr<GradientReducer> reducer, PlainGradients* plain, int64_t copied_bytes,
              bool waits_for_each)
      : lib_(std::move(lib)),
        waits_for_each_(waits_for_each),
        reducer_(std::move(reducer)),
        plain_(plain),
        copied_bytes_(plain != nullptr ? copied_bytes : 0) {}

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
  bool waits_for_each() const override { return waits_for_each_; }
  absl::Status WaitFor(int i) override { return reducer_->WaitFor(i).status(); }
  bool settled() const override { return reducer_->planned(); }

 private:
  const std::string lib_;
  const bool waits_for_each_;
  const std::unique_ptr<GradientReducer> reducer_;
  PlainGradients* const plain_;
  const int64_t copied_bytes_;
};

// Gradients are noise, another on each rank and in each step: of zeros there would be nothing to choose and to send.
class GyreCompressed final : public GyreReducer {
 public:
  GyreCompressed(std::unique_ptr<GradientReducer> reducer, PlainGradients* plain, const Model& model,
                 const std::string& compression, const Communicator& world)
      : GyreReducer("gyre-" + compression, std::move(reducer), plain, CopiedBytes(model, world.node_count()),
                    /*waits_for_each=*/true),
        model_(model),
        compression_(compression) {
    int64_t most = 0;
    for (const Parameter& each : model.parameters) most = std::max(most, each.count());
    noise_.resize(static_cast<size_t>(most + kRoom));
    FillNormal(noise_, static_cast<uint64_t>(world.rank()) + 1);
  }

  std::string compression() const override { return compression_; }
  bool lossy() const override { return true; }
  void Prepare() override {
    ++step_;
    for (size_t i = 0; i < model_.parameters.size(); ++i) {
      const size_t begin = (step_ * 40'503 + i * 7919) % kRoom;
      const std::span<float> values = gradient(static_cast<int>(i));
      std::copy_n(noise_.begin() + static_cast<std::ptrdiff_t>(begin), values.size(), values.begin());
    }
  }

 private:
  static constexpr int64_t kRoom = 1 << 20;

  const Model& model_;
  const std::string compression_;
  std::vector<float> noise_;
  size_t step_ = 0;
};

absl::StatusOr<std::unique_ptr<GradientReducer>> MakeReducer(Runtime& runtime, const Model& model,
                                                             const ReducerOptions& options) {
  ASSIGN_OR_RETURN(auto reducer, GradientReducer::Create(runtime.world(), options));
  for (const Parameter& each : model.parameters) {
    RETURN_IF_ERROR(reducer->Register(each.name, each.shape).status());  // indices count up from 0, as the model's
  }
  RETURN_IF_ERROR(reducer->Start());
  return reducer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepContender>> MakeGyreReducer(Runtime& runtime, const Model& model,
                                                               PlainGradients* plain, const GyreVariant& variant) {
  const ReducerOptions options{
      .op = ReduceOp::kSum, .bucket_bytes = variant.bytes, .tune = variant.tune, .priorities = variant.priorities};
  ASSIGN_OR_RETURN(auto reducer, MakeReducer(runtime, model, options));
  return std::make_unique<GyreReducer>(std::string(variant.lib), std::move(reducer), plain,
                                       CopiedBytes(model, runtime.world().node_count()), variant.waits_for_each);
}

absl::StatusOr<std::unique_ptr<StepContender>> MakeGyreCompressed(Runtime& runtime, const Model& model,
                                                                  PlainGradients* plain,
                                                                  const std::string& compression) {
  constexpr std::string_view kAlways = ":always";
  std::string_view text = compression;
  ReducerOptions options{.op = ReduceOp::kSum, .always_compress = text.ends_with(kAlways)};
  if (options.always_compress) text.remove_suffix(kAlways.size());
  ASSIGN_OR_RETURN(options.compression, ParseCompression(text));
  ASSIGN_OR_RETURN(auto reducer, MakeReducer(runtime, model, options));
  return std::make_unique<GyreCompressed>(std::move(reducer), plain, model, compression, runtime.world());
}

}  // namespace gyre::bench
