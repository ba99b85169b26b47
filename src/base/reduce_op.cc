#include <utility>

#include "gyre/tensor.h"

namespace gyre {

namespace {

constexpr std::pair<std::string_view, ReduceOp> kSpellings[] = {
    {"sum", ReduceOp::kSum},         {"average", ReduceOp::kAverage}, {"min", ReduceOp::kMin}, {"max", ReduceOp::kMax},
    {"product", ReduceOp::kProduct}, {"adasum", ReduceOp::kAdasum},  // up to here by value; then the aliases
    {"avg", ReduceOp::kAverage},     {"prod", ReduceOp::kProduct}};

}  // namespace

std::string_view ReduceOpName(ReduceOp op) {
  const auto index = static_cast<unsigned>(op);
  return index <= static_cast<unsigned>(ReduceOp::kAdasum) ? kSpellings[index].first : "unknown reduction";
}

std::optional<ReduceOp> ParseReduceOp(std::string_view name) {
  for (const auto& [spelling, op] : kSpellings) {
    if (name == spelling) return op;
  }
  return std::nullopt;
}

}  // namespace gyre
