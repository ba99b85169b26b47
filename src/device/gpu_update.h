// What Gpu::Update takes: an update rule as of one step, and tensors of weights.
#pragma once

#include <variant>

#include "device/kernels/update.h"

namespace gyre::device {

using UpdateRule = std::variant<kernels::SgdRule, kernels::HeavyBallRule, kernels::NesterovRule, kernels::AdamRule,
                                kernels::AdagradRule>;

}  // namespace gyre::device
