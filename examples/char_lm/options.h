// What the program is asked to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "experiment.h"
#include "model.h"

namespace char_lm {

struct Options {
  std::string text;  // file; empty: the licence texts
  int64_t steps = 1000;
  int64_t batch = 0;  // characters a step, over all ranks
  float learning_rate = 0;
  uint64_t seed = 1;
  double heldout_fraction = 0.1;
  int64_t eval_every = 0;        // steps; 0: only at the end
  std::string checkpoint;        // file; empty: none
  int64_t checkpoint_every = 0;  // steps; 0: only at the end
  int64_t stop_at = 0;           // steps; 0: not before `steps`
  bool resume = false;
  std::string loss_file;    // empty: none
  std::string compression;  // of the gradients, as gyre::ParseCompression reads it; empty: none
  double sparsity = 0;      // of a compression that has one; 0: its own
  bool masking = true;      // dgc's momentum factor masking
  Wrong wrong = Wrong::kNothing;
  bool portable = false;    // arithmetic with the same bits on every processor
  bool momentum = false;    // momentum SGD in place of Adam
  std::string strategy;     // allreduce or ps; empty: GYRE_STRATEGY's
  std::string consistency;  // of ps: bsp, ssp or async; empty: GYRE_STRATEGY's
  int staleness = -1;       // of ssp, in steps; -1: GYRE_STRATEGY's
  std::string values;       // of ps: f32, f16, bf16 or int8; empty: GYRE_STRATEGY's
  bool json = false;
  bool quiet = false;
  int context = 0;  // of the model, from the preset
  int hidden = 0;
};

// Fills `options` from the command line. Returns the exit code if the program is to end at once (after --help, or with
// what is wrong on standard error), otherwise nothing.
std::optional<int> ParseOptions(int argc, char** argv, Options& options);

}  // namespace char_lm
