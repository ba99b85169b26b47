// ParameterServerClient's inside: see gyre/parameter_server.h for what it promises.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/process_mark.h"
#include "gyre/parameter_server.h"
#include "ps/process/client.h"
#include "runtime/gpus.h"
#include "runtime/one_gpu.h"
#include "runtime/served_on_gpu.h"
#include "runtime/served_rows.h"

namespace gyre {

class ParameterServerClient::State {
 public:
  // `gpus`: the runtime's.
  State(ps::ClientOptions options, const ParameterServerOptions& given, Consistency consistency,
        std::chrono::milliseconds timeout, internal::Gpus& gpus);

  absl::StatusOr<int> Register(std::string_view name, std::span<float> weights, std::span<const int64_t> shape,
                               const Device& device);
  absl::StatusOr<int> RegisterTable(std::string_view name, int64_t rows, int64_t columns, const RowInitializer& first);
  absl::Status Start();
  std::span<float> gradient(int index) const;

  // `scale`: of the gradients, which are multiplied by it on the host.
  absl::Status Push(TimePoint deadline, float scale = 1);
  absl::Status Pull(TimePoint deadline);
  absl::Status PushPull(float scale);
  absl::Status PullRows(int table, std::span<const int64_t> ids, const TensorView& values);
  absl::Status PushRows(int table, std::span<const int64_t> ids, const ConstTensorView& gradients);
  absl::Status Wait();

  // The weights' gradient becomes what is given, or zeros; on a GPU, in the order of the streams (ServedOnGpu). From
  // any thread, for different weights at once. kInvalidArgument: it is elsewhere than the weights. REQUIRES: as many
  // elements; Start was OK
  absl::Status Give(int index, std::span<const float> gradient, const Device& device);
  absl::Status GiveZeros(int index);

  absl::Status SetLearningRate(float rate);
  float learning_rate() const { return rate_; }
  Consistency consistency() const { return consistency_; }
  int64_t step() const { return step_; }
  int64_t pushed_bytes() const { return pushed_bytes_; }
  int64_t pushed_row_bytes() const { return pushed_row_bytes_; }
  int64_t pulled_bytes() const { return pulled_bytes_; }
  const Compression& compression() const { return options_.worker.compression.compression; }

  // Of a call that begins now.
  TimePoint Deadline() const;

  // The process that it was made in: in a forked child of it, nothing of it may be used or destroyed.
  const ProcessMark& process() const { return process_; }

 private:
  struct Tensor {
    std::span<float> weights{};
    Device device{};
    size_t gradient = 0;  // where it begins among all on the host
    size_t on_gpu = 0;    // which of those on the GPU
  };

  absl::Status CheckStarted() const;
  absl::Status CheckPulled() const;
  std::string NameOf(int index) const;
  absl::Status TakeMemory(TimePoint deadline);
  std::vector<std::span<float>> WeightsOnHost() const;
  void ShareRetained();
  const Tensor& at(int index) const { return tensors_[static_cast<size_t>(index)]; }

  const ProcessMark process_;
  ps::ClientOptions options_;
  const ParameterServerOptions given_;
  const Consistency consistency_;
  const std::chrono::milliseconds timeout_;
  float rate_ = 0;
  int64_t step_ = 0;
  int64_t pushed_bytes_ = 0, pushed_row_bytes_ = 0, pulled_bytes_ = 0;
  internal::OneGpu gpu_;
  std::vector<Tensor> tensors_;        // by index
  size_t elements_ = 0;                // of them all
  std::vector<float> host_gradients_;  // where no weights are on a GPU
  std::span<float> gradients_;         // of all weights, on the host
  internal::ServedRows rows_;
  std::unique_ptr<internal::ServedOnGpu> on_gpu_;  // null: all weights are on the host
  bool to_be_sent_ = false;                        // the step has begun, and the GPU has not got its values
  std::unique_ptr<ps::Client> client_;             // goes first: it writes weights on the host
};

}  // namespace gyre
