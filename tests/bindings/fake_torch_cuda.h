// CUDA for a LibTorch that was built without: tensors on "cuda:0" and "cuda:1" lie in the host's memory, and LibTorch's
// kernels for the CPU compute on them. What LibTorch writes into memory that was there before (gradients it adds to,
// weights it updates, copies) comes late: by a copy that is queued on LibTorch's current stream of a FakeGpu. Before
// each kernel the current stream, and only that, is waited for. So who has Gyre go by another stream than LibTorch
// gets wrong data.
//
// LibTorch has one registry of devices a process: these are for all threads of it. Events between LibTorch's own
// streams do nothing.
#pragma once

#include "device/fake_gpu.h"

namespace gyre::support {

inline constexpr int kTorchGpus = 2;

// Device cuda:`index` is this one from now on; null: none. Not while LibTorch computes there.
void SetTorchGpu(int index, device::FakeGpu* gpu);

// Makes the stream LibTorch's current one of cuda:`index` on this thread, under the number that LibTorch gives to
// streams which others have made: the address. Null: the default stream, which is every thread's first.
void SetTorchStream(int index, void* stream);

}  // namespace gyre::support
