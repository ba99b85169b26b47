// TorchOptimizer: any of LibTorch's optimizers but LBFGS on every rank, fed with gradients that a GradientReducer has
// averaged over all of them while the backward pass went on. Header-only: it needs LibTorch where it is included, and
// libgyre knows nothing of it.
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
#include <span>
#include <sstream>
#include <string>
#include <unordered_set>
#include <utility>
#include <variant>
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
  // they are (no module.to(...) from here on). When it returns, all ranks have rank 0's parameters (also those that are
  // frozen: requires_grad is false), buffers and state of the optimizer, whose options are each rank's own and to be
  // the same, and every gradient is zero. To train parameters that are frozen or not there yet, make another one then.
  // Trained parameters are on the host, or on one GPU, what is frozen and buffers there or on the host. `stream` is the
  // cudaStream_t that is current on that GPU, by LibTorch, on this thread; null: the default stream, which is current
  // where the program has not set another. The module has taken part in no graph that still exists, unless that was on
  // this stream.
  //   kInvalidArgument     a trained parameter that is not a dense floating-point tensor on the host or a CUDA GPU, or
  //                        not on the device of those before it; in the optimizer, an undefined parameter, one that is
  //                        not the module's, or a frozen one that has a gradient; a frozen one or a buffer whose
  //                        elements Gyre does not know, or on another GPU; one of `stream` and LibTorch's current
  //                        stream is the default one, the other is not; trained parameters that differ between
  //                        ranks (GradientReducer::Start; the others, and buffers, have to be alike); LBFGS, which
  //                        evaluates the loss itself; a Dgc, whose results are velocities
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
  // From the backward pass until it returns, other ranks read and write gradients: the program does neither in between.
  // What it would do there are options: max_norm clips, skip_non_finite looks for NaNs, prescale and postscale scale.
  // On a GPU what the optimizer does is queued when it returns.
  // Errors are GradientReducer's, kInternal if the optimizer throws; kFailedPrecondition after a second backward pass
  // in one step (add up with ReducerOptions::accumulate), where a gradient was accumulated, or Step is called, on
  // another stream than Create's, and where the optimizer has come to update a parameter that is not reduced: one that
  // was frozen in Create, or not the module's. After an error it is unusable, and others wait for this rank until they
  // reach their deadlines or it is destroyed.
  absl::StatusOr<StepSummary> Step();

  // Collective: all ranks get rank 0's buffers, which otherwise follow what each rank sees (a batch norm's statistics).
  // kFailedPrecondition where it is called on another stream than Create.
  absl::Status BroadcastBuffers();

  GradientReducer& reducer() { return *reducer_; }

 private:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    std::vector<int64_t> shape;
    at::Tensor gradient = {};  // the reducer's memory
    int index = 0;             // the reducer's
    std::shared_ptr<torch::autograd::Node> accumulator = {};
    uintptr_t hook = 0;
    bool arrived = false;  // in this step
  };

  using NamedTensors = torch::OrderedDict<std::string, at::Tensor>;

  TorchOptimizer(Communicator& communicator, const torch::nn::Module& module, torch::optim::Optimizer& optimizer,
                 void* stream)
      : communicator_(communicator), module_(module), optimizer_(optimizer), stream_(stream) {}

  template <typename Body>
  static absl::Status Try(const char* what, Body&& body);

  static std::vector<std::pair<std::string, at::Tensor>> Distinct(const NamedTensors& all);
  absl::Status Collect();
  std::string Stray() const;
  absl::Status CheckOptimizer(absl::StatusCode code) const;
  absl::Status Register(const ReducerOptions& options);
  c10::Stream CurrentStream() const;
  absl::Status FindStream();
  absl::Status CheckStream(const char* what) const;
  absl::Status BroadcastAll(NamedTensors (torch::nn::Module::*all)(bool) const);
  absl::Status BroadcastTensor(const std::string& name, const at::Tensor& tensor);
  absl::Status BroadcastOptimizer();
  void Attach();
  void Arrive(Parameter& parameter);

  Communicator& communicator_;
  const torch::nn::Module& module_;
  torch::optim::Optimizer& optimizer_;
  std::unique_ptr<GradientReducer> reducer_;
  std::vector<Parameter> parameters_;                                // those that are trained
  std::unordered_set<const void*> trained_;                          // the same, by their TensorImpl
  at::Device device_ = at::kCPU;                                     // of all of them
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
  if (dynamic_cast<const torch::optim::LBFGS*>(&optimizer) != nullptr) {
    return absl::InvalidArgumentError("LBFGS evaluates the loss itself, by several backward passes a step");
  }
  std::unique_ptr<TorchOptimizer> created(new TorchOptimizer(communicator, module, optimizer, stream));
  RETURN_IF_ERROR(created->Collect());
  RETURN_IF_ERROR(created->CheckOptimizer(absl::StatusCode::kInvalidArgument));
  RETURN_IF_ERROR(created->Register(options));
  RETURN_IF_ERROR(created->BroadcastAll(&torch::nn::Module::named_parameters));  // a loss depends on frozen ones too
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
  RETURN_IF_ERROR(CheckOptimizer(absl::StatusCode::kFailedPrecondition));
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
  return BroadcastAll(&torch::nn::Module::named_buffers);
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

// What several modules share counts once, by its first name.
inline std::vector<std::pair<std::string, at::Tensor>> TorchOptimizer::Distinct(const NamedTensors& all) {
  std::vector<std::pair<std::string, at::Tensor>> distinct;
  std::unordered_set<const void*> known;
  for (const auto& named : all) {
    const at::Tensor& tensor = named.value();
    if (tensor.defined() && known.insert(tensor.unsafeGetTensorImpl()).second) distinct.push_back(named.pair());
  }
  return distinct;
}

inline absl::Status TorchOptimizer::Collect() {
  return Try("the module's parameters", [&] {
    const auto all = Distinct(module_.named_parameters());
    for (const auto& [name, tensor] : all) {
      if (!tensor.requires_grad()) continue;
      parameters_.push_back({.name = name, .tensor = tensor, .shape = tensor.sizes().vec()});
      trained_.insert(tensor.unsafeGetTensorImpl());
    }
    if (!all.empty()) device_ = parameters_.empty() ? all.front().second.device() : parameters_.front().tensor.device();
  });
}

// A parameter that the optimizer updates, or would if a backward pass reached it, and that is not reduced; in words.
inline std::string TorchOptimizer::Stray() const {
  for (const auto& group : optimizer_.param_groups()) {
    for (const at::Tensor& tensor : group.params()) {
      if (trained_.contains(tensor.unsafeGetTensorImpl())) continue;
      if (!tensor.defined()) return "an undefined parameter";
      if (!tensor.requires_grad() && !tensor.grad().defined()) continue;
      for (const auto& named : module_.named_parameters()) {
        if (named.value().is_same(tensor)) return "parameter \"" + named.key() + "\"";
      }
      std::ostringstream text;
      text << "a parameter of shape " << tensor.sizes();
      return text.str();
    }
  }
  return {};
}

// Such a one would be another on each rank before long.
inline absl::Status TorchOptimizer::CheckOptimizer(absl::StatusCode code) const {
  std::string stray;
  RETURN_IF_ERROR(Try("the optimizer's parameters", [&] { stray = Stray(); }));
  if (stray.empty()) return absl::OkStatus();
  return {code,
          "the optimizer has " + stray + ", which is not reduced: in Create it was no trained one of the module's"};
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
    ASSIGN_OR_RETURN(parameter.index, reducer_->Register(parameter.name, parameter.shape, traits.dtype, traits.device));
  }
  RETURN_IF_ERROR(FindStream());
  return reducer_->Start();
}

inline c10::Stream TorchOptimizer::CurrentStream() const {
  return c10::impl::getDeviceGuardImpl(device_.type())->getStream(device_);
}

// LibTorch tells the number of a stream, which is 0 for the default one, and no more of it without CUDA's headers.
inline absl::Status TorchOptimizer::FindStream() {
  RETURN_IF_ERROR(Try("the current stream", [&] { current_ = CurrentStream(); }));
  if ((current_.id() == 0) == (stream_ == nullptr)) return absl::OkStatus();
  std::ostringstream text;
  text << "LibTorch's current stream on " << device_ << " is " << (current_.id() == 0 ? "" : "not ")
       << "the default one; the one that was given is" << (stream_ == nullptr ? "" : " not");
  return absl::InvalidArgumentError(text.str());
}

// Between what is queued on other streams and what the reducer does there is no order.
inline absl::Status TorchOptimizer::CheckStream(const char* what) const {
  bool same = false;
  RETURN_IF_ERROR(Try("the current stream", [&] { same = CurrentStream() == current_; }));
  if (same) return absl::OkStatus();
  return absl::FailedPreconditionError(std::string(what) +
                                       " on another stream than was LibTorch's current one in Create");
}

inline absl::Status TorchOptimizer::BroadcastAll(NamedTensors (torch::nn::Module::*all)(bool) const) {
  std::vector<std::pair<std::string, at::Tensor>> distinct;
  RETURN_IF_ERROR(Try("the module's tensors", [&] { distinct = Distinct((module_.*all)(/*recurse=*/true)); }));
  for (const auto& [name, tensor] : distinct) RETURN_IF_ERROR(BroadcastTensor(name, tensor));
  return absl::OkStatus();
}

inline absl::Status TorchOptimizer::BroadcastTensor(const std::string& name, const at::Tensor& tensor) {
  ASSIGN_OR_RETURN(const TensorTraits traits, TensorTraitsOf(name, tensor, stream_));
  if (traits.device.on_gpu() && tensor.device() != device_) {
    std::ostringstream text;
    text << "tensor \"" << name << "\" is on " << tensor.device() << ", the parameters are on " << device_;
    return absl::InvalidArgumentError(text.str());
  }
  at::Tensor elements, contiguous;
  RETURN_IF_ERROR(Try("a copy", [&] {
    elements = tensor.detach();
    for (int64_t d = 0; d < elements.dim(); ++d) {  // expand() has made one element many, which cannot be written
      if (elements.size(d) > 1 && elements.stride(d) == 0) elements = elements.narrow(d, 0, 1);
    }
    contiguous = elements.contiguous();
  }));
  RETURN_IF_ERROR(communicator_.Broadcast({contiguous.data_ptr(), contiguous.numel(), traits.dtype, traits.device}, 0));
  if (contiguous.is_same(elements)) return absl::OkStatus();
  return Try("a copy", [&] { elements.copy_(contiguous); });
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
    optimizer_.state().clear();          // load() only adds: what rank 0 has no state for shall have none
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
