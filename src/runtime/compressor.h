// Compressor: a reducer's compression: which gradients it covers, which parts of the plan go compressed, and the
// operation for each that does. All ranks come to the same choices.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fusion/gradients.h"
#include "fusion/layout.h"
#include "fusion/plan.h"
#include "gyre/communicator.h"
#include "gyre/reducer.h"
#include "runtime/call_sequence.h"
#include "runtime/codec_device.h"
#include "runtime/compressed_exchange.h"
#include "runtime/compression_cost.h"

namespace gyre::internal {

// What a reducer was asked for, by its options or else by GYRE_COMPRESSION.
struct CompressionRequest {
  Compression compression = NoCompression{};
  bool always = false;

  bool asked() const { return !std::holds_alternative<NoCompression>(compression); }
};

// `variable`: GYRE_COMPRESSION. kInvalidArgument names what is wrong, there or in the options.
absl::StatusOr<CompressionRequest> RequestOf(const ReducerOptions& options, const std::string& variable);

// All options in words: ranks compare them.
std::string Describe(const CompressionRequest& request);

// Where nobody says: 8 MiB; of sparse codecs over hosts more, for their exchange takes latency rather than bandwidth.
int64_t DefaultBucketBytes(const CompressionRequest& request, int hosts);

// Not thread-safe: used between steps, and by whoever drives the step.
class Compressor {
 public:
  // Collective over `communicator`, whose state `ranks` is and must outlive it. `shapes`: of `tensors`, which are on
  // `device`. Null where everything goes dense; `use` says why.
  //   kInvalidArgument    a Dgc, and a gradient that is not of kF32
  //   kResourceExhausted  it has no room for what is kept; on other ranks kAborted
  static absl::StatusOr<std::unique_ptr<Compressor>> Create(Communicator& communicator, const CommunicatorState& ranks,
                                                            const CompressionRequest& request,
                                                            const ReducerOptions& options,
                                                            const std::vector<fusion::TensorInfo>& tensors,
                                                            const std::vector<std::vector<int64_t>>& shapes,
                                                            double postscale, std::shared_ptr<CodecDevice> device,
                                                            CompressionUse& use);

  // From now on these are the parts of the plan.
  void Follow(const std::vector<fusion::Part>& parts);

  // Chooses again which parts go compressed, by what calls have taught of the network since, and codecs measured anew:
  // after steps of which IsDue says so. Collective: a message of a few bytes a part. A part changes only where the
  // other way is clearly sooner, and only if all ranks say so.
  bool IsDue(int64_t step) const { return !request_.always && step % kStepsBetweenChoices == 0; }
  absl::Status ChooseAgain(Communicator& communicator, const std::vector<fusion::Part>& parts,
                           const CallOptions& options);

  // Step `number` (1 the first) begins.
  void Restart(int64_t number);

  // Nothing may be launched before all gradients are ready, and LookAtAll has said that it may: what a step sends takes
  // the norm of them all, or is nothing where one is not finite.
  bool waits_for_all() const { return looks_; }

  // Whether the step may launch its parts. Begins to look at all gradients, which are in their buffers, the first time
  // in a step; never waits. What it has yet to wait for then, Awaited says. An error is this rank's own:
  //   kFailedPrecondition  a gradient is not finite and the options refuse it; nothing that is kept has changed
  absl::StatusOr<bool> LookAtAll(const std::vector<fusion::Part>& parts, const fusion::Gradients& gradients);
  std::string Awaited() const { return device_->Awaited(); }

  // The part's gradients are in its buffer, as Gradients::Prepare leaves them: the operation that exchanges them there,
  // whose clock is yet to be started; null: they go dense, with what was kept of them. An error is this rank's own.
  absl::StatusOr<SequenceCall*> Launch(size_t part, const std::vector<fusion::Part>& parts,
                                       const fusion::Gradients& gradients, std::chrono::milliseconds timeout);

  // Does some of the work of a later part, whose gradients are ready, while another's operation waits. False: none is
  // left to do before its Launch.
  bool Prepare(size_t part, const std::vector<fusion::Part>& parts, const fusion::Gradients& gradients);

  // The operation has ended. Lets go of it.
  void Finish();

  bool covers(int tensor) const { return tensors_[static_cast<size_t>(tensor)].covered; }
  bool carries_momentum() const { return momentum_; }

  // Of the step so far.
  int calls() const { return calls_; }
  int64_t sent_bytes() const { return sent_bytes_; }

  // Block.
  absl::StatusOr<std::vector<std::byte>> Save();
  absl::Status Restore(std::span<const std::span<const std::byte>> saved);

 private:
  static constexpr int64_t kStepsBetweenChoices = 64;

  Compressor(const CommunicatorState& ranks, CompressionRequest request, std::vector<ExchangeTensor> tensors,
             std::shared_ptr<CodecDevice> device, std::unique_ptr<CompressedExchange> exchange,
             const NetworkShape& network);
  bool covers_any(const fusion::Part& part) const;
  double SecondsOf(const fusion::Part& part) const;
  ExchangePart PartOf(const fusion::Part& part, const fusion::Gradients& gradients) const;
  absl::StatusOr<SequenceCall*> Begin(ExchangePart part, std::chrono::milliseconds timeout);
  absl::Status Look(const std::vector<fusion::Part>& parts, const fusion::Gradients& gradients);
  absl::Status CheckFinite(const CodecDevice::Facts& facts) const;
  void BeginStep(double norm);

  const CommunicatorState& ranks_;
  const CompressionRequest request_;
  const std::vector<ExchangeTensor> tensors_;  // by place
  const std::shared_ptr<CodecDevice> device_;
  const std::unique_ptr<CompressedExchange> exchange_;
  NetworkShape network_;
  const bool momentum_;
  const bool refuses_;         // what is not finite, before the step sends anything
  const bool looks_;           // at all gradients first
  double gradient_scale_ = 1;  // of what is given, for its norm
  CodecSpeed speed_;
  std::vector<bool> compressed_;  // by part
  std::vector<bool> prepared_;    // likewise: Prepare has nothing left to do in this step
  int64_t step_ = 0;              // the number of this one
  int64_t steps_before_ = 0;      // of those, made by the reducer whose state was restored
  std::vector<int> looked_at_;    // those that a look is under way at, or was; empty before
  bool begun_ = false;
  std::optional<SequenceCall> call_;
  bool dense_ = false;  // call_ is of a part that goes dense
  int calls_ = 0;
  int64_t sent_bytes_ = 0;
};

}  // namespace gyre::internal
