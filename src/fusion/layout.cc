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

namespace {

// The stretches of a whole bucket.
void AppendBucket(std::span<const TensorInfo> tensors, const Plan& plan, int number, const Layout& layout,
                  int64_t own_call_bytes, std::vector<Part>& parts) {
  const Bucket& bucket = plan.buckets[static_cast<size_t>(number)];
  std::vector<int> members = bucket.tensors;
  std::ranges::sort(members, {}, [&](int tensor) { return layout.begins[static_cast<size_t>(tensor)]; });
  int64_t open_end = -1;  // where the part that is open goes on; -1: none is
  for (const int member : members) {
    const auto index = static_cast<size_t>(member);
    const TensorInfo& tensor = tensors[index];
    if (tensor.count == 0) continue;
    const bool alone = tensor.bytes() >= own_call_bytes;
    if (alone || layout.begins[index] != open_end) {
      parts.push_back({.bucket = number, .begin = layout.begins[index], .dtype = bucket.dtype});
    }
    Part& part = parts.back();
    part.tensors.push_back(member);
    part.count = (layout.begins[index] - part.begin) / DTypeSize(bucket.dtype) + tensor.count;
    open_end = alone ? -1 : layout.ends[index];
  }
}

// A piece of a bucket's only tensor.
Part PieceOf(std::span<const TensorInfo> tensors, const Bucket& bucket, const Turn& turn, const Layout& layout) {
  const auto tensor = static_cast<size_t>(bucket.tensors.front());
  const int64_t left = tensors[tensor].count - turn.begin;
  return {.bucket = turn.bucket,
          .tensors = bucket.tensors,
          .begin = layout.begins[tensor] + turn.begin * DTypeSize(bucket.dtype),
          .count = std::min(turn.count, left),
          .dtype = bucket.dtype,
          .last = turn.count >= left};
}

}  // namespace

std::vector<Part> MakeParts(std::span<const TensorInfo> tensors, const Plan& plan, const Layout& layout,
                            int64_t own_call_bytes) {
  std::vector<Part> parts;
  if (plan.turns.empty()) {
    for (int b = 0; b < std::ssize(plan.buckets); ++b) AppendBucket(tensors, plan, b, layout, own_call_bytes, parts);
  }
  for (const Turn& turn : plan.turns) {
    const Bucket& bucket = plan.buckets[static_cast<size_t>(turn.bucket)];
    if (turn.count == bucket.count) {
      AppendBucket(tensors, plan, turn.bucket, layout, own_call_bytes, parts);
    } else {
      parts.push_back(PieceOf(tensors, bucket, turn, layout));
    }
  }
  return parts;
}

}  // namespace gyre::fusion
