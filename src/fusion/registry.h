// Registry: the gradients that a rank knows, and how ranks find out whether they know the same ones. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fusion/plan.h"

namespace gyre::fusion {

// The floating-point ones.
bool IsGradientDType(DType dtype);

// Gradients have two numbers: an index, by the order in which this rank registered them, and a place among all names
// in alphabetical order, on which ranks with the same gradients agree.
class Registry {
 public:
  // Returns the index. kInvalidArgument for a name that is taken, a negative dimension, too many elements, or a dtype
  // that gradients do not have.
  absl::StatusOr<int> Add(std::string_view name, std::span<const int64_t> shape, DType dtype);

  // One that is given as rows (fusion/rows.h) of shape[0]: it has an index and a place, but no elements in any bucket.
  // kInvalidArgument also for a shape without dimensions.
  absl::StatusOr<int> AddRows(std::string_view name, std::span<const int64_t> shape, DType dtype);

  int size() const { return static_cast<int>(by_index_.size()); }

  // By place. Valid once all are added.
  std::vector<TensorInfo> Tensors() const;

  // By place.
  std::vector<std::vector<int64_t>> Shapes() const;

  // By index: its place.
  std::vector<int> Places() const;

  // What other ranks compare with theirs: a line for `options`, then one a gradient, by place.
  std::string Describe(std::string_view options) const;

 private:
  struct Entry {
    TensorInfo tensor;
    std::vector<int64_t> shape;
    std::string signature;  // "f32 [64, 3, 7, 7]"
    int index;
  };

  std::map<std::string, Entry, std::less<>> by_name_;
  std::vector<const Entry*> by_index_;
};

// The first difference between two ranks' descriptions, in words: the same on every rank that asks.
std::string Difference(std::string_view one, int one_rank, std::string_view other, int other_rank);

// Whether a saved plan is for these tensors: kInvalidArgument names the first that differs.
absl::Status CheckPlanFits(const SavedPlan& saved, std::span<const TensorInfo> tensors);

}  // namespace gyre::fusion
