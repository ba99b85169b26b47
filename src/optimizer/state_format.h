// How an optimizer's state lies in bytes:
//
//   header    u32 magic "GOPT", u32 version (1), u32 rule (place in OptimizerConfig), u32 number of buffers
//   a buffer  i64 count, i64 steps, then its accumulators: `count` floats each, as many as the rule has
//   trailer   u64 XXH3 of all before it
//
// In the byte order of the machine that wrote it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gyre {

class StateWriter {
 public:
  StateWriter(size_t rule, size_t buffers);

  void Add(int64_t count, int64_t steps, std::span<const float> first, std::span<const float> second);
  std::vector<std::byte> Finish() &&;

 private:
  std::vector<std::byte> bytes_;
};

// Reads what StateWriter wrote. The bytes must outlive the reader.
class StateReader {
 public:
  // Checks the checksum and the header. kDataLoss, or kInvalidArgument if the rule, version or number differs.
  static absl::StatusOr<StateReader> Open(std::span<const std::byte> bytes, size_t rule, size_t buffers);

  // The next buffer, which must have `count` elements; fills accumulators of the size they have.
  absl::Status Next(int64_t count, int64_t& steps, std::span<float> first, std::span<float> second);

  // kDataLoss if anything is left over.
  absl::Status CheckEnd() const;

 private:
  explicit StateReader(std::span<const std::byte> rest) : rest_(rest) {}
  bool Take(void* out, size_t size);

  std::span<const std::byte> rest_;  // without the trailer
  int buffer_ = 0;                   // which comes next
};

}  // namespace gyre
