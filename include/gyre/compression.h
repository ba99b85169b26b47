// Compression of gradients: which codec, and its options (ReducerOptions::compression).
// What each does, how small it gets and how fast it is: docs/compression.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "gyre/export.h"

namespace gyre {

// How the values of sparse codecs travel, and kF32 gradients that go along with theirs. What rounding takes away is
// kept and sent later.
enum class ValueType : uint8_t { kF32 = 0, kF16 = 1, kBF16 = 2 };

// In what follows a codec "keeps" what it does not send (error feedback: Seide et al. 2014, Karimireddy et al. 2019):
// it is added to the next gradient. Sizes are those of a payload against 4 bytes an element.

// As it is: 4 bytes.
struct NoCompression {};

// IEEE half (2 bytes; what is beyond 65504 is sent as 65504 and the rest kept) and bfloat16 (2 bytes).
struct Fp16 {};
struct Bf16 {};

// 8 bits, by blocks of 256 elements with a float scale each: 1.02 bytes. Micikevicius et al. 2022 (OCP FP8): e4m3 has
// three bits of significand, e5m2 two and a wider range.
struct Fp8 {
  enum class Format : uint8_t { kE4M3, kE5M2 };
  Format format = Format::kE4M3;
};

// Integers by blocks of 256 elements with a float scale each: 1.02 and 0.52 bytes.
struct Int8 {};
struct Int4 {};

// Signs, and by blocks of 256 elements their mean magnitude: 0.14 bytes. Seide et al. 2014, Karimireddy et al. 2019.
struct Sign {};

// -1, 0 or 1 times the largest of a block of 256 elements, drawn so that the expectation is the gradient: 0.27 bytes.
// Wen et al., "TernGrad", 2017. Keeps nothing, for it is unbiased.
struct Ternary {
  uint64_t seed = 1;  // another on each rank, or their errors do not average out
};

// The largest elements by magnitude, 1 - sparsity of all: exactly that many, or, `sampled`, those above a threshold
// that a sample of the elements suggests (never more than twice as many).
//
// `global`, here and of Dgc: of the sums over the ranks of what they have chosen only about the largest 1 - sparsity of
// all elements become the result, so that what a rank receives does not grow with the number of ranks; what a rank had
// chosen of the others goes back to what it keeps (Li, Hoefler, "Ok-Topk", PPoPP 2022). Results change.
struct TopK {
  double sparsity = 0.999;  // 0 <= sparsity < 1
  bool sampled = false;
  ValueType values = ValueType::kF32;
  bool global = false;
};

// Elements drawn at random, one of each run of 1 / (1 - sparsity); positions follow from the seed and are not sent.
struct RandomK {
  double sparsity = 0.99;  // 0 <= sparsity < 1
  uint64_t seed = 1;       // the same on all ranks: then all send the same elements
};

// A matrix as the product of two thin ones (Vogels, Karimireddy, Jaggi, "PowerSGD", 2019).
struct PowerSgd {
  int rank = 4;  // 1 to 64
};

// Deep gradient compression: Lin, Han, Mao, Wang, Dally, ICLR 2018. Top-k of what momentum has accumulated locally.
// The optimizer must not apply momentum of its own.
struct Dgc {
  double sparsity = 0.999;     // 0 <= sparsity < 1; 0: dense
  float momentum = 0.9f;       // 0 <= momentum < 1: u = momentum * u + g, v = v + u
  bool nesterov = false;       // u = momentum * (u + g), v = v + u + g
  bool factor_masking = true;  // u is cleared where v is sent (section 3.3), which keeps stale momentum away
  ValueType values = ValueType::kF32;
  bool global = false;  // as TopK's; what goes back is as if it had not been chosen, in u too

  // The gradient of each rank, with the reducer's prescale in it (and of several micro-batches the mean, if it
  // averages), is scaled down to norm `clip` / sqrt(ranks) before it is accumulated (section 3.2); 0: not at all.
  float clip = 0;

  // Sparsity during the first steps, one value for each `warmup_steps` steps, after which `sparsity` holds.
  std::vector<double> warmup = {0.75, 0.9375, 0.984375, 0.996};
  int64_t warmup_steps = 0;  // 0: no warm-up

  // What is sent dense, with momentum applied: tensors of fewer dimensions or elements than these, and those whose
  // name contains one of `dense_names`.
  int min_dimensions = 2;
  int64_t min_elements = 1024;
  std::vector<std::string> dense_names = {};

  // What becomes of elements of a gradient that are NaN or infinite: kDrop treats them as 0; kRefuse
  // refuses the tensor and leaves its state as it was, at the price of reading the gradient once more.
  enum class NonFinite : uint8_t { kDrop, kRefuse };
  NonFinite non_finite = NonFinite::kDrop;
};

using Compression =
    std::variant<NoCompression, Fp16, Bf16, Fp8, Int8, Int4, Sign, Ternary, TopK, RandomK, PowerSgd, Dgc>;

// "none", "fp16", "bf16", "fp8", "int8", "int4", "sign", "ternary", "topk", "randomk", "powersgd", "dgc".
GYRE_EXPORT std::string_view CompressionName(const Compression& compression);

// A name, with the defaults above; and "fp8-e5m2", "topk-sampled", "topk-global", "dgc-global". A number may follow:
// "topk:0.99", "randomk:0.9", "dgc:0.99" (sparsity), "powersgd:8" (rank). kInvalidArgument says what is wrong with it.
GYRE_EXPORT absl::StatusOr<Compression> ParseCompression(std::string_view text);

// kInvalidArgument names the option that is out of its range.
GYRE_EXPORT absl::Status Validate(const Compression& compression);

}  // namespace gyre
