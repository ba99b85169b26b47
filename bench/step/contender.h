// StepContender: a way to sum a model's gradients over all ranks while a backward pass makes them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/runtime.h"
#include "models/model.h"
#include "step/sum.h"

namespace gyre::bench {

// All ranks call the same methods in the same order. A step: gradient(i) is written and Ready(i) called for every
// gradient, in the backward order; after Wait, gradient(i) is the sum.
class StepContender {
 public:
  virtual ~StepContender() = default;
  virtual std::string lib() const = 0;
  virtual std::string buffers() const = 0;       // where the gradients lie: "arena" or "plain"
  virtual int64_t copied_bytes() const = 0;      // that a step copies to pack gradients and to unpack sums
  virtual std::span<float> gradient(int i) = 0;  // i: index of the model's parameters
  virtual absl::Status Ready(int i) = 0;
  virtual absl::Status Wait() = 0;

  // Whether it can wait for one gradient before Wait: until gradient(i) is the sum.
  virtual bool waits_for_each() const { return false; }
  virtual absl::Status WaitFor(int) { return absl::OkStatus(); }

  // How gradients travel, as GYRE_COMPRESSION has it.
  virtual std::string compression() const { return "none"; }

  // Whether it does what it will do from now on. The same on all ranks.
  virtual bool settled() const { return true; }

  // Whether sums are rounded, and are those of several steps: they cannot be checked. Prepare, before each step, then
  // fills the gradients.
  virtual bool lossy() const { return false; }
  virtual void Prepare() {}
};

using StepContenders = std::vector<std::unique_ptr<StepContender>>;

// Gradients in memory of the program's own, each allocated by itself as frameworks do.
using PlainGradients = std::vector<std::vector<float>>;
PlainGradients MakePlainGradients(const Model& model);

// Without any communication: what a step would be on one rank. `gradients` outlives it, here and below.
std::unique_ptr<StepContender> MakeComputeAlone(PlainGradients& gradients);

// Gyre's GradientReducer, with its defaults but for the sum. In the arena where `plain` is null. Collective.
struct GyreVariant {
  std::string_view lib = "gyre";
  std::optional<int64_t> bytes = std::nullopt;  // of buckets that are not planned by what they cost
  bool tune = false;                            // ReducerOptions::tune
  bool priorities = true;                       // ReducerOptions::priorities
  bool waits_for_each = true;
};
absl::StatusOr<std::unique_ptr<StepContender>> MakeGyreReducer(Runtime& runtime, const Model& model,
                                                               PlainGradients* plain, const GyreVariant& variant = {});
inline constexpr int64_t kBySizeBytes = 8 << 20;

// The same, compressed: `compression` as GYRE_COMPRESSION has it ("dgc:0.999", "int8:always").
absl::StatusOr<std::unique_ptr<StepContender>> MakeGyreCompressed(Runtime& runtime, const Model& model,
                                                                  PlainGradients* plain,
                                                                  const std::string& compression);

// Gyre, one asynchronous allreduce a gradient. In the arena where `plain` is null.
absl::StatusOr<std::unique_ptr<StepContender>> MakeGyrePerTensor(Runtime& runtime, const Model& model,
                                                                 PlainGradients* plain);

// As MakeGyreReducer with buckets of kBySizeBytes, so that its plan is that of another such, but in a second job of the
// same ranks, which must be on one host, that writes timelines (GYRE_TIMELINE) until it is destroyed; they are then
// removed.
absl::StatusOr<std::unique_ptr<StepContender>> MakeGyreTimeline(Communicator& world, const Model& model,
                                                                PlainGradients* plain);

// A peer, one allreduce a gradient as it becomes ready.
std::unique_ptr<StepContender> MakePerTensor(std::string lib, SumInPlace sum, PlainGradients& gradients);

// A peer, with gradients packed into buckets of `bytes` in the order in which they become ready, and unpacked when a
// bucket was summed.
inline constexpr int64_t kBucketBytes = 25 << 20;
std::unique_ptr<StepContender> MakeBucketed(std::string lib, SumInPlace sum, PlainGradients& gradients,
                                            const Model& model, int64_t bytes);

}  // namespace gyre::bench
