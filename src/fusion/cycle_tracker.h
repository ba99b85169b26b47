// CycleTracker: finds out that a program does the same operations over and over, without being told where its steps
// begin: a cycle ends where a name comes again. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "fusion/negotiation.h"

namespace gyre::internal {

class CycleTracker {
 public:
  // Longer ones are not looked for: their names may never come again.
  static constexpr size_t kLongest = size_t{1} << 16;

  // Whether `name` would begin a new cycle.
  bool Begins(const std::string& name) const { return names_.contains(name); }

  // Ends the current cycle. How many in a row, with it, had the same calls, in whichever order.
  int Close();

  // The next call. REQUIRES: it does not begin a new cycle.
  void Add(NamedCall call);

  // Something else happened: forgets all.
  void Reset();

  // The calls of the current cycle, in order.
  const std::vector<NamedCall>& current() const { return current_; }

 private:
  std::vector<NamedCall> current_;
  std::unordered_set<std::string> names_;  // of current_
  uint64_t hash_ = 0;                      // of current_ as a set
  uint64_t last_hash_ = 0;
  size_t last_size_ = 0;
  int identical_ = 0;
};

// What tells an order of calls from another.
uint64_t HashOfOrder(const std::vector<NamedCall>& calls);

}  // namespace gyre::internal
