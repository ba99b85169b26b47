#include "bindings/fake_torch_cuda.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/set_native.h>
#include <c10/core/impl/FakeGuardImpl.h>
#include <torch/library.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::support {
namespace {

using Guard = c10::impl::FakeGuardImpl<c10::DeviceType::CUDA>;

void* CurrentStream(int index) {
  return reinterpret_cast<void*>(Guard::getCurrentStreamIdFor(static_cast<c10::DeviceIndex>(index)));
}

// One of the devices. What was let go of stays until the stream that it was used on has been waited for: as memory of
// CUDA's caching allocator does.
class TorchGpu {
 public:
  static TorchGpu& Of(at::Device device) {
    static std::array<TorchGpu, kTorchGpus> all;
    return all.at(static_cast<size_t>(device.index()));
  }

  void Set(device::FakeGpu* gpu) {
    std::vector<at::Tensor> over;  // may let go of others
    const std::lock_guard lock(mutex_);
    gpu_ = gpu;
    over.swap(let_go_);
  }

  // Waits for the current stream.
  void Settle(at::Device device) {
    std::vector<at::Tensor> over;  // as above
    const std::lock_guard lock(mutex_);
    ASSERT_NE(gpu_, nullptr);
    over.swap(let_go_);
    ASSERT_THAT(gpu_->Synchronize(CurrentStream(device.index())), IsOk());
  }

  // Queues a copy of all of `from`, which lies as `to` does.
  void Write(at::Device device, void* to, const at::Tensor& from) {
    const std::lock_guard lock(mutex_);
    ASSERT_NE(gpu_, nullptr);
    ASSERT_THAT(gpu_->Copy(to, from.data_ptr(), static_cast<int64_t>(from.nbytes()), CurrentStream(device.index())),
                IsOk());
    let_go_.push_back(from);
  }

  void LetGo(at::Tensor tensor) {
    const std::lock_guard lock(mutex_);
    if (gpu_ != nullptr) let_go_.push_back(std::move(tensor));
  }

 private:
  std::mutex mutex_;
  device::FakeGpu* gpu_ = nullptr;
  std::vector<at::Tensor> let_go_;
};

// The same elements as a tensor of the CPU, which keeps the other alive.
at::Tensor OnCpu(const at::Tensor& tensor) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .deleter([tensor](void* /*data*/) {})
      .target_device(at::Device(at::kCPU))
      .options(at::TensorOptions(at::kCPU).dtype(tensor.dtype()))
      .make_tensor();
}

at::Tensor OnGpu(const at::Tensor& tensor, at::Device device) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .deleter([tensor, device](void* /*data*/) { TorchGpu::Of(device).LetGo(tensor); })
      .target_device(device)
      .options(at::TensorOptions(device).dtype(tensor.dtype()))
      .make_tensor();
}

// One call of an operator whose tensors, or whose device, are on a GPU.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack) : op_(op), stack_(*stack) {}

  void Run() {
    FindDevice();
    TorchGpu::Of(*device_).Settle(*device_);
    const size_t arguments = op_.schema().arguments().size();
    const size_t first = stack_.size() - arguments;
    given_.assign(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
    for (size_t i = 0; i < arguments; ++i) stack_[first + i] = ForCpu(i);
    op_.callBoxed(&stack_);
    for (const auto& [memory, result] : late_) TorchGpu::Of(*device_).Write(*device_, memory, result);
    for (size_t i = 0; i < op_.schema().returns().size(); ++i) {
      c10::IValue& value = stack_[first + i];
      if (value.isTensor() && value.toTensor().defined()) value = ForCaller(i, value.toTensor());
    }
  }

 private:
  void FindDevice() {
    for (const c10::IValue& value : torch::jit::last(stack_, op_.schema().arguments().size())) {
      if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda()) {
        device_ = value.toTensor().device();
        return;
      }
      if (value.isDevice() && value.toDevice().is_cuda()) device_ = value.toDevice();
    }
    TORCH_CHECK(device_.has_value(), "what has ", op_.schema().name(), " to do with CUDA?");
  }

  bool Written(size_t i) const {
    const c10::AliasInfo* alias = op_.schema().arguments()[i].alias_info();
    return alias != nullptr && alias->isWrite();
  }

  c10::IValue ForCpu(size_t i) {
    const c10::IValue& value = given_[i];
    if (value.isDevice()) return at::Device(at::kCPU);
    if (!value.isTensor() || !value.toTensor().defined() || !value.toTensor().is_cuda()) return value;
    const at::Tensor& tensor = value.toTensor();
    TORCH_CHECK(tensor.device() == *device_, op_.schema().name(), " of tensors on two GPUs");
    at::Tensor on_cpu = OnCpu(tensor);
    if (!Written(i) || !tensor.is_non_overlapping_and_dense()) return on_cpu;
    on_cpu = on_cpu.clone();
    late_.emplace_back(tensor.data_ptr(), on_cpu);
    return on_cpu;
  }

  // What was written is returned as it was given.
  c10::IValue ForCaller(size_t result, const at::Tensor& value) const {
    const c10::AliasInfo* alias = op_.schema().returns()[result].alias_info();
    for (size_t i = 0; i < given_.size() && alias != nullptr && alias->isWrite(); ++i) {
      const c10::AliasInfo* other = op_.schema().arguments()[i].alias_info();
      if (other != nullptr && other->beforeSets() == alias->beforeSets()) return given_[i];
    }
    return OnGpu(value, *device_);
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  std::optional<at::Device> device_;
  torch::jit::Stack given_;
  std::vector<std::pair<void*, at::Tensor>> late_;  // where to, and what is to be there
};

void RunOnCpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call(op, stack).Run();
}

struct Hooks : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs /*args*/) {}
  void initCUDA() const override {}
  bool hasCUDA() const override { return true; }
  int getNumGPUs() const override { return kTorchGpus; }
  bool hasPrimaryContext(int64_t device_index) const override { return device_index < kTorchGpus; }
};

}  // namespace

void SetTorchGpu(int index, device::FakeGpu* gpu) {
  TorchGpu::Of(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index))).Set(gpu);
}

void SetTorchStream(int index, void* stream) {
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(index));
  Guard().exchangeStream(c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream)));
}

}  // namespace gyre::support

namespace at {
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, gyre::support::Hooks)
}  // namespace at

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, FakeGuardImpl<DeviceType::CUDA>)
}  // namespace c10::impl

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&gyre::support::RunOnCpu>());
}

// What has code for every device, but looks there for what CUDA does; and what is given memory, not a tensor.
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&gyre::support::RunOnCpu>());
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_cpu_));
}
