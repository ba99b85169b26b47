// GradientReducer: averages (or sums) a model's gradients over all ranks, step after step, while the backward pass is
// still computing.
//
//   ASSIGN_OR_RETURN(auto reducer, gyre::GradientReducer::Create(runtime->world()));
//   for (Parameter& p : parameters) ASSIGN_OR_RETURN(p.index, reducer->Register(p.name, p.shape));
//   RETURN_IF_ERROR(reducer->Start());
//   for each step:
//     backward pass: writes a gradient to reducer->gradient(p.index), calls reducer->Ready(p.index)
//     ASSIGN_OR_RETURN(const gyre::StepSummary step, reducer->Wait());
//     update the weights with the averages, which are where the gradients were
//
// Gradients are matched by name: ranks may register them, and have them ready, in any order. They travel in buckets in
// the order of a plan that all ranks share. The first plan is made from the order in which rank 0 registered, reversed;
// after four steps, from the times at which gradients became ready and from what an allreduce costs, such that the
// least is left to do when the last one is ready; then it stays (unless others are tried: ReducerOptions::tune). From
// then on a step has no message but the gradients'. A plan can be saved and given back (ReducerOptions::plan): equal
// inputs then give equal bits on the same ranks and hosts (over several of these, with GYRE_ALGORITHMS=nominal or a
// forced allreduce).
//
// Gradients may be on a GPU (Register): what was not given in gradient(index) is packed by a kernel; buckets are of
// ReducerOptions::bucket_bytes, in the order in which gradients became ready on the host, as what the GPU does is
// later.
//
// Threads: Ready and Missing may be called from any thread; everything else by one thread at a time. The first Ready of
// a step must come after the Wait of the step before has returned.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/communicator.h"
#include "gyre/compression.h"
#include "gyre/export.h"
#include "gyre/rows.h"
#include "gyre/tensor.h"

namespace gyre {

// All of them but timeout must be equal on all ranks; Start finds out.
struct ReducerOptions {
  ReduceOp op = ReduceOp::kAverage;  // or kSum
  double prescale = 1.0;             // result = postscale * op over ranks of (prescale * gradient)
  double postscale = 1.0;

  // Global-norm clipping: where the Euclidean norm of all results together is above this, all are scaled down to it.
  std::optional<double> max_norm = std::nullopt;

  // A step whose results hold an infinity or a NaN says so (StepSummary::skipped) on all ranks alike. It is decided
  // from the results and costs no message, but a pass over them. Sparse codecs send 0 in place of what is not finite.
  bool skip_non_finite = false;

  // Gradients of so many micro-batches are added up on each rank before they are reduced: each ends in a Wait, and only
  // that of the last one communicates. kAverage divides by this too.
  int accumulate = 1;

  // Forces buckets of so many bytes at most, or one tensor, in the order of readiness: the plan stays after two steps.
  // Default: GYRE_FUSION_BYTES; without that, buckets are planned by measured times and costs, or where gradients are
  // compressed or on a GPU, are of 8 MiB (of 64 MiB, for sparse compression over several hosts).
  std::optional<int64_t> bucket_bytes = std::nullopt;

  // What plan() gave once, for the same gradients: no planning. Empty: as described above. A plan by need
  // (`priorities`) is refused by Start where gradients are compressed or on a GPU.
  std::string plan = {};

  // Where buckets are planned by cost, finer and coarser plans, and then buckets of fixed sizes, are tried in the steps
  // that follow, in turns of 6 steps each with the plan in use. One takes its place if it was faster by more than 5 %
  // in 3 of 5 rounds, and else is not tried again. What counts is the slowest rank's time from a step's first gradient
  // to the end of Wait: a message each turn, none after the last. There are at most 6 trials, of 36 to 60 steps; one
  // that takes half as long again ends after 12. Which plan wins depends on times: equal inputs need not give equal
  // bits. kInvalidArgument beside `plan` or `bucket_bytes`; nothing happens with GYRE_FUSION_BYTES, or where gradients
  // are compressed or on a GPU.
  bool tune = false;

  // Where buckets are planned by cost and the program waits for gradients one by one (WaitFor): they take turns on the
  // network by when each is needed, and large ones travel in slices, so that what the first layers need overtakes
  // them; unless a model of costs says that this is worth less than 1 % of a step. False: the order of readiness.
  bool priorities = true;

  // Of gradients on a GPU: once the plan stays, what is queued for a bucket is captured into a CUDA graph after one
  // step, and from then on launched by one call, where ranks exchange by NCCL or there is one (docs/gpu.md). Off until
  // it is asked for: it has not run on a GPU yet. Nothing is captured where gradients are compressed, nor of row
  // gradients. In that step's Wait no other thread may wait for the whole GPU or its context (cudaDeviceSynchronize, or
  // whatever calls it): CUDA refuses that, and the capture is spoilt. It is tried once: where a rank cannot, all go on
  // without, with a warning, unless it is NCCL that fails, which ends the reducer. One reducer of a runtime has graphs
  // on a GPU at a time: one that comes to that step while another has goes on without. The same on all ranks.
  bool graphs = false;

  // How kF32 gradients of two dimensions and 1024 elements or more travel (a Dgc has limits of its own); all others go
  // as they are, or, if kF32 and in a bucket that a sparse codec compresses, at the width of its `values`, what
  // rounding takes away being sent later. All ranks get the same bits. Default: GYRE_COMPRESSION ("dgc:0.999",
  // "int8:always"), or nothing. Of gradients that a Dgc covers, results are velocities: see carries_momentum.
  std::optional<Compression> compression = std::nullopt;

  // Also where it is slower: between ranks of one host, and in buckets that a model of the network takes to be sooner
  // there uncompressed. GYRE_COMPRESSION says so with ":always" at its end.
  bool always_compress = false;

  std::optional<std::chrono::milliseconds> timeout = std::nullopt;  // default: the runtime's operation_timeout
};

// Why gradients travelled as they did.
enum class CompressionUse : uint8_t {
  kNotAsked,  // no compression was asked for
  kOneHost,   // dense: all ranks share memory, which beats any codec
  kNoneFits,  // dense: no gradient is large enough, or they are excluded
  kByCost,    // each bucket as is sooner there by the model of the network, of which StepSummary::compressed_calls
  kAsForced,  // compressed, as ReducerOptions::always_compress asks
};
GYRE_EXPORT std::string_view CompressionUseText(CompressionUse use);  // in words

// What became of a step.
struct StepSummary {
  int64_t step = 0;      // 1, 2, ...: of reduced steps
  bool reduced = true;   // false: a micro-batch that was only added up; what follows is 0 then
  bool skipped = false;  // skip_non_finite found cause: leave the weights alone
  int64_t bytes = 0;     // of all gradients, in the dtypes they were registered with; of rows, those it sent
  int buckets = 0;       //
  int calls = 0;         // collective operations
  // Collective operations that carried no gradients: 0 once the plan stays, but for every 64th step where compression
  // is chosen by cost, and chosen again; and for the first step by that plan, where it is captured (graphs).
  int control_messages = 0;
  double exposed_seconds = 0;  // how long Wait and WaitFor took to reduce what computation had not hidden

  // Of the ranks that this one has waited for, from when its own gradients of a bucket were there until the last rank
  // came to that bucket: the one that it waited for longest, and how long in this step. -1: for none. Each rank knows
  // its own waits only; the latest has none. Between hosts that takes the network's latency in, and who waited may have
  // been waited for: a rank sees those that it exchanges with. Not known of compressed calls, rows and GPUs.
  int waiting_for = -1;
  double waited_seconds = 0;

  std::optional<double> norm;  // of all results before clipping; only with max_norm or skip_non_finite
  CompressionUse compression = CompressionUse::kNotAsked;
  int compressed_calls = 0;      // of `calls`: those whose gradients were compressed
  int64_t compressed_bytes = 0;  // that this rank's part of those gradients became: what it is the sender of; through
                                 // parameter servers, all that it pushed
};

class GYRE_EXPORT GradientReducer {
 public:
  // Collective over `communicator`: the reducer works on a communicator of its own with the same ranks, so that it
  // never gets mixed up with the program's calls. `communicator` may be destroyed before it; the runtime must not be
  // shut down before it. kInvalidArgument for an option out of its range.
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Create(Communicator& communicator,
                                                                 const ReducerOptions& options = {});
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Before Start. Returns the gradient's index on this rank: 0, 1, ... A shape may have dimensions of 0; no dimensions
  // are one element. Dtypes are those that gradients travel in: kF32, kF64, kF16 or kBF16. `device`: where it is to be,
  // and on a GPU, on which stream it is written and its result read; the same GPU for all gradients of this rank.
  // kInvalidArgument for a name that is taken, a negative dimension, another dtype, another device.
  absl::StatusOr<int> Register(std::string_view name, std::span<const int64_t> shape, DType dtype = DType::kF32,
                               const Device& device = {});

  // Before Start. A gradient that is given as some of the shape[0] rows of its parameter (ReadyRows), as an embedding's
  // is. Returns its index, of the same series. It has no memory in buckets. `device`: where its values are; on a GPU
  // its results are read on that stream. Errors as Register; kInvalidArgument also for a shape without dimensions.
  absl::StatusOr<int> RegisterRows(std::string_view name, std::span<const int64_t> shape, DType dtype = DType::kF32,
                                   const Device& device = {});

  // Collective: agrees with all ranks on the set of gradients and on the options, makes their memory, and where buckets
  // are to be planned by cost, times a few allreduces, of 16 KiB to 8 MiB, until one takes 10 ms.
  //   kInvalidArgument     the first difference between two ranks, named with both ranks, on all ranks; or a plan
  //                        (ReducerOptions::plan) for other gradients; or one by need (ReducerOptions::priorities)
  //                        where gradients are compressed or on a GPU
  //   kDataLoss            the plan is no plan
  //   kResourceExhausted   the arena, or the GPU, has no room
  //   kUnimplemented       gradients on a GPU where CUDA cannot be used: docs/gpu.md; likewise kUnavailable
  absl::Status Start();

  // After Start: where gradient `index` lives in memory that the host's ranks share, or on the GPU, zero at first. What
  // is written there travels without a copy, and the result takes its place. Stays where it is as long as the reducer
  // lives. Other ranks write to it from Ready until its result was waited for: leave it alone then. An empty view for
  // an unknown index.
  TensorView gradient(int index) const;

  // After Wait or WaitFor, and until the gradient is ready again: where the result is, which is where the gradient was
  // given. An empty view for an unknown index.
  TensorView result(int index) const;

  // Says that the gradient is there: in gradient(index), or in memory of the program's own, where the result will be as
  // well. The program's memory has as many elements; its dtype may be another floating-point one, and is converted on
  // its way in and out. It must stay as it is until Wait returns. Communication starts as soon as a bucket is full.
  // On a GPU, the gradient is what is there once all has been done that was queued before on its stream, which is the
  // view's, or else that of Register; after Wait, these streams see the results. The host waits for the GPU only where
  // max_norm or skip_non_finite need a number. kF64 is not converted there, nor anything where gradients accumulate.
  // Does not block for longer than a copy.
  //   kInvalidArgument      an unknown index, a view of another size
  //   kFailedPrecondition   before Start; this step has this gradient already (says which); the reducer has failed
  absl::Status Ready(int index);
  absl::Status Ready(int index, TensorView view);

  // This rank has no gradient for this parameter in this step: it contributes zeros, and the result is in
  // gradient(index); or no rows. Errors as Ready.
  absl::Status Missing(int index);

  // Says that the gradient of RegisterRows is there: these rows of it, in any order, with shape[1] * shape[2] * ...
  // elements each in `values`; all others are zero. Rows that come more than once are added up, on one rank and over
  // all of them, always in the same order (by rank, then as given), so that all ranks get the same bits. Both are
  // copied before it returns. `values` may have another floating-point dtype. No rows are fine.
  // On a GPU are the values, the numbers are the host's. The values are those that are there once all has been done
  // that was queued before on their stream, on which they may be overwritten from then on. They are added up on the
  // host, and the sums come back to the GPU: rows are to be few there. Rows travel when their bucket is full, behind
  // its dense gradients, in two calls for all row gradients of the bucket: how many rows each rank has of each, and the
  // rows. Every rank gets all of them: if a step touches more than a small part of the parameter, a dense gradient
  // costs less. Errors as Ready; kInvalidArgument also names a row that there is not: the gradient is then not ready.
  absl::Status ReadyRows(int index, std::span<const int64_t> rows, ConstTensorView values);

  // After a Wait or WaitFor that reduced it, and until the next one that does: the result of a row gradient, which is
  // the rows that any rank gave, each once, in rising order, averaged (or summed) and clipped as dense gradients are.
  // An average is over all ranks, not over those that gave the row. On a GPU, the values are to be read on the stream
  // of RegisterRows. Empty for another index.
  RowsView result_rows(int index) const;

  // The same as all elements of the parameter, zeros between them. `dense` has as many elements; its dtype may be
  // another floating-point one, and it is on the device of RegisterRows, on any stream. kInvalidArgument if not, or for
  // another index; and on a GPU for kF64 from another dtype, or another from it. On a GPU it is queued on that
  // stream; the call blocks for the copy of a table of the rows to the GPU, behind nothing that is queued.
  absl::Status ScatterRows(int index, TensorView dense) const;

  // Waits for one gradient: returns as soon as its result is there (result(index)), helping to reduce what comes
  // before it, so that its layer's update and the next forward pass begin while others still travel. Wait still ends
  // the step, before the next one's first Ready:
  //
  //   for each layer, the first one first:
  //     ASSIGN_OR_RETURN(const bool update, reducer->WaitFor(p.index)) for each of its parameters p
  //     update its weights, and carry out its forward pass
  //   Wait, and the backward pass with its Readys
  //
  // All gradients of the step must have been given, or be given by other threads meanwhile: the result takes what
  // shares its bucket, and all that comes before it in the plan; what was not given for timeout is late, as in Wait.
  // Whether the weights are to be updated: not in a step that is skipped, nor in a micro-batch that is only added up.
  // With max_norm or skip_non_finite, and for row gradients, it waits for all results. Once a program has called it in
  // the steps that are recorded, buckets are planned by when each gradient is needed (ReducerOptions::priorities).
  // By the thread that calls Wait. Errors are Wait's, and kInvalidArgument for an unknown index.
  absl::StatusOr<bool> WaitFor(int index);

  // Ends the step: helps to reduce what is left and returns when all results are there. Other threads may still be
  // calling Ready. After an error the reducer is unusable, results are undefined, and every later call says why.
  //   kAborted            a rank was lost, or its reducer failed
  //   kDeadlineExceeded   names the ranks that did not come, or the gradients of this rank that were never ready
  absl::StatusOr<StepSummary> Wait();

  // What was asked for, by the options or GYRE_COMPRESSION.
  Compression compression() const;

  // After Start: whether the result of gradient `index` is a velocity (a Dgc's, which has momentum in it) rather than a
  // gradient: the weights are then to be updated without momentum. The same on all ranks.
  bool carries_momentum(int index) const;

  // What this rank keeps for later steps of what compression did not send: another on every rank. Between steps.
  // RestoreCompression takes what several ranks saved, of the same gradients: what N ranks saved goes on among M if
  // rank r takes that of those of the N whose number is r modulo M. Where M is N, training goes on to the bit, if the
  // plan is the same (ReducerOptions::plan): the number of the step, from which lots and a warm-up follow, and what
  // else ranks have in common are part of it. With another number these begin anew. On failure nothing is changed. Of
  // gradients on a GPU both wait for it; where it fails, nothing is saved (the log says why), which RestoreCompression
  // refuses.
  //   kDataLoss             cut short, altered, or not such a state
  //   kInvalidArgument      of other gradients or another compression; says which
  //   kFailedPrecondition   before Start
  std::vector<std::byte> SaveCompression() const;
  absl::Status RestoreCompression(std::span<const std::span<const std::byte>> saved);

  int size() const;  // gradients

  // Whether the plan stays: after two or four steps (with ReducerOptions::tune after the last trial), or with
  // ReducerOptions::plan from Start on.
  bool planned() const;

  // The plan in use, as text to be kept and given back. REQUIRES: Start was OK.
  std::string plan() const;

 private:
  class State;
  friend class DistributedOptimizer;
  explicit GradientReducer(std::shared_ptr<State> state);
  Communicator& communicator() const;  // its own

  std::shared_ptr<State> state_;
};

}  // namespace gyre
