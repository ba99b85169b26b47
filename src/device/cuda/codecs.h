// GpuCodecs by CUDA.
#pragma once

#include <memory>

#include "device/gpu_codecs.h"

namespace gyre::device::cuda {

// Of GPU `ordinal`, which has so many multiprocessors.
std::unique_ptr<GpuCodecs> MakeCodecs(int ordinal, int multiprocessors);

}  // namespace gyre::device::cuda
