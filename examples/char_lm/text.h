// The text: read, turned into symbols, and divided into what is trained on and what is held out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model.h"

namespace char_lm {

// The whole file; of any content. With an empty path: the licence texts in /usr/share/common-licenses, one after the
// other in the order of their names (links left out).
absl::StatusOr<std::string> ReadText(const std::string& path);

// Immutable once made; every rank holds the whole text.
struct Corpus {
  std::vector<uint8_t> symbols;  // the text; each byte as its place in `alphabet`
  std::string alphabet;          // the bytes that occur, in order
  int64_t training = 0;          // symbols [0, training) are trained on, the rest is held out
  uint64_t hash = 0;             // of the text and of how it is divided

  int64_t heldout() const { return static_cast<int64_t>(symbols.size()) - training; }
};

// What is held out is the end of the text, `heldout_fraction` of it (above 0, below 1) but kMaxHeldout at most, so that
// evaluating a large text stays quick.
inline constexpr int64_t kMaxHeldout = 200'000;

// kInvalidArgument if the text is too short for a model that sees `context` characters back.
absl::StatusOr<Corpus> MakeCorpus(std::string_view text, double heldout_fraction, int context);

// A range of numbers [first, last).
struct Range {
  int64_t first = 0;
  int64_t last = 0;
  int64_t size() const { return last - first; }
};

// Rank `rank`'s part of `count` things: parts follow one another and differ in size by one at most.
Range Shard(int64_t count, int rank, int size);

// The samples of numbers `range` in the global batch of a step. Which they are depends on seed, step and number alone,
// not on how many ranks there are.
void DrawSamples(const Corpus& corpus, int context, uint64_t seed, int64_t step, Range range, Samples& samples);

// The samples whose targets are the symbols at `positions` of the text. REQUIRES: positions.first >= context.
void TakeSamples(const Corpus& corpus, int context, Range positions, Samples& samples);

}  // namespace char_lm
