// The step benchmark's output: columns for people, JSON lines for programs.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "gyre/communicator.h"
#include "models/model.h"
#include "output_file.h"
#include "timing.h"

namespace gyre::bench {

// One library's figures for one model. Times are the slowest rank's, in microseconds.
struct StepMeasurement {
  std::string lib;
  std::string model;
  std::string buffers;  // "arena" or "plain"
  std::string compression = "none";
  int ranks = 1;
  int hosts = 1;
  int64_t bytes = 0;      // of all gradients of a rank
  int tensors = 0;        // gradients
  std::string compute;    // "none", "sleep" or "cpu"
  double compute_us = 0;  // median of a step without communication
  Times times;
  int64_t copied_bytes = 0;      // to pack and to unpack, a step and rank
  std::optional<int64_t> wrong;  // elements, over all ranks; empty: not checked
  std::optional<double> ratio;   // how many times the first library's median; empty for the first itself

  // What communication adds to a step, and how much of a step is not communication; no efficiency without compute.
  double exposed_us() const { return times.median - compute_us; }
  std::optional<double> efficiency() const;
};

// A line without its end.
std::string ToJson(const StepMeasurement& measurement);
std::string ToColumns(const StepMeasurement& measurement);

// Writes to standard output, and JSON lines to a file if one was asked for.
class StepReport {
 public:
  // Null on the other ranks. `command`: as it was typed.
  static absl::StatusOr<std::unique_ptr<StepReport>> OpenOnRankZero(const std::string& json_path,
                                                                    const std::string& command,
                                                                    const Communicator& world);
  void Head(const Model& model);
  void Row(const StepMeasurement& measurement);

 private:
  OutputFile json_;
};

}  // namespace gyre::bench
