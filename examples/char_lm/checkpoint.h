// A checkpoint: all that training needs to go on as if it had never stopped.
//
// The file: u64 magic "GYRECLM2", then the fields of Checkpoint in their order (integers in 8 bytes, arrays and texts
// preceded by their length in bytes, arrays of arrays by how many there are), then u64 XXH3 of all before it; in the
// byte order of the machine that wrote it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace char_lm {

// What must be the same for training to go on to the bit: names and values, a line "name: value" each.
using Identity = std::string;

void AddFact(Identity& identity, std::string_view name, std::string_view value);

struct Checkpoint {
  Identity identity;
  int64_t step = 0;  // how many steps it has been trained
  std::vector<float> weights;
  std::vector<std::byte> optimizer;                 // what gyre::Optimizer::Save gave
  std::vector<std::vector<std::byte>> compression;  // by rank: GradientReducer::SaveCompression; none: nothing is kept
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
