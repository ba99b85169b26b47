// How much memory a piece of code takes at most. The program that links this has an operator new that counts.
#pragma once

#include <cstdint>
#include <utility>

namespace gyre::fuzz {

// Of the calling thread. One at a time.
class AllocationMeter {
 public:
  AllocationMeter();

  // Most bytes that were allocated at once since it was made, beyond what was then.
  int64_t peak() const;
};

// What `body` allocates at once at most, in bytes.
template <typename Body>
int64_t PeakBytes(Body&& body) {
  const AllocationMeter meter;
  std::forward<Body>(body)();
  return meter.peak();
}

}  // namespace gyre::fuzz
