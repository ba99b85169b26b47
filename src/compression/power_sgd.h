// PowerSGD: a matrix M as P Q^T with few columns (Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient
// Compression for Distributed Optimization", NeurIPS 2019, algorithms 1 and 2). One step of power iteration, begun
// where the last step ended. Between the calls the caller averages the factors over the ranks:
//
//   P = MakeP(gradient); average P; Q = MakeQ(); average Q; Finish(gradient')
//
// Averages that have the same bits on all ranks give the same bits everywhere. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "gyre/compression.h"

namespace gyre::compression {

// One matrix. Not thread-safe.
class PowerSgdTensor {
 public:
  // Of rows x columns elements, row after row. The rank is at most the smaller of both. `seed`: the same on all ranks.
  // kInvalidArgument: a rank out of range, rows or columns below 1.
  static absl::StatusOr<PowerSgdTensor> Create(const PowerSgd& options, int64_t rows, int64_t columns, uint64_t seed);

  // P = (gradient + kept) Q: rows x rank, column after column. REQUIRES: as many elements as the matrix
  std::span<float> MakeP(std::span<const float> gradient);

  // Makes the columns of the averaged P orthonormal (Gram and Schmidt), and Q = M^T P: columns x rank, column after
  // column.
  std::span<float> MakeQ();

  // P Q^T of the averaged factors into `out`; what this rank's matrix is more than that is kept for the next step, but
  // for what is not finite. Of a factor that is not finite the next step begins with lots.
  // REQUIRES: as many elements as the matrix
  void Finish(std::span<float> out);

  int rank() const { return rank_; }
  std::span<float> kept() { return matrix_; }  // between Finish and MakeP

 private:
  PowerSgdTensor(int64_t rows, int64_t columns, int rank, uint64_t seed);
  void Orthonormalize();
  void Project(size_t r);
  void FillWithLots(std::span<float> values);

  size_t rows_, columns_;
  int rank_;
  std::vector<float> matrix_;  // M, and between steps what is kept
  std::vector<float> p_, q_;
  uint64_t lots_;
};

}  // namespace gyre::compression
