// Cases of PowerSGD's passes: 256 MiB of gradients as one matrix, and as much that is kept, of rank 4.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compression/power_sgd.h"
#include "device/gpu_codecs.h"
#include "gpu/cases.h"
#include "gpu/check.h"
#include "gyre/status_macros.h"

namespace gyre::bench::gpu {

namespace {

using device::kernels::kPieceRows;
using device::kernels::LowRankMatrix;
using device::kernels::LowRankPass;

constexpr int kRank = 4;
constexpr int64_t kColumns = 1024;

// Of a matrix the first and the last rows, in whole pieces of sums; all of a small one.
std::vector<Window> RowsOf(int64_t rows) {
  constexpr int64_t kLooked = 2 * kPieceRows;
  if (rows <= 2 * kLooked) return {{0, rows}};
  return {{0, kLooked}, {rows - kLooked, kLooked}};
}

// The rows that are looked at as a matrix of their own on the host: all others are 0, and add nothing.
struct Rows {
  explicit Rows(int64_t count)
      : gradient(Noise(count * kColumns, 1)),
        matrix(Noise(count * kColumns, 2)),
        p(Noise(count * kRank, 3)),
        q(Noise(kColumns * kRank, 4)) {}

  LowRankMatrix On() {
    return {.gradient = gradient.data(),
            .result = gradient.data(),
            .matrix = matrix.data(),
            .p = p.data(),
            .q = q.data(),
            .parts = nullptr,
            .rows = std::ssize(p) / kRank,
            .columns = kColumns,
            .rank = kRank,
            .scale = 1};
  }

  std::vector<float> gradient, matrix, p, q;
};

// Calls body(there, here, count) for each run of elements that is looked at and lies in one piece on both.
template <class Body>
absl::Status ForEachRun(const LowRankMatrix& there, Rows& here, const Body& body) {
  const LowRankMatrix own = here.On();
  int64_t row = 0;
  for (const Window& window : RowsOf(there.rows)) {
    const int64_t from = window.first * kColumns, to = row * kColumns, count = window.count * kColumns;
    RETURN_IF_ERROR(body(there.result + from, own.result + to, count));
    RETURN_IF_ERROR(body(there.matrix + from, own.matrix + to, count));
    for (int64_t r = 0; r < kRank; ++r) {
      RETURN_IF_ERROR(body(there.p + r * there.rows + window.first, own.p + r * own.rows + row, window.count));
    }
    row += window.count;
  }
  return body(there.q, own.q, kColumns * kRank);
}

absl::Status CheckPass(Cases& cases, LowRankPass pass, const LowRankMatrix& there, const Run& run) {
  int64_t count = 0;
  for (const Window& window : RowsOf(there.rows)) count += window.count;
  Rows here(count);
  RETURN_IF_ERROR(cases.Zero(there.matrix, there.rows * kColumns * kFloatBytes));
  RETURN_IF_ERROR(cases.Zero(there.p, there.rows * kRank * kFloatBytes));
  RETURN_IF_ERROR(ForEachRun(there, here, [&](float* to, const float* from, int64_t elements) {
    return cases.Put(to, std::vector<float>(from, from + elements));
  }));
  RETURN_IF_ERROR(run());
  compression::RunPass(pass, here.On());
  return ForEachRun(there, here, [&](const float* got_at, const float* expected, int64_t elements) -> absl::Status {
    ASSIGN_OR_RETURN(const auto got, cases.Get<float>(got_at, elements));
    return CheckSame("a factor, or the matrix", got, std::vector<float>(expected, expected + elements));
  });
}

}  // namespace

absl::Status AddLowRank(Cases& cases) {
  const int64_t rows = cases.buffer_bytes() / (kColumns * kFloatBytes);
  const int64_t factors = (rows + kColumns) * kRank * kFloatBytes;
  ASSIGN_OR_RETURN(std::byte* const gradient, cases.Buffer(0));
  ASSIGN_OR_RETURN(std::byte* const matrix, cases.Buffer(1));
  ASSIGN_OR_RETURN(std::byte* const both, cases.Allocate(factors));
  ASSIGN_OR_RETURN(std::byte* const parts,
                   cases.Allocate(device::kernels::LowRankParts(rows, kColumns, kRank) * kFloatBytes));
  auto* const p = reinterpret_cast<float*>(both);
  const LowRankMatrix there{.gradient = reinterpret_cast<float*>(gradient),
                            .result = reinterpret_cast<float*>(gradient),
                            .matrix = reinterpret_cast<float*>(matrix),
                            .p = p,
                            .q = p + rows * kRank,
                            .parts = reinterpret_cast<float*>(parts),
                            .rows = rows,
                            .columns = kColumns,
                            .rank = kRank,
                            .scale = 1};
  const auto add = [&](const char* name, LowRankPass pass, int64_t arrays) {
    cases.Add({"low rank", absl::StrCat("PowerSGD, rank ", kRank, ", ", name), arrays * cases.buffer_bytes() + factors,
               [=, &cases] {
                 return cases.gpu().codecs().LowRank(pass, {&there, 1}, cases.stream());
               },
               [=, &cases](const Run& run) { return CheckPass(cases, pass, there, run); }});
  };
  // The gradient is read, what is kept read and written; the matrix is read; the result is written, what is kept read
  // and written. Of the factors, one is read and the other written, or both are read.
  add("P = M Q", LowRankPass::kMakeP, 3);
  add("Q = M^T P", LowRankPass::kMakeQ, 1);
  add("P Q^T and what is kept", LowRankPass::kFinish, 3);
  return absl::OkStatus();
}

}  // namespace gyre::bench::gpu
