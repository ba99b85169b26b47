// ParameterServerClient: training through parameter servers, for jobs whose workers come and go, or differ in speed.
// Workers push gradients; servers, which hold the weights, update them; workers pull them. Start the job with
// `gyrerun --servers K`. docs/parameter_server.md says what holds when processes die.
//
//   ASSIGN_OR_RETURN(auto client, gyre::ParameterServerClient::Create(runtime->world(), gyre::Momentum{}));
//   for (Parameter& p : parameters) ASSIGN_OR_RETURN(p.index, client->Register(p.name, p.weights));
//   RETURN_IF_ERROR(client->Start());             // weights are now those of the servers, rank 0's at first
//   for each step:
//     the backward pass fills client->gradient(p.index) of each
//     RETURN_IF_ERROR(client->PushPull());        // weights are now those of the next step
//
// DistributedOptimizer does the same where its strategy is kParameterServer.
//
// Embeddings, of which a step needs only some rows, are tables, which the servers alone hold:
//
//   ASSIGN_OR_RETURN(const int words, client->RegisterTable("words", 1'000'000'000, 64, gyre::UniformRows{0.05f}));
//   ... Start ...
//   for each step:
//     RETURN_IF_ERROR(client->PullRows(words, ids, values));      // ids.size() x 64 floats
//     RETURN_IF_ERROR(client->PushRows(words, ids, gradients));   // sent with the next Push
//     RETURN_IF_ERROR(client->PushPull());
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/communicator.h"
#include "gyre/compression.h"
#include "gyre/export.h"
#include "gyre/optimizer.h"
#include "gyre/options.h"
#include "gyre/row_initializer.h"
#include "gyre/tensor.h"

namespace gyre {

namespace internal {
class ServerTraining;
}  // namespace internal

// Consistency, staleness, values and snapshot_interval are the same at all workers, or servers refuse those that come
// later. What is unset is taken from GYRE_STRATEGY, and
// failing that is the default given here.
struct ParameterServerOptions {
  std::optional<Consistency> consistency = std::nullopt;  // kBsp
  std::optional<int64_t> staleness = std::nullopt;        // of kSsp, in steps: 4

  // While a server is away, this worker makes up to so many steps with its own updates of what that server holds, none
  // later than 30 s after the first, and then waits: 0. At most 255.
  std::optional<int64_t> local_steps = std::nullopt;

  // Of what is pushed; default: GYRE_COMPRESSION, or none. Each worker keeps what it does not send and sends it later,
  // unless it dies. Of tensors with two dimensions (Register) and 1,024 elements, or as Dgc has it. With a Dgc, whose
  // momentum (and Nesterov's form) must be the rule's, workers accumulate it and servers add up without. PowerSgd is
  // kInvalidArgument, and so are Adam and Adagrad with a Dgc, or weight decay with its momentum.
  std::optional<Compression> compression = std::nullopt;

  // How values come back: weights are what these are rounded to (kF32). What that does to training, and for which
  // links it pays: docs/parameter_server.md.
  std::optional<ValueFormat> values = std::nullopt;

  // How often a server writes a snapshot, and memory for pushes that no snapshot has yet: those a worker still has are
  // not lost when a server dies. The memory counts as if gradients were not compressed.
  std::chrono::milliseconds snapshot_interval{2'000};
  int64_t retain_bytes = int64_t{256} << 20;

  // 1: what a server has acknowledged, the next one has as well, and it survives the loss of a server with its disk,
  // whatever workers retain. For two servers at least. 0.
  std::optional<int64_t> replicas = std::nullopt;

  // Each call's; default: the runtime's operation_timeout.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

// Calls are for one thread at a time. They return by their deadline with
//   kDeadlineExceeded    says which server, or which worker, was waited for
//   kAborted             another process has taken this worker's place
//   kFailedPrecondition  no servers; a server was set up differently by another worker; a call out of its turn; what is
//                        not finite in a gradient that a Dgc refuses, which may be pushed again once it is mended (by a
//                        DistributedOptimizer with a prescale: once all gradients on the host are made anew)
//
// Weights, and rows of tables, may be on a GPU, the same one for all of a client's that are on any: servers, and other
// workers, do not see the difference. The rules of gyre/tensor.h hold, and these are the errors besides:
//   kDeadlineExceeded    says which GPU did not get to the copy of what
//   kInvalidArgument     another GPU; cudaStreamPerThread
//   kFailedPrecondition  a stream is being captured into a graph: nothing was queued on any
//   what opening a GPU says (docs/gpu.md), and errors of the GPU's own, after which the client is of no use
class GYRE_EXPORT ParameterServerClient {
 public:
  // `world`: the runtime's, which must outlive this object. `rule`: what servers update weights with; none: they add up
  // what is pushed. Not collective. Once a runtime: servers hold one model a job, also when its client is gone; a
  // second call returns kFailedPrecondition. kInvalidArgument: an option, or a hyperparameter, that is out of its
  // range.
  static absl::StatusOr<std::unique_ptr<ParameterServerClient>> Create(Communicator& world,
                                                                       const std::optional<OptimizerConfig>& rule,
                                                                       const ParameterServerOptions& options = {});
  ~ParameterServerClient();
  ParameterServerClient(const ParameterServerClient&) = delete;
  ParameterServerClient& operator=(const ParameterServerClient&) = delete;

  // Before Start: float32 weights of any number, which stay the program's, must live as long as this object, and may
  // not move. All workers register the same names and sizes in the same order. Returns 0, 1, 2, ...
  absl::StatusOr<int> Register(std::string_view name, std::span<float> weights);

  // The same with a shape, of as many elements: the above is of one dimension, and travels as it is. `device`: where
  // the weights are, and on a GPU, the stream that they are used on. Start reads and writes them in its order, and
  // each Pull writes them; what the program writes there itself nobody reads.
  absl::StatusOr<int> Register(std::string_view name, std::span<float> weights, std::span<const int64_t> shape,
                               const Device& device = {});

  // Before Start: a table of `rows` x `columns` float32, of which servers keep the rows that were pushed, and make all
  // others whenever they are asked for. At most 2^48 rows of 2^20 columns; names differ from those of weights. All
  // workers register the same tables in the same order. Returns 0, 1, 2, ...
  absl::StatusOr<int> RegisterTable(std::string_view name, int64_t rows, int64_t columns,
                                    const RowInitializer& first = ConstantRows{});

  // Connects, waits for as many workers as the job has the first time, and fills in the weights: rank 0's at first; for
  // a worker that comes back, or late, what training has made of them.
  absl::Status Start();

  // After Start: where the step's gradient goes. Of weights on a GPU it is memory of the client's on that GPU, zeros at
  // first, not the host's to touch, and used in the order of the weights' stream: Push reads what was queued there.
  std::span<float> gradient(int index) const;

  // After Start, or a Pull: rows of a table as they are for this step, one for each of `ids`, in their order, which may
  // have some more than once. Each row is sent once. Waits for servers that are away, whatever local_steps is.
  // `values`: ids.size() x columns of kF32, on the host aligned as floats are; written only if the call succeeds, on a
  // GPU in the order of their stream. At most 64 MiB of different rows from one server. kInvalidArgument: no such table
  // or row, values that are not that, or more rows; kFailedPrecondition: after Push.
  absl::Status PullRows(int table, std::span<const int64_t> ids, TensorView values);

  // After Start: gradients of rows, ids.size() x columns, for the next Push. Equal ids are added up, within a call and
  // over several, in the order given, and go to their server as one row. They are copied: on a GPU, which this call
  // does not wait for, before what is queued on their stream from now on. Servers update the rows that a step has
  // pushed, and no others, as Optimizer::StepRows does. In kBsp with the mean over all workers: who has not pushed a
  // row counts as 0. Errors: as PullRows; for what comes together from several calls, Push returns them. A Push that
  // fails forgets all tables' rows: who pushes again, gives them again.
  absl::Status PushRows(int table, std::span<const int64_t> ids, ConstTensorView gradients);

  // Sends the step's gradients to the servers; returns when they may be written again. In kBsp servers apply the mean
  // over the workers, otherwise each gradient as it comes. Waits until a GPU has those that are there, and rows, copied
  // to the host; where it does not by the deadline, nothing was sent, and the step's gradients may be pushed again.
  absl::Status Push();

  // Waits for the values of the next step, as the consistency has it, in the weights, which are written from Push on.
  // If it fails they are partly of one step, partly of another. Weights on a GPU are written once all values are there,
  // in the order of their streams; the host does not wait for that, and if it fails before, they are what they were.
  absl::Status Pull();

  // Both.
  absl::Status PushPull();

  // Waits until servers have all that was pushed. Nothing is left to wait for after a Pull.
  absl::Status Wait();

  // How much of gradients and values has travelled since Start (in shared memory: was read there), what came to be sent
  // twice once.
  int64_t pushed_bytes() const;
  int64_t pushed_row_bytes() const;  // of these: of tables
  int64_t pulled_bytes() const;

  // The number of the step that the weights are for: how many training has made before, this worker or others. After
  // Start; from 0.
  int64_t step() const;

  // Of the steps that are pushed from now on.
  absl::Status SetLearningRate(float learning_rate);
  float learning_rate() const;

  Consistency consistency() const;
  const Compression& compression() const;  // of what is pushed

 private:
  friend class internal::ServerTraining;
  class State;
  explicit ParameterServerClient(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace gyre
