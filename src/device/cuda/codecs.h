// GpuCodecs by CUDA.
#pragma once

#include <memory>

#include "device/cuda_context/current.h"
#include "device/gpu_codecs.h"

namespace gyre::device::cuda {

// Of a GPU that has so many multiprocessors.
std::unique_ptr<GpuCodecs> MakeCodecs(const PrimaryContext& primary, int multiprocessors);

}  // namespace gyre::device::cuda
