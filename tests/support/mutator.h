// Mutator: random numbers, bytes and edits of valid messages, all from one seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace gyre::support {

// Cheap to make: campaigns make one a round. Not thread-safe. A uniform random bit generator (SplitMix64).
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : state_(seed) {}

  using result_type = uint64_t;
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }
  uint64_t operator()();

  // 0 <= result < n. REQUIRES: n > 0
  uint64_t Below(uint64_t n) { return (*this)() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

  // Mostly small, sometimes what overflows: 0, -1, the ends of each width and their neighbours.
  uint64_t Number();

  std::string RandomBytes(size_t size);

  // One to four edits anywhere: bits, bytes, pieces left out, put in, doubled, exchanged; numbers made extreme; the end
  // cut off. The result may happen to be what it was.
  std::string Mutated(std::string message);

  // Edits that keep the size.
  std::string MutatedInPlace(std::string message);

 private:
  void Edit(std::string& message);
  void EditInPlace(std::string& message);

  uint64_t state_;
};

}  // namespace gyre::support
