#include "runtime/host_reduction.h"

#include <numeric>
#include <utility>

namespace gyre::internal {

void HostReduction::Add(std::span<float> values) {
  std::vector<int64_t> counts;
  for (int piece = 0; piece < pieces_.pieces(); ++piece) {
    counts.push_back(pieces_.Of(std::ssize(values), piece).count);
  }
  Add(values, std::move(counts));
}

void HostReduction::Add(std::span<float> values, std::vector<int64_t> counts) {
  counts.resize(static_cast<size_t>(pieces_.host_size(pieces_.host(rank_))));
  waiting_.push_back({values, std::move(counts)});
}

std::optional<Call> HostReduction::Next() {
  if (waiting_.empty()) return std::nullopt;
  current_ = std::move(waiting_.front());
  waiting_.pop_front();
  const auto local = pieces_.local(rank_);
  const int64_t begin = std::accumulate(current_.counts.begin(), current_.counts.begin() + local, int64_t{0});
  float* const data = current_.values.data();
  return Call{.kind = CallKind::kReduceScatter,
              .in = {data, std::ssize(current_.values), DType::kF32},
              .out = {data + begin, current_.counts[static_cast<size_t>(local)], DType::kF32},
              .counts = current_.counts};
}

}  // namespace gyre::internal
