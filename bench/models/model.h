// Model: the parameters of a published network, as a data-parallel trainer sees them: names, shapes, and how much work
// stands between one gradient and the next. Data without weights; pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::bench {

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  // Floating-point operations of a forward pass over one sample, up to the next parameter: two a multiply-add of
  // convolutions and matrix products. What else a layer does (normalisation, activation, pooling) is not counted.
  double forward_flops = 0;

  int64_t count() const;  // elements
};

struct Model {
  std::string name;
  std::string variant;                // which of the network's published forms, and of which sample
  std::vector<Parameter> parameters;  // in the order in which a forward pass uses them first

  int64_t count() const;         // elements of all parameters
  double forward_flops() const;  // of one sample
};

// A backward pass costs twice a forward pass: gradients of the layer's input, and of its parameters.
inline constexpr double kBackwardFactor = 2;

// Gradients become ready in the reverse order of parameters: the last layer's first.
std::vector<int> BackwardOrder(const Model& model);

std::span<const std::string_view> ModelNames();  // "resnet50", ...

// kInvalidArgument lists the names.
absl::StatusOr<Model> MakeModel(std::string_view name);

}  // namespace gyre::bench
