// Optimizer: update rules that turn a gradient into new weights. One code for a worker that updates its own replica
// and for a server that updates on behalf of its workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/export.h"
#include "gyre/rows.h"

namespace gyre {

// In the rules below w is a weight, g its gradient plus weight_decay * w (L2 regularisation: not AdamW's decoupled
// decay), and what else is named lives in the optimizer, one value a weight, zero at first.

// w -= learning_rate * g
struct Sgd {
  float learning_rate = 0.01f;  // >= 0
  float weight_decay = 0.0f;    // >= 0
};

// v = momentum * v + g
// w -= learning_rate * v                   heavy ball (Polyak 1964)
// w -= learning_rate * (g + momentum * v)  Nesterov, in the form of Sutskever et al., ICML 2013
struct Momentum {
  float learning_rate = 0.01f;  // >= 0
  float momentum = 0.9f;        // 0 <= momentum < 1
  bool nesterov = false;
  float weight_decay = 0.0f;  // >= 0
};

// Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015 (algorithm 1, bias-corrected): at step t
// m = beta1 * m + (1 - beta1) * g
// v = beta2 * v + (1 - beta2) * g^2
// w -= learning_rate * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
struct Adam {
  float learning_rate = 0.001f;  // >= 0
  float beta1 = 0.9f;            // 0 <= beta1 < 1
  float beta2 = 0.999f;          // 0 <= beta2 < 1
  float epsilon = 1e-8f;         // > 0
  float weight_decay = 0.0f;     // >= 0
};

// Duchi, Hazan and Singer, JMLR 12, 2011:
// s = s + g^2
// w -= learning_rate * g / (sqrt(s) + epsilon)
struct Adagrad {
  float learning_rate = 0.01f;       // >= 0
  float epsilon = 1e-10f;            // > 0
  float initial_accumulator = 0.0f;  // >= 0: what s is at first
  float weight_decay = 0.0f;         // >= 0
};

using OptimizerConfig = std::variant<Sgd, Momentum, Adam, Adagrad>;

// Holds the state of one rule for a fixed list of parameter buffers. Buffers are independent of each other, each with
// a step count of its own. Updates are pure arithmetic: the same state, weights and gradient give the same bits on
// every machine, whatever its vector width, which is what keeps replicas identical.
//
// Threads: Steps of different buffers may run at once; everything else needs the object to itself.
class GYRE_EXPORT Optimizer {
 public:
  // For buffers of counts[0], counts[1], ... elements (zero is allowed).
  // kInvalidArgument names the hyperparameter that is out of its range or not finite, or the negative count.
  static absl::StatusOr<Optimizer> Create(const OptimizerConfig& config, std::span<const int64_t> counts);

  // One update of `weights` in place. Both spans have the buffer's count and do not overlap.
  // kInvalidArgument, with nothing changed, for an unknown buffer or another count.
  absl::Status Step(int buffer, std::span<float> weights, std::span<const float> gradient);

  // One update of those rows of `weights` alone that `gradient` has, each of the buffer's count / `rows` elements;
  // numbers are in rising order. "Lazy": what the rule does to weights without a gradient (weight decay, the decay of
  // v and m) does not happen to the other rows, as if their step had not been; Adam's t counts all steps of the
  // buffer. For Sgd and Adagrad without weight decay that is the dense update with zeros in the other rows, to the bit.
  // kInvalidArgument, with nothing changed, for an unknown buffer, another count or dtype, a row out of order or range.
  absl::Status StepRows(int buffer, std::span<float> weights, int64_t rows, const RowsView& gradient);

  // For the steps to come, of all buffers. kInvalidArgument if negative or not finite.
  absl::Status SetLearningRate(float learning_rate);
  float learning_rate() const;

  int buffers() const { return static_cast<int>(slots_.size()); }

  // Memory of the state: nothing for Sgd, one float a weight for Momentum and Adagrad, two for Adam.
  int64_t state_bytes() const;

  // The state as bytes: step counts and accumulators, with a version and a checksum, in this machine's byte order.
  // Hyperparameters, the learning rate among them, are not part of it: they come from the program.
  std::vector<std::byte> Save() const;

  // Takes over what Save gave, from an optimizer of the same rule and counts. On failure nothing is changed:
  //   kDataLoss          cut short, altered, or not such a state
  //   kInvalidArgument   of another rule, version or list of counts; says which
  absl::Status Restore(std::span<const std::byte> state);

 private:
  struct Slot {
    int64_t count = 0;
    int64_t steps = 0;                           // how many updates the buffer has had
    std::vector<float> first = {}, second = {};  // v of Momentum, s of Adagrad, m and v of Adam; or empty
  };

  Optimizer(const OptimizerConfig& config, std::vector<Slot> slots);
  absl::Status CheckBuffer(int buffer, int64_t weights) const;
  void Update(Slot& slot, int64_t first, std::span<float> weights, std::span<const float> gradient);

  OptimizerConfig config_;
  std::vector<Slot> slots_;
};

}  // namespace gyre
