// Lists of elements that the host has made, put into a tensor on the GPU: results of sparse exchanges whose sums ranks
// add up by regions, and what comes back to what is kept of a gradient.
#pragma once

#include <cstdint>

#include "device/kernels/team.h"

namespace gyre::device::kernels {

// Elements of one tensor. Plain data, as what follows: it is passed to kernels as it is.
struct ElementList {
  const uint32_t* elements;
  const float* values;
  int64_t count;
};

constexpr uint32_t kNoEntry = ~0u;

// v takes back all values of the list, in its order, and u what it was where chosen elements come back whole.
struct ReturnedList {
  ElementList list;         // what is of one element stands together
  const uint32_t* entries;  // for each of the list: of the chosen elements which, or kNoEntry; null: there is no u
  const float* momenta;     // of all chosen elements
  float* momentum;          // u
  float* velocity;          // v
};

// What thread `thread` of `threads` does to make to[element] the value, for all of the list, of which no two are of one
// element.
GYRE_GPU inline void PutShare(const ElementList& list, float* to, int64_t thread, int64_t threads) {
  for (int64_t i = thread; i < list.count; i += threads) to[list.elements[i]] = list.values[i];
}

// And to take a list back: what is of one element is its first one's thread's.
GYRE_GPU inline void TakeBackShare(const ReturnedList& returned, int64_t thread, int64_t threads) {
  const ElementList& list = returned.list;
  for (int64_t i = thread; i < list.count; i += threads) {
    const uint32_t element = list.elements[i];
    if (i > 0 && list.elements[i - 1] == element) continue;
    float v = returned.velocity[element];
    for (int64_t k = i; k < list.count && list.elements[k] == element; ++k) {
      v = v + list.values[k];
      const uint32_t entry = returned.entries == nullptr ? kNoEntry : returned.entries[k];
      if (entry != kNoEntry) returned.momentum[element] = returned.momenta[entry];
    }
    returned.velocity[element] = v;
  }
}

}  // namespace gyre::device::kernels
