// Floats: a buffer that several may hold at once: who keeps gradients, who sends them. Holders other than its maker
// only read it. Copies are cheap and share the memory. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "net/bytes.h"

namespace gyre::ps {

class Floats {
 public:
  Floats() = default;
  explicit Floats(size_t count) : data_(std::make_shared_for_overwrite<float[]>(count)), count_(count) {}

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

  // Makes this one the only holder, of a copy if there are others. One thread holds them all.
  void Unshare() {
    if (data_.use_count() > 1) *this = CopyOf(bytes());
  }

 private:
  std::shared_ptr<float[]> data_;
  size_t count_ = 0;
};

}  // namespace gyre::ps
