// Data-parallel training: every rank holds the whole model, computes the gradient of its part of each batch, and the
// gradients are summed over the ranks. The sums are exact (exact_sum.h): with the same options and text any number of
// ranks trains the same model, to the bit, on processors for which BLAS and the C library compute alike; on all, with
// Options::portable.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "gyre/runtime.h"
#include "options.h"
#include "progress.h"
#include "stop_signal.h"
#include "text.h"

namespace char_lm {

struct Outcome {
  int stopped_by = 0;  // the signal that ended training early (the last three are then unset), or 0
  int64_t step = 0;    // how many steps the model has been trained, earlier processes' included
  StepTimes times;
  double heldout_bits_per_char = 0;
  uint64_t weights_hash = 0;  // of this rank's
  int odd_rank = -1;          // the lowest rank whose weights are not rank 0's; -1: all are identical
  bool by_servers = false;    // nobody compared the ranks' weights; the held-out text is rank 0's work alone
};

// With parameter servers ranks train and end each for itself, a rank that was started again goes on where the others
// are, and nothing here is collective.
//
// Collective: every rank of the job calls it with equal options and the same text. Progress and files are rank 0's.
// The status of any gyre call that fails is returned as it is; kInvalidArgument if the ranks' options or texts differ.
absl::StatusOr<Outcome> Train(gyre::Runtime& runtime, const Options& options, const Corpus& corpus,
                              const StopSignal& stop_signal);

}  // namespace char_lm
