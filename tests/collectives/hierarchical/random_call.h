// RandomCall: one call, as all ranks make it, the memory of each, and what must come of it.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collectives/call.h"
#include "collectives/hierarchical/expected.h"
#include "collectives/hierarchical/random_values.h"

namespace gyre {

class RandomCall {
 public:
  // Any kind, dtype, reduction and scale, those that are refused among them.
  RandomCall(std::mt19937_64& random, int size);

  bool TakesPart(int rank) const { return kind_ != internal::CallKind::kMessage || rank == root_ || rank == peer_; }

  internal::Call Of(int rank);

  // What every rank is told; empty: the call is right.
  std::string refusal() const;

  // What is wrong with the rank's memory after it; empty if nothing.
  std::string Wrong(int rank) const;

 private:
  struct Memory {
    std::vector<char> in, out;
    std::vector<char> given;  // what `in`, or the one buffer, held before
    int64_t in_count = 0, out_count = 0;
    std::vector<int64_t> sends, receives;
  };

  bool Reduces() const;
  bool UsesOneBuffer() const;
  int64_t Total() const;
  int64_t Entry(int from, int to) const { return matrix_[static_cast<size_t>(from * size_ + to)]; }
  void DrawScales(std::mt19937_64& random);
  void MakeMemory(int rank, const RandomValues& values);
  std::string WrongElement(int rank, int64_t index) const;
  std::pair<int, int64_t> SourceOf(int rank, int64_t index) const;

  const int size_;
  internal::CallKind kind_;
  DType dtype_;
  Reduction reduction_;
  int root_, peer_;
  int64_t count_;
  bool in_place_;
  std::vector<int64_t> counts_, matrix_;
  std::vector<Memory> memory_;           // by rank
  std::vector<ConstTensorView> inputs_;  // likewise: what was given
};

}  // namespace gyre
