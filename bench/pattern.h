// Pattern: the test data of a task. What every rank puts in differs by rank and position; what must come out is known
// in closed form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "task.h"

namespace gyre::bench {

class Pattern {
 public:
  explicit Pattern(const Task& task) : task_(task) {}

  // Writes this rank's input: send_count elements.
  void Fill(std::byte* send) const;

  // How many of the receive_count elements of this rank's result are wrong. Every bit counts, but for averages of
  // floating-point numbers, which may be off by a hundredth.
  int64_t CountWrong(const std::byte* result) const;

 private:
  // The elements of a sequence that repeats itself: element i is that of i modulo their number.
  using Cycle = std::vector<int>;

  Cycle Input(int rank) const;  // what a rank puts in
  Cycle Reduced() const;        // what all their inputs reduce to
  int64_t CountWrong(const std::byte* result, int64_t count, const Cycle& expected, int64_t phase) const;

  const Task task_;
};

}  // namespace gyre::bench
