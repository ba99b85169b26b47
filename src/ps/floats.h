// Floats: a buffer that several may hold at once: who keeps gradients, who sends them. Holders other than its maker
// only read it. Copies are cheap and share the memory. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "net/bytes.h"

namespace gyre::ps {

class Floats {
 public:
  Floats() = default;
  explicit Floats(size_t count) : data_(std::make_shared_for_overwrite<float[]>(count)), count_(count) {}

  // In memory of somebody's own, who is told by `data`'s deleter when nobody holds it any more.
  Floats(std::shared_ptr<float[]> data, size_t count) : data_(std::move(data)), count_(count) {}

  // Whole floats of `bytes`, at any alignment.
  static Floats CopyOf(Bytes bytes) { return CopyOf(bytes, Floats()); }

  // The same, in the memory of `used` where that fits and nobody else holds it: new memory costs as much as a copy.
  static Floats CopyOf(Bytes bytes, Floats used) {
    const size_t count = bytes.size() / sizeof(float);
    Floats copy = used.unshared() && used.count_ == count ? std::move(used) : Floats(count);
    if (count > 0) std::memcpy(copy.data_.get(), bytes.data(), count * sizeof(float));
    return copy;
  }

  explicit operator bool() const { return data_ != nullptr; }
  size_t size() const { return count_; }
  std::span<const float> span() const { return {data_.get(), count_}; }
  Bytes bytes() const { return std::as_bytes(span()); }

  // Whether nobody else holds it, so that it may be written. One thread holds them all.
  bool unshared() const { return data_.use_count() == 1; }

  // For its maker, before others hold it; or after Unshare.
  std::span<float> writable() { return {data_.get(), count_}; }

  // Makes this one the only holder, of a copy in new memory if there are others. One thread holds them all.
  template <typename Make>
  void Unshare(const Make& make) {
    if (data_.use_count() > 1) *this = CopyOf(bytes(), make(count_));
  }

 private:
  std::shared_ptr<float[]> data_;
  size_t count_ = 0;
};

// Where memory for so many floats comes from: for what is sent, it may be memory that the receiver reads in place.
using MakeFloats = std::function<Floats(size_t count)>;
inline Floats MakePrivate(size_t count) {
  return Floats(count);
}

}  // namespace gyre::ps
