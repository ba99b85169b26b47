#include "compression/split_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compression/payload.h"
#include "compression/quantize.h"

namespace gyre::compression {

namespace {

// Calls `visit` with each place in [begin, end) that is not 0, ascending. Of sums few are: blocks of zeros are passed
// over, of either sign.
template <typename Visit>
void ForEachNonZero(std::span<const float> values, int64_t begin, int64_t end, Visit visit) {
  constexpr size_t kBlock = 32;
  auto i = static_cast<size_t>(begin);
  const auto stop = static_cast<size_t>(end);
  const auto look = [&](size_t count) {
    for (const size_t after = i + count; i < after; ++i) {
      if (values[i] != 0) visit(i);
    }
  };
  while (stop - i >= kBlock) {
    uint32_t any = 0;
    for (size_t j = 0; j < kBlock; ++j) any |= std::bit_cast<uint32_t>(values[i + j]);
    if (any << 1 != 0) {
      look(kBlock);
    } else {
      i += kBlock;
    }
  }
  look(stop - i);
}

}  // namespace

std::vector<int64_t> EvenCuts(int64_t count, int parts) {
  std::vector<int64_t> cuts;
  for (int part = 0; part <= parts; ++part) cuts.push_back(count / parts * part + count % parts * part / parts);
  return cuts;
}

int64_t BalancedCut(std::span<const uint32_t> positions, int64_t count, int part, int parts) {
  if (part == 0) return 0;
  if (positions.empty()) return count / parts * part + count % parts * part / parts;
  const size_t before = positions.size() * static_cast<size_t>(part) / static_cast<size_t>(parts);
  return positions[before];
}

Evened EvenOut(std::span<const int64_t> bytes, int rank) {
  const auto ranks = static_cast<int>(bytes.size());
  const auto cuts = EvenCuts(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}), ranks);
  std::vector<int64_t> begins(1, 0);
  for (const int64_t each : bytes) begins.push_back(begins.back() + each);
  const auto shared = [&](int from, int to) {
    const auto giver = static_cast<size_t>(from), taker = static_cast<size_t>(to);
    const int64_t begin = std::max(begins[giver], cuts[taker]), end = std::min(begins[giver + 1], cuts[taker + 1]);
    return std::max<int64_t>(0, end - begin);
  };
  Evened evened;
  for (int other = 0; other < ranks; ++other) {
    evened.given.push_back(shared(rank, other));
    evened.taken.push_back(shared(other, rank));
    evened.held.push_back(cuts[static_cast<size_t>(other) + 1] - cuts[static_cast<size_t>(other)]);
  }
  return evened;
}

bool IsUneven(std::span<const int64_t> bytes) {
  constexpr int64_t kWorthACall = 64 << 10;
  const int64_t most = std::ranges::max(bytes), all = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  return most >= kWorthACall && most * std::ssize(bytes) > 4 * all;
}

double UnionDensity(double density, int ranks) {
  return 1 - std::pow(1 - density, ranks);
}

void RegionSum::AppendMagnitudes(int64_t begin, int64_t end, std::vector<float>& out) const {
  ForEachNonZero(sum_, begin, end, [&](size_t i) {
    if (const float magnitude = std::abs(sum_[i]); magnitude > 0) out.push_back(magnitude);
  });
}

// NaN stays.
void RegionSum::Drop(int64_t begin, int64_t end, float threshold) {
  ForEachNonZero(sum_, begin, end, [&](size_t i) {
    if (std::abs(sum_[i]) <= threshold) sum_[i] = 0;
  });
}

void RegionSum::Encode(const SparseOptions& options, std::vector<std::byte>& out) {
  positions_.clear();
  values_.clear();
  ForEachNonZero(sum_, 0, std::ssize(sum_), [&](size_t i) {
    positions_.push_back(static_cast<uint32_t>(i));
    values_.push_back(sum_[i]);
  });
  const auto count = static_cast<int64_t>(sum_.size());
  const PayloadKind dense = DenseKindOf(options.values);
  const size_t dense_bytes = kPayloadHeaderBytes + static_cast<size_t>(QuantizedBytes(dense, count));
  EncodeSparse(positions_, values_, count, options, out);
  if (out.size() <= dense_bytes) {
    for (size_t i = 0; i < positions_.size(); ++i) sum_[positions_[i]] = values_[i];  // the rounding errors
    return;
  }
  out.resize(dense_bytes);
  StoreHeader(out.data(), {dense, 0, count});
  Quantize(dense, nullptr, sum_.data(), count, 0, out.data() + kPayloadHeaderBytes);
}

absl::Status RegionReader::Read(std::span<const std::byte> bytes, int64_t count) {
  const auto header = LoadHeader(bytes);
  if (!header || header->count != count) {
    return absl::DataLossError(absl::StrCat("payload: none of a region of ", count, " elements"));
  }
  dense_ = header->kind != PayloadKind::kSparse;
  if (!dense_) return sparse_.Decode(bytes, count);
  values_.assign(static_cast<size_t>(count), 0.0f);
  RETURN_IF_ERROR(decoder_.DecodeAdd(bytes, 1, values_));
  positions_.resize(values_.size());
  std::iota(positions_.begin(), positions_.end(), 0u);
  return absl::OkStatus();
}

}  // namespace gyre::compression
