// The file of losses: a line "step,loss" for each step.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/status/status.h"

namespace char_lm {

// Not thread-safe.
class LossFile {
 public:
  // Opens the file at `path` so that it holds the losses of the steps up to `last_step`, and no later ones: those a
  // crashed training wrote after its checkpoint are cut off. With last_step 0 any file there is replaced.
  //   kFailedPrecondition  what is to be kept is no file of losses; it is left as it is
  absl::Status Open(const std::string& path, int64_t last_step);

  // Writes one loss through to the system. Does nothing if no file is open.
  absl::Status Add(int64_t step, double loss);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace char_lm
