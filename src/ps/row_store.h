// RowStore: rows of floats by their ids, in memory for those that are there and no others: an open hash table of
// places, and the rows in chunks that never move. Rows are not removed. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace gyre::ps {

class RowStore {
 public:
  // `floats`: of a row, at least 1.
  explicit RowStore(size_t floats);

  size_t size() const { return ids_.size(); }
  int64_t id(size_t place) const { return ids_[place]; }  // in the order in which they were made
  std::span<const float> row(size_t place) const { return {At(place), floats_}; }

  // Null: it is not there.
  const float* Find(int64_t id) const;

  // The row, and whether it was made by this call: then its floats are to be filled in.
  struct Found {
    std::span<float> row;
    bool made = false;
  };
  Found FindOrMake(int64_t id);

 private:
  float* At(size_t place) const { return chunks_[place >> shift_].get() + (place & mask_) * floats_; }
  size_t BucketOf(int64_t id) const;  // the one with the id's place, or a free one
  void Grow();

  size_t floats_;
  size_t shift_ = 0, mask_ = 0;  // of places in a chunk: a power of two
  std::vector<std::unique_ptr<float[]>> chunks_;
  std::vector<int64_t> ids_;       // by place
  std::vector<uint32_t> buckets_;  // one more than a place, or 0; at most two thirds are taken
};

}  // namespace gyre::ps
