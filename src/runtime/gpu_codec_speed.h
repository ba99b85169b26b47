// How fast a GPU's codecs are: measured, by an exchange of one rank with itself.
#pragma once

#include <chrono>

#include "gyre/compression.h"
#include "runtime/compression_cost.h"
#include "runtime/gpus.h"

namespace gyre::internal {

// With the ways of what is coded to the host and back. Takes memory of the GPU's for a while, and blocks for some ms,
// or until `timeout`, beside what is queued. Where it fails, so slow that nothing is compressed for it.
CodecSpeed MeasureSpeedOnGpu(const OpenedGpu& opened, const Compression& compression,
                             std::chrono::milliseconds timeout);

}  // namespace gyre::internal
