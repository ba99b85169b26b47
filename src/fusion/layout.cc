#include "fusion/layout.h"

#include <algorithm>

namespace gyre::fusion {

Layout MakeLayout(std::span<const TensorInfo> tensors, const Plan& plan) {
  Layout layout{.begins = std::vector<int64_t>(tensors.size()), .ends = std::vector<int64_t>(tensors.size())};
  for (const Bucket& bucket : plan.buckets) {
    const int64_t element = DTypeSize(bucket.dtype);
    for (size_t i = 0; i < bucket.tensors.size(); ++i) {
      const auto tensor = static_cast<size_t>(bucket.tensors[i]);
      const int64_t end = i + 1 < bucket.offsets.size() ? bucket.offsets[i + 1] : bucket.count;
      layout.begins[tensor] = layout.bytes + bucket.offsets[i] * element;
      layout.ends[tensor] = layout.bytes + end * element;
    }
    layout.bytes += bucket.bytes();
  }
  return layout;
}

std::vector<Part> MakeParts(std::span<const TensorInfo> tensors, const Plan& plan, const Layout& layout,
                            int64_t own_call_bytes) {
  std::vector<Part> parts;
  for (int b = 0; const Bucket& bucket : plan.buckets) {
    std::vector<int> members = bucket.tensors;
    std::ranges::sort(members, {}, [&](int tensor) { return layout.begins[static_cast<size_t>(tensor)]; });
    int64_t open_end = -1;  // where the part that is open goes on; -1: none is
    for (const int member : members) {
      const auto index = static_cast<size_t>(member);
      const TensorInfo& tensor = tensors[index];
      if (tensor.count == 0) continue;
      const bool alone = tensor.bytes() >= own_call_bytes;
      if (alone || layout.begins[index] != open_end) {
        parts.push_back({.bucket = b, .begin = layout.begins[index], .dtype = bucket.dtype});
      }
      Part& part = parts.back();
      part.tensors.push_back(member);
      part.count = (layout.begins[index] - part.begin) / DTypeSize(bucket.dtype) + tensor.count;
      open_end = alone ? -1 : layout.ends[index];
    }
    ++b;
  }
  return parts;
}

}  // namespace gyre::fusion
