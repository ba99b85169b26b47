// A checkpoint: all that training needs to go on as if it had never stopped.
//
// The file: u64 magic "GYRECLM1", then the fields of Checkpoint in their order (integers in 8 bytes, arrays preceded by
// their length in bytes), then u64 XXH3 of all before it; in the byte order of the machine that wrote it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace char_lm {

// What must be the same for training to go on.
struct Identity {
  uint64_t text_hash = 0;
  uint64_t seed = 0;
  int64_t batch = 0;
  int64_t alphabet = 0;
  int64_t context = 0;
  int64_t hidden = 0;
};

struct Checkpoint {
  Identity identity;
  int64_t step = 0;  // how many steps it has been trained
  std::vector<float> weights;
  std::vector<std::byte> optimizer;  // what gyre::Optimizer::Save gave
};

// Replaces the file in one go: a crash leaves the old one or the new one.
absl::Status WriteCheckpoint(const std::string& path, const Checkpoint& checkpoint);

// Whether WriteCheckpoint could write there now. Leaves nothing behind.
absl::Status CheckWritable(const std::string& path);

// kNotFound or another code if it cannot be read, kDataLoss if it is damaged.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path);

// kFailedPrecondition, saying what differs.
absl::Status CheckSame(const Identity& saved, const Identity& ours);

}  // namespace char_lm
