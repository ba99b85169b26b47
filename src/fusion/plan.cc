#include "fusion/plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "xxhash.h"

namespace gyre::fusion {

namespace {

int64_t RoundUp(int64_t elements, DType dtype) {
  const int64_t unit = kAlignment / DTypeSize(dtype);
  return (elements + unit - 1) / unit * unit;
}

// How many tensors at the end of the order make the small last bucket.
size_t TailLength(std::span<const TensorInfo> tensors, std::span<const int> order, int64_t bytes) {
  size_t length = 0;
  int64_t sum = 0;
  const auto from_end = [&](size_t i) -> const TensorInfo& {
    return tensors[static_cast<size_t>(order[order.size() - 1 - i])];
  };
  while (length < order.size() && from_end(length).dtype == from_end(0).dtype) {
    sum += from_end(length).bytes();
    if (length > 0 && sum > bytes / 8) break;
    ++length;
  }
  return length;
}

class Greedy {
 public:
  Greedy(std::span<const TensorInfo> tensors, int64_t bytes) : tensors_(tensors), bytes_(bytes) {}

  void Add(int index) {
    const TensorInfo& tensor = tensors_[static_cast<size_t>(index)];
    Open& open = open_[static_cast<size_t>(tensor.dtype)];
    if (!open.members.empty() && open.bytes + tensor.bytes() > bytes_) Close(open);
    open.members.push_back(index);
    open.bytes += tensor.bytes();
    open.last = next_++;
    if (open.bytes >= bytes_) Close(open);
  }

  // Buckets that are still open, in the order of their last tensors.
  void CloseAll() {
    std::vector<Open*> open;
    for (Open& one : open_) {
      if (!one.members.empty()) open.push_back(&one);
    }
    std::ranges::sort(open, {}, [](const Open* one) { return one->last; });
    for (Open* one : open) Close(*one);
  }

  Plan Take() { return std::move(plan_); }

 private:
  struct Open {
    std::vector<int> members;
    int64_t bytes = 0;
    int64_t last = 0;
  };

  void Close(Open& open) {
    plan_.buckets.push_back(MakeBucket(tensors_, std::exchange(open.members, {})));
    open.bytes = 0;
  }

  const std::span<const TensorInfo> tensors_;
  const int64_t bytes_;
  std::array<Open, kDTypeCount> open_;
  int64_t next_ = 0;
  Plan plan_;
};

}  // namespace

Bucket MakeBucket(std::span<const TensorInfo> tensors, std::vector<int> members) {
  Bucket bucket{.dtype = tensors[static_cast<size_t>(members.front())].dtype};
  for (const int member : members) {
    bucket.offsets.push_back(bucket.count);
    bucket.count = RoundUp(bucket.count + tensors[static_cast<size_t>(member)].count, bucket.dtype);
  }
  bucket.tensors = std::move(members);
  return bucket;
}

Plan PlanBySize(std::span<const TensorInfo> tensors, std::span<const int> order, int64_t bytes) {
  Greedy greedy(tensors, bytes);
  const size_t tail = TailLength(tensors, order, bytes);
  for (const int index : order.first(order.size() - tail)) greedy.Add(index);
  greedy.CloseAll();
  for (const int index : order.last(tail)) greedy.Add(index);
  greedy.CloseAll();
  return greedy.Take();
}

bool HasRightTurns(const Plan& plan) {
  if (plan.turns.empty()) return true;
  std::vector<int64_t> ends;  // by bucket: how far its turns have come
  for (const Turn& turn : plan.turns) {
    if (turn.bucket < 0 || turn.bucket > std::ssize(ends) || turn.bucket >= std::ssize(plan.buckets)) return false;
    const auto index = static_cast<size_t>(turn.bucket);
    const Bucket& bucket = plan.buckets[index];
    const bool first = index == ends.size();
    if (first) ends.push_back(0);
    const int64_t unit = kAlignment / DTypeSize(bucket.dtype);
    const bool whole = first && turn.begin == 0 && turn.count == bucket.count;
    const bool slice = bucket.tensors.size() == 1 && turn.begin == ends[index] && turn.begin % unit == 0 &&
                       turn.count > 0 && turn.count <= bucket.count - turn.begin;
    if (!whole && !slice) return false;
    ends[index] += turn.count;
  }
  return std::ranges::equal(ends, plan.buckets, {}, {}, &Bucket::count);
}

uint64_t Hash(const Plan& plan) {
  std::vector<int64_t> words;
  for (const Bucket& bucket : plan.buckets) {
    words.push_back(static_cast<int64_t>(bucket.dtype));
    words.push_back(bucket.count);
    words.push_back(std::ssize(bucket.tensors));
    words.insert(words.end(), bucket.tensors.begin(), bucket.tensors.end());
    words.insert(words.end(), bucket.offsets.begin(), bucket.offsets.end());
  }
  for (const Turn& turn : plan.turns) words.insert(words.end(), {turn.bucket, turn.begin, turn.count});
  return XXH3_64bits(words.data(), words.size() * sizeof(int64_t));
}

}  // namespace gyre::fusion
