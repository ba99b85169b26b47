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
#include "device/kernels/low_rank.h"
#include "gyre/compression.h"

namespace gyre::compression {

// Does a pass over a matrix in the host's memory (device/kernels/low_rank.h says what each is): with the additions in
// the order in which a GPU makes them, so that the bits are the same.
void RunPass(device::kernels::LowRankPass pass, const device::kernels::LowRankMatrix& m);

// What of one matrix is small, and lies on the host also where the matrix does not: how to orthonormalise P, and the Q
// that the next step begins with. Not thread-safe.
class PowerSgdFactors {
 public:
  // The rank is at most the smaller of rows and columns. `seed`: the same on all ranks.
  // kInvalidArgument: a rank out of range, rows or columns below 1.
  static absl::StatusOr<PowerSgdFactors> Create(const PowerSgd& options, int64_t rows, int64_t columns, uint64_t seed);

  // Makes the columns of the averaged P, rows x rank, column after column, orthonormal (Gram and Schmidt).
  void Orthonormalize(std::span<float> p);

  // Columns x rank, column after column, which the step begins with; the averaged one, which the next begins with: of
  // one that is not finite, with lots.
  std::span<const float> q() const { return q_; }
  void Keep(std::span<const float> averaged);

  // What lots follow from. With q(), all that the next step begins with; Restore takes both from other factors of the
  // same size.
  uint64_t lots() const { return lots_; }
  void Restore(std::span<const float> q, uint64_t lots);

  int rank() const { return rank_; }
  int64_t rows() const { return static_cast<int64_t>(rows_); }
  int64_t columns() const { return static_cast<int64_t>(columns_); }
  size_t p_size() const { return rows_ * static_cast<size_t>(rank_); }

 private:
  PowerSgdFactors(int64_t rows, int64_t columns, int rank, uint64_t seed);
  void Project(std::span<float> p, size_t r) const;
  void FillWithLots(std::span<float> values);

  size_t rows_, columns_;
  int rank_;
  std::vector<float> q_;
  uint64_t lots_;
};

// One matrix in the host's memory. Not thread-safe.
class PowerSgdTensor {
 public:
  // Of rows x columns elements, row after row. The rest as PowerSgdFactors::Create.
  static absl::StatusOr<PowerSgdTensor> Create(const PowerSgd& options, int64_t rows, int64_t columns, uint64_t seed);

  // P = (gradient + kept) Q: rows x rank, column after column. REQUIRES: as many elements as the matrix
  std::span<float> MakeP(std::span<const float> gradient);

  // Makes the columns of the averaged P orthonormal, and Q = M^T P: columns x rank, column after column.
  std::span<float> MakeQ();

  // P Q^T of the averaged factors into `out`; what this rank's matrix is more than that is kept for the next step, but
  // for what is not finite. REQUIRES: as many elements as the matrix
  void Finish(std::span<float> out);

  int rank() const { return factors_.rank(); }
  std::span<float> kept() { return matrix_; }  // between Finish and MakeP

 private:
  explicit PowerSgdTensor(PowerSgdFactors factors);
  device::kernels::LowRankMatrix Whole();

  PowerSgdFactors factors_;
  std::vector<float> matrix_;  // M, and between steps what is kept
  std::vector<float> p_, q_;
};

}  // namespace gyre::compression
