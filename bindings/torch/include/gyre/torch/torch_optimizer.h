// TorchOptimizer: any of LibTorch's optimizers on every rank, fed with gradients that a GradientReducer has averaged
// over all of them while the backward pass went on. Header-only: it needs LibTorch where it is included, and libgyre
// knows nothing of it.
//
//   Net net;
//   torch::optim::Adam optimizer(net->parameters());
//   ASSIGN_OR_RETURN(auto distributed, gyre::TorchOptimizer::Create(runtime->world(), *net, optimizer));
//   for each batch, of which this rank has its share:
//     torch::nn::functional::cross_entropy(net->forward(images), labels).backward();
//     RETURN_IF_ERROR(distributed->Step().status());
//
// Gradients live where the reducer wants them: the .grad of every parameter is a view of memory that the host's ranks
// share, or of the reducer's on the GPU, so that nothing is copied. A hook on each parameter's accumulation calls
// Ready.
//
// On a GPU LibTorch queues work on the stream that is current on the thread. One stream is given to Create, and has to
// be the current one there, in Step and in BroadcastBuffers: LibTorch accumulates gradients on what was current in
// Create, whatever the other streams of the forward and the backward pass. What LibTorch's device-independent part can
// tell of streams is checked: other ones end in an error instead of wrong gradients.
//
//   auto distributed = gyre::TorchOptimizer::Create(world, *net, optimizer, {},
//                                                   c10::cuda::getCurrentCUDAStream(gpu).stream());
//
// Threads: one at a time. A backward pass may use whatever threads LibTorch has.
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/communicator.h"
#include "gyre/reducer.h"
#include "gyre/status_macros.h"
#include "gyre/tensor.h"
#include "gyre/torch/tensor_traits.h"

namespace gyre {

class TorchOptimizer {
 public:
  // Collective over `communicator`. All three must outlive this object, and the module's parameters must stay where
  // they are (no module.to(...) from here on). When it returns, all ranks have rank 0's parameters, buffers and state
  // of the optimizer, whose options are each rank's own and to be the same, and every gradient is zero.
  // Parameters are on the host, or on one GPU, buffers there or on the host. `stream` is the cudaStream_t that is
  // current on that GPU, by LibTorch, on this thread; null: the default stream, which is current where the program has
  // not set another. The module has taken part in no graph that still exists, unless that was on this stream.
  //   kInvalidArgument     a parameter that is not a dense floating-point tensor on the host or a CUDA GPU, is not on
  //                        the device of those before it, or that the optimizer has and the module has not; a buffer
  //                        on another GPU; one of `stream` and LibTorch's current stream is the default one, the other
  //                        is not; modules that differ between ranks (GradientReducer::Start); a Dgc, whose results
  //                        are velocities
  //   kInternal            LibTorch threw; with its words
  static absl::StatusOr<std::unique_ptr<TorchOptimizer>> Create(Communicator& communicator,
                                                                const torch::nn::Module& module,
                                                                torch::optim::Optimizer& optimizer,
                                                                const ReducerOptions& options = {},
                                                                void* stream = nullptr);

  // The parameters' gradients are undefined from then on. Amid a step, it ends that of the other ranks too.
  ~TorchOptimizer();
  TorchOptimizer(const TorchOptimizer&) = delete;
  TorchOptimizer& operator=(const TorchOptimizer&) = delete;

  // After one backward pass: waits for the averages, lets the optimizer update the parameters, unless the step was
  // skipped or only added up (StepSummary), and sets all gradients to zero. A parameter that the pass did not reach
  // contributes zeros; its average is that of the others'.
  // On a GPU what the optimizer does is queued when it returns.
  // Errors are GradientReducer's, kInternal if the optimizer throws; kFailedPrecondition after a second backward pass
  // in one step (add up with ReducerOptions::accumulate), and where a gradient was accumulated, or Step is called, on
  // another stream than Create's. After an error it is unusable, and others wait for this rank until they reach their
  // deadlines or it is destroyed.
  absl::StatusOr<StepSummary> Step();

  // Collective: all ranks get rank 0's buffers, which otherwise follow what each rank sees (a batch norm's statistics).
  // kFailedPrecondition where it is called on another stream than Create.
  absl::Status BroadcastBuffers();

  GradientReducer& reducer() { return *reducer_; }

 private:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    at::Tensor gradient = {};  // the reducer's memory
    int index = 0;             // the reducer's
    std::shared_ptr<torch::autograd::Node> accumulator = {};
    uintptr_t hook = 0;
    bool arrived = false;  // in this step
  };

  TorchOptimizer(Communicator& communicator, const torch::nn::Module& module, torch::optim::Optimizer& optimizer,
                 void* stream)
      : communicator_(communicator), module_(module), optimizer_(optimizer), stream_(stream) {}

  template <typename Body>
  static absl::Status Try(const char* what, Body&& body);

  absl::Status Collect();
  absl::Status CheckOptimizer() const;
  absl::Status Register(const ReducerOptions& options);
  c10::Stream CurrentStream() const;
  absl::Status FindStream();
  absl::Status CheckStream(const char* what) const;
  absl::Status BroadcastTensor(const std::string& name, const at::Tensor& tensor);
  absl::Status BroadcastOptimizer();
  void Attach();
  void Arrive(Parameter& parameter);

  Communicator& communicator_;
  const torch::nn::Module& module_;
  torch::optim::Optimizer& optimizer_;
  std::unique_ptr<GradientReducer> reducer_;
  std::vector<Parameter> parameters_;
  at::Device device_ = at::kCPU;                                     // of all parameters
  void* const stream_;                                               // there
  c10::Stream current_{c10::Stream::DEFAULT, at::Device(at::kCPU)};  // the same, as LibTorch calls it
  std::mutex mutex_;                                                 // for what follows
  absl::Status failed_;                                              // the first error of a hook
};

inline absl::StatusOr<std::unique_ptr<TorchOptimizer>> TorchOptimizer::Create(Communicator& communicator,
                                                                              const torch::nn::Module& module,
                                                                              torch::optim::Optimizer& optimizer,
                                                                              const ReducerOptions& options,
                                                                              void* stream) {
  std::unique_ptr<TorchOptimizer> created(new TorchOptimizer(communicator, module, optimizer, stream));
  RETURN_IF_ERROR(created->Collect());
  RETURN_IF_ERROR(created->CheckOptimizer());
  RETURN_IF_ERROR(created->Register(options));
  for (const Parameter& parameter : created->parameters_) {
    RETURN_IF_ERROR(created->BroadcastTensor(parameter.name, parameter.tensor));
  }
  RETURN_IF_ERROR(created->BroadcastBuffers());
  RETURN_IF_ERROR(created->BroadcastOptimizer());
  RETURN_IF_ERROR(Try("gradients", [&] { created->Attach(); }));
  return created;
}

inline TorchOptimizer::~TorchOptimizer() {
  for (Parameter& parameter : parameters_) {
    if (parameter.accumulator == nullptr) continue;
    parameter.accumulator->del_post_hook(parameter.hook);
    parameter.tensor.mutable_grad() = at::Tensor();
  }
}

inline absl::StatusOr<StepSummary> TorchOptimizer::Step() {
  RETURN_IF_ERROR(CheckStream("Step is called"));
  {
    const std::lock_guard lock(mutex_);
    if (!failed_.ok()) return failed_;
  }
  for (const Parameter& parameter : parameters_) {
    if (!parameter.arrived) RETURN_IF_ERROR(reducer_->Missing(parameter.index));
  }
  ASSIGN_OR_RETURN(const StepSummary summary, reducer_->Wait());
  RETURN_IF_ERROR(Try("a step of the optimizer", [&] {
    // The program may have put others there, or none: what the optimizer takes must be the same on all ranks.
    for (Parameter& parameter : parameters_) {
      if (!parameter.tensor.grad().is_same(parameter.gradient)) parameter.tensor.mutable_grad() = parameter.gradient;
    }
    if (summary.reduced && !summary.skipped) optimizer_.step();
    for (Parameter& parameter : parameters_) {
      parameter.gradient.zero_();
      parameter.arrived = false;
    }
  }));
  return summary;
}

inline absl::Status TorchOptimizer::BroadcastBuffers() {
  RETURN_IF_ERROR(CheckStream("BroadcastBuffers is called"));
  for (const auto& buffer : module_.named_buffers()) {
    if (buffer.value().defined()) RETURN_IF_ERROR(BroadcastTensor(buffer.key(), buffer.value()));
  }
  return absl::OkStatus();
}

// No exception of LibTorch's leaves this header.
template <typename Body>
absl::Status TorchOptimizer::Try(const char* what, Body&& body) {
  try {
    const torch::NoGradGuard no_grad;
    body();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InternalError(std::string("LibTorch: ") + what + ": " + error.what());
  }
}

// A parameter that several modules share counts once, by its first name.
inline absl::Status TorchOptimizer::Collect() {
  std::set<const void*> known;
  for (const auto& named : module_.named_parameters()) {
    const at::Tensor& tensor = named.value();
    if (!tensor.defined() || !tensor.requires_grad() || !known.insert(tensor.unsafeGetTensorImpl()).second) continue;
    parameters_.push_back({.name = named.key(), .tensor = tensor});
  }
  return absl::OkStatus();
}

// One that is not reduced would be another on each rank before long.
inline absl::Status TorchOptimizer::CheckOptimizer() const {
  std::set<const void*> known;
  for (const Parameter& parameter : parameters_) known.insert(parameter.tensor.unsafeGetTensorImpl());
  for (const auto& group : optimizer_.param_groups()) {
    for (const at::Tensor& tensor : group.params()) {
      if (!tensor.requires_grad() || known.count(tensor.unsafeGetTensorImpl()) > 0) continue;
      std::ostringstream shape;
      shape << tensor.sizes();
      return absl::InvalidArgumentError("the optimizer has a parameter of shape " + shape.str() +
                                        " that the module has not");
    }
  }
  return absl::OkStatus();
}

inline absl::Status TorchOptimizer::Register(const ReducerOptions& options) {
  ASSIGN_OR_RETURN(reducer_, GradientReducer::Create(communicator_, options));
  if (std::holds_alternative<Dgc>(reducer_->compression())) {
    return absl::InvalidArgumentError(
        "dgc sends velocities, to which this optimizer would apply its own rule again: use DistributedOptimizer, or "
        "another codec");
  }
  for (Parameter& parameter : parameters_) {
    ASSIGN_OR_RETURN(const TensorTraits traits, TensorTraitsOf(parameter.name, parameter.tensor, stream_));
    const at::IntArrayRef sizes = parameter.tensor.sizes();
    ASSIGN_OR_RETURN(parameter.index,
                     reducer_->Register(parameter.name, {sizes.data(), sizes.size()}, traits.dtype, traits.device));
  }
  RETURN_IF_ERROR(FindStream());
  return reducer_->Start();
}

inline c10::Stream TorchOptimizer::CurrentStream() const {
  return c10::impl::getDeviceGuardImpl(device_.type())->getStream(device_);
}

// LibTorch tells the number of a stream, which is 0 for the default one, and no more of it without CUDA's headers.
inline absl::Status TorchOptimizer::FindStream() {
  if (parameters_.empty()) return absl::OkStatus();
  device_ = parameters_.front().tensor.device();
  RETURN_IF_ERROR(Try("the current stream", [&] { current_ = CurrentStream(); }));
  if ((current_.id() == 0) == (stream_ == nullptr)) return absl::OkStatus();
  std::ostringstream text;
  text << "LibTorch's current stream on " << device_ << " is " << (current_.id() == 0 ? "" : "not ")
       << "the default one; the one that was given is" << (stream_ == nullptr ? "" : " not");
  return absl::InvalidArgumentError(text.str());
}

// Between what is queued on other streams and what the reducer does there is no order.
inline absl::Status TorchOptimizer::CheckStream(const char* what) const {
  if (CurrentStream() == current_) return absl::OkStatus();
  return absl::FailedPreconditionError(std::string(what) +
                                       " on another stream than was LibTorch's current one in Create");
}

inline absl::Status TorchOptimizer::BroadcastTensor(const std::string& name, const at::Tensor& tensor) {
  ASSIGN_OR_RETURN(const TensorTraits traits, TensorTraitsOf(name, tensor, stream_));
  if (traits.device.on_gpu() && tensor.device() != device_) {
    std::ostringstream text;
    text << "tensor \"" << name << "\" is on " << tensor.device() << ", the parameters are on " << device_;
    return absl::InvalidArgumentError(text.str());
  }
  at::Tensor contiguous;
  RETURN_IF_ERROR(Try("a copy", [&] { contiguous = tensor.detach().contiguous(); }));
  RETURN_IF_ERROR(communicator_.Broadcast({contiguous.data_ptr(), contiguous.numel(), traits.dtype, traits.device}, 0));
  if (tensor.is_contiguous()) return absl::OkStatus();
  return Try("a copy", [&] { tensor.detach().copy_(contiguous); });
}

inline absl::Status TorchOptimizer::BroadcastOptimizer() {
  std::string bytes;
  if (communicator_.rank() == 0) {
    RETURN_IF_ERROR(Try("saving the optimizer", [&] {
      torch::serialize::OutputArchive archive;
      optimizer_.save(archive);
      std::ostringstream stream;
      archive.save_to(stream);
      bytes = stream.str();
    }));
  }
  std::vector<int64_t> size = {static_cast<int64_t>(bytes.size())};
  RETURN_IF_ERROR(communicator_.Broadcast(size, 0));
  bytes.resize(static_cast<size_t>(size[0]));
  RETURN_IF_ERROR(communicator_.Broadcast({bytes.data(), size[0], DType::kU8}, 0));
  if (communicator_.rank() == 0) return absl::OkStatus();
  return Try("loading rank 0's optimizer", [&] {
    std::istringstream stream(bytes);
    torch::serialize::InputArchive archive;
    archive.load_from(stream, device_);  // rank 0's may be on a GPU of another number
    optimizer_.load(archive);
  });
}

inline void TorchOptimizer::Attach() {
  for (Parameter& parameter : parameters_) {
    const TensorView home = reducer_->gradient(parameter.index);
    const at::Device device = parameter.tensor.device();
    parameter.gradient = at::for_blob(home.data, parameter.tensor.sizes())
                             .target_device(device)
                             .options(at::TensorOptions(device).dtype(parameter.tensor.dtype()))
                             .make_tensor();
    parameter.tensor.mutable_grad() = parameter.gradient;
    parameter.accumulator = torch::autograd::impl::grad_accumulator(parameter.tensor);
    using Tensors = torch::autograd::variable_list;
    parameter.hook = parameter.accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [this, &parameter](const Tensors& outputs, const Tensors& /*inputs*/) {
          Arrive(parameter);
          return outputs;
        }));
  }
}

// The gradient has been accumulated, on a thread of the backward pass.
inline void TorchOptimizer::Arrive(Parameter& parameter) {
  const at::Tensor& given = parameter.tensor.grad();
  absl::Status status = CheckStream("its gradient was accumulated");
  if (!status.ok()) {
    status = absl::FailedPreconditionError("parameter \"" + parameter.name + "\": " + std::string(status.message()));
  }
  if (status.ok() &&
      !given.is_same(parameter.gradient)) {  // the program, or a pass with create_graph, has put another in its place
    status = Try("a gradient", [&] {
      parameter.gradient.copy_(given.detach());
      parameter.tensor.mutable_grad() = parameter.gradient;
    });
  }
  if (status.ok()) status = reducer_->Ready(parameter.index);
  parameter.arrived = true;
  if (status.ok()) return;
  const std::lock_guard lock(mutex_);
  if (failed_.ok()) failed_ = status;
}

}  // namespace gyre
