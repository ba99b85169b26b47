#include "ps/row_store.h"

#include <algorithm>
#include <bit>

namespace gyre::ps {

namespace {

constexpr size_t kChunkFloats = size_t{64} << 10;
constexpr size_t kFewestBuckets = 64;

}  // namespace

RowStore::RowStore(size_t floats) : floats_(floats), buckets_(kFewestBuckets) {
  const size_t rows = std::bit_floor(std::max<size_t>(1, kChunkFloats / floats));
  shift_ = static_cast<size_t>(std::countr_zero(rows));
  mask_ = rows - 1;
}

// Fibonacci hashing: the product's upper bits tell ids apart, also those that servers' hashes have chosen.
size_t RowStore::BucketOf(int64_t id) const {
  const int bits = std::countr_zero(buckets_.size());
  size_t bucket = static_cast<uint64_t>(id) * 0x9e3779b97f4a7c15 >> (64 - bits);
  while (buckets_[bucket] != 0 && ids_[buckets_[bucket] - 1] != id) bucket = (bucket + 1) & (buckets_.size() - 1);
  return bucket;
}

const float* RowStore::Find(int64_t id) const {
  const uint32_t place = buckets_[BucketOf(id)];
  return place == 0 ? nullptr : At(place - 1);
}

RowStore::Found RowStore::FindOrMake(int64_t id) {
  size_t bucket = BucketOf(id);
  if (buckets_[bucket] != 0) return {{At(buckets_[bucket] - 1), floats_}, false};
  if (3 * (ids_.size() + 1) > 2 * buckets_.size()) {
    Grow();
    bucket = BucketOf(id);
  }
  const size_t place = ids_.size();
  if ((place & mask_) == 0) chunks_.push_back(std::make_unique_for_overwrite<float[]>((mask_ + 1) * floats_));
  ids_.push_back(id);
  buckets_[bucket] = static_cast<uint32_t>(place + 1);
  return {{At(place), floats_}, true};
}

void RowStore::Grow() {
  buckets_.assign(2 * buckets_.size(), 0);
  for (size_t place = 0; place < ids_.size(); ++place) {
    buckets_[BucketOf(ids_[place])] = static_cast<uint32_t>(place + 1);
  }
}

}  // namespace gyre::ps
