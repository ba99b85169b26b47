// PowerSGD's passes over a matrix (compression/power_sgd.h), as kernels, with the bits that the CPU gives, but for the
// payloads of NaNs:
//   MakeP    matrix += gradient, and P = matrix Q
//   MakeQ    Q = matrix^T P
//   Finish   result = scale P Q^T, and what the matrix has more than P Q^T stays there
//
// Both products are sums along one side of the matrix, which is cut there into pieces of a fixed length. A team adds up
// a piece, and the pieces' sums are added up in their order by a kernel of their own: how many teams share the work
// changes no bit. What a team needs of the matrix it reads once for kRankGroup columns of the factor; of more columns
// it reads the same tile again, which the caches may still have.
#pragma once

#include <cstdint>

#include "device/kernels/element.h"
#include "device/kernels/team.h"

namespace gyre::device::kernels {

enum class LowRankPass { kMakeP, kMakeQ, kFinish };

constexpr int kMostRank = 64;
constexpr int64_t kPieceColumns = 2048;  // of the sums that P is
constexpr int64_t kPieceRows = 256;      // of those that Q is
constexpr int kDotParts = 16;            // of a sum along a row: part k has every 16th element from k on

// One matrix. Plain data: it is passed to kernels as it is.
struct LowRankMatrix {
  const float* gradient;  // rows x columns, row after row, as all but the factors; of MakeP alone
  float* result;          // of Finish alone; may be the gradient
  float* matrix;          // what is kept; from MakeP to Finish with the gradient
  float* p;               // rows x rank, column after column
  float* q;               // columns x rank, likewise
  float* parts;           // LowRankParts floats, for MakeP and MakeQ; on the CPU nothing
  int64_t rows, columns;  // at least 1
  int rank;               // 1 to kMostRank
  float scale;            // of the result
};

constexpr int64_t CountPieces(int64_t length, int64_t piece) {
  return (length + piece - 1) / piece;
}

// How many floats the sums of pieces are.
constexpr int64_t LowRankParts(int64_t rows, int64_t columns, int rank) {
  const int64_t p = rows * CountPieces(columns, kPieceColumns), q = columns * CountPieces(rows, kPieceRows);
  return (p > q ? p : q) * rank;
}

constexpr int kLowRankThreads = 256;  // of a team
constexpr int kRankGroup = 8;         // columns of a factor that are added up at once, in registers

GYRE_GPU inline int GroupAt(const LowRankMatrix& m, int first) {
  return m.rank - first < kRankGroup ? m.rank - first : kRankGroup;
}

// What thread `thread` of `threads` does to add up pieces' sums.
GYRE_GPU inline void AddPieces(const float* parts, float* to, int64_t count, int64_t pieces, int64_t thread,
                               int64_t threads) {
  for (int64_t i = thread; i < count; i += threads) {
    float sum = parts[i];
    for (int64_t piece = 1; piece < pieces; ++piece) sum += parts[piece * count + i];
    to[i] = sum;
  }
}

// --- MakeP: kDotParts threads for each row of a tile ---

constexpr int kDotRows = kLowRankThreads / kDotParts;

struct DotShared {
  float parts[kDotRows * kRankGroup][kDotParts + 1];  // with gaps, for shared memory has 32 banks
  float tails[kDotRows * kRankGroup][kDotParts + 1];  // products of the elements behind the last whole kDotParts
};

// What a thread adds up of `row` in the piece [begin, end) of columns, for the group of columns of Q that begins with
// `first`. The first group of all is where the gradient is added.
GYRE_GPU inline void DotOwn(const LowRankMatrix& m, int64_t row, int64_t begin, int64_t end, int first, int thread,
                            DotShared& shared) {
  constexpr int kAhead = 4;  // loads before anything is used
  const int lane = thread % kDotParts, group = GroupAt(m, first);
  const bool adds = first == 0;
  float* const matrix = m.matrix + row * m.columns;
  const float* const gradient = m.gradient + row * m.columns;
  const float* const q = m.q + first * m.columns;
  const int64_t whole = begin + (end - begin) / kDotParts * kDotParts;
  float sums[kRankGroup] = {};
  for (int64_t j = begin + lane; j < whole; j += kAhead * kDotParts) {
    float own[kAhead], given[kAhead];
    GYRE_GPU_UNROLL
    for (int a = 0; a < kAhead; ++a) {
      const int64_t at = j + a * kDotParts;
      own[a] = at < whole ? matrix[at] : 0.0f;
      given[a] = adds && at < whole ? gradient[at] : 0.0f;
    }
    GYRE_GPU_UNROLL
    for (int a = 0; a < kAhead; ++a) {
      const int64_t at = j + a * kDotParts;
      if (at >= whole) continue;
      if (adds) matrix[at] = own[a] = own[a] + given[a];
      GYRE_GPU_UNROLL
      for (int k = 0; k < kRankGroup; ++k) {
        if (k < group) sums[k] += own[a] * q[k * m.columns + at];
      }
    }
  }
  const int64_t tail = whole + lane;
  if (adds && tail < end) matrix[tail] += gradient[tail];
  GYRE_GPU_UNROLL
  for (int k = 0; k < kRankGroup; ++k) {
    const int place = thread / kDotParts * kRankGroup + k;
    shared.parts[place][lane] = sums[k];
    if (k < group && tail < end) shared.tails[place][lane] = matrix[tail] * q[k * m.columns + tail];
  }
}

constexpr int64_t MakePTiles(const LowRankMatrix& m) {
  return CountPieces(m.rows, kDotRows) * CountPieces(m.columns, kPieceColumns);
}

// Tile `number`. A Team of kLowRankThreads.
template <class Team>
GYRE_GPU void MakePTile(Team& team, const LowRankMatrix& m, int64_t number, DotShared& shared) {
  static_assert(Team::kThreads == kLowRankThreads);
  const int64_t high = CountPieces(m.rows, kDotRows), piece = number / high, top = number % high * kDotRows;
  const int64_t begin = piece * kPieceColumns;
  const int64_t end = begin + kPieceColumns < m.columns ? begin + kPieceColumns : m.columns;
  const auto tail = static_cast<int>((end - begin) % kDotParts);
  for (int first = 0; first < m.rank; first += kRankGroup) {
    team.Each([&](int thread) {
      const int64_t row = top + thread / kDotParts;
      if (row < m.rows) DotOwn(m, row, begin, end, first, thread, shared);
    });
    team.Each([&](int thread) {
      const int k = thread / kDotRows;
      const int64_t row = top + thread % kDotRows;
      if (k >= GroupAt(m, first) || row >= m.rows) return;
      const int place = thread % kDotRows * kRankGroup + k;
      float sum = 0;
      for (int i = 0; i < tail; ++i) sum += shared.tails[place][i];
      for (int i = 0; i < kDotParts; ++i) sum += shared.parts[place][i];
      m.parts[(piece * m.rank + first + k) * m.rows + row] = sum;
    });
  }
}

// What team `number` of `teams` does; then AddPieces makes P.
template <class Team>
GYRE_GPU void MakePShare(Team& team, const LowRankMatrix& m, int64_t number, int64_t teams, DotShared& shared) {
  for (int64_t tile = number; tile < MakePTiles(m); tile += teams) MakePTile(team, m, tile, shared);
}

GYRE_GPU inline void AddUpP(const LowRankMatrix& m, int64_t thread, int64_t threads) {
  AddPieces(m.parts, m.p, m.rows * m.rank, CountPieces(m.columns, kPieceColumns), thread, threads);
}

// --- MakeQ: a thread for each column of a tile ---

struct ColumnsShared {
  float p[kRankGroup][kPieceRows];
};

// Sums down column `column` of the piece whose first row is `top`, of `rows` rows.
GYRE_GPU inline void SumColumn(const LowRankMatrix& m, int64_t top, int rows, int64_t column, int first,
                               const ColumnsShared& shared) {
  constexpr int kAhead = 8;
  const int group = GroupAt(m, first);
  const float* const matrix = m.matrix + top * m.columns + column;
  float sums[kRankGroup] = {};
  for (int i = 0; i < rows; i += kAhead) {
    float own[kAhead];
    GYRE_GPU_UNROLL
    for (int a = 0; a < kAhead; ++a) own[a] = i + a < rows ? matrix[(i + a) * m.columns] : 0.0f;
    GYRE_GPU_UNROLL
    for (int a = 0; a < kAhead; ++a) {
      if (i + a >= rows) continue;
      GYRE_GPU_UNROLL
      for (int k = 0; k < kRankGroup; ++k) {
        if (k < group) sums[k] += shared.p[k][i + a] * own[a];
      }
    }
  }
  const int64_t piece = top / kPieceRows;
  GYRE_GPU_UNROLL
  for (int k = 0; k < kRankGroup; ++k) {
    if (k < group) m.parts[(piece * m.rank + first + k) * m.columns + column] = sums[k];
  }
}

constexpr int64_t MakeQTiles(const LowRankMatrix& m) {
  return CountPieces(m.columns, kLowRankThreads) * CountPieces(m.rows, kPieceRows);
}

template <class Team>
GYRE_GPU void MakeQTile(Team& team, const LowRankMatrix& m, int64_t number, ColumnsShared& shared) {
  static_assert(Team::kThreads == kLowRankThreads && kPieceRows == kLowRankThreads);
  const int64_t wide = CountPieces(m.columns, kLowRankThreads);
  const int64_t top = number / wide * kPieceRows, left = number % wide * kLowRankThreads;
  const int rows = m.rows - top < kPieceRows ? static_cast<int>(m.rows - top) : static_cast<int>(kPieceRows);
  for (int first = 0; first < m.rank; first += kRankGroup) {
    team.Each([&](int thread) {
      if (thread >= rows) return;
      for (int k = 0; k < GroupAt(m, first); ++k) shared.p[k][thread] = m.p[(first + k) * m.rows + top + thread];
    });
    team.Each([&](int thread) {
      if (left + thread < m.columns) SumColumn(m, top, rows, left + thread, first, shared);
    });
  }
}

template <class Team>
GYRE_GPU void MakeQShare(Team& team, const LowRankMatrix& m, int64_t number, int64_t teams, ColumnsShared& shared) {
  for (int64_t tile = number; tile < MakeQTiles(m); tile += teams) MakeQTile(team, m, tile, shared);
}

GYRE_GPU inline void AddUpQ(const LowRankMatrix& m, int64_t thread, int64_t threads) {
  AddPieces(m.parts, m.q, m.columns * m.rank, CountPieces(m.rows, kPieceRows), thread, threads);
}

// --- Finish: a thread for each column of a tile ---

constexpr int kFinishRows = 32;

struct FinishShared {
  float p[kMostRank][kFinishRows];
};

GYRE_GPU inline void FinishColumn(const LowRankMatrix& m, int64_t top, int rows, int64_t column,
                                  const FinishShared& shared) {
  constexpr int kAtOnce = 4;
  for (int i = 0; i < rows; i += kAtOnce) {
    const int64_t at = (top + i) * m.columns + column;
    float own[kAtOnce], sums[kAtOnce] = {};
    GYRE_GPU_UNROLL
    for (int a = 0; a < kAtOnce; ++a) own[a] = i + a < rows ? m.matrix[at + a * m.columns] : 0.0f;
    for (int k = 0; k < m.rank; ++k) {
      const float q = m.q[k * m.columns + column];
      GYRE_GPU_UNROLL
      for (int a = 0; a < kAtOnce; ++a) sums[a] += shared.p[k][i + a] * q;
    }
    GYRE_GPU_UNROLL
    for (int a = 0; a < kAtOnce; ++a) {
      if (i + a >= rows) continue;
      const float left = own[a] - sums[a];
      m.matrix[at + a * m.columns] = (Bits(left) & kInfinityBits) == kInfinityBits ? 0.0f : left;
      m.result[at + a * m.columns] = sums[a] * m.scale;
    }
  }
}

constexpr int64_t FinishTiles(const LowRankMatrix& m) {
  return CountPieces(m.columns, kLowRankThreads) * CountPieces(m.rows, kFinishRows);
}

template <class Team>
GYRE_GPU void FinishTile(Team& team, const LowRankMatrix& m, int64_t number, FinishShared& shared) {
  static_assert(Team::kThreads == kLowRankThreads);
  const int64_t wide = CountPieces(m.columns, kLowRankThreads);
  const int64_t top = number / wide * kFinishRows, left = number % wide * kLowRankThreads;
  const int rows = m.rows - top < kFinishRows ? static_cast<int>(m.rows - top) : kFinishRows;
  team.Each([&](int thread) {
    for (int e = thread; e < m.rank * kFinishRows; e += kLowRankThreads) {
      const int k = e / kFinishRows, i = e % kFinishRows;
      shared.p[k][i] = i < rows ? m.p[k * m.rows + top + i] : 0.0f;
    }
  });
  team.Each([&](int thread) {
    if (left + thread < m.columns) FinishColumn(m, top, rows, left + thread, shared);
  });
}

template <class Team>
GYRE_GPU void FinishShare(Team& team, const LowRankMatrix& m, int64_t number, int64_t teams, FinishShared& shared) {
  for (int64_t tile = number; tile < FinishTiles(m); tile += teams) FinishTile(team, m, tile, shared);
}

}  // namespace gyre::device::kernels
