#include "collectives/selection/selector.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <string_view>

namespace gyre::internal {

namespace {

constexpr int64_t kSmallestChunk = 1 << 20, kLargestChunk = 64 << 20;

// The three highest digits of a number, rounded up: sizes near each other are one case.
int64_t RoundedUp(int64_t bytes) {
  if (bytes < 8) return std::max<int64_t>(bytes, 1);
  const int digits = std::bit_width(static_cast<uint64_t>(bytes)) - 3;
  const int64_t unit = int64_t{1} << digits;
  return (bytes + unit - 1) / unit * unit;
}

// As pricing calls it.
std::string_view PricedName(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kHalvingDoubling: return "halving doubling";
    case Algorithm::kRecursiveDoubling: return "recursive doubling";
    case Algorithm::kDoubleTree: return "double tree";
    case Algorithm::kBruck: return "Bruck";
    default: return NameOf(algorithm);
  }
}

// The formulas hold where no reduction is slower than the wire.
PriceModel PriceModelOf(const PathModel& path, int rails) {
  const double wire = path.bytes_per_second / rails;
  return {.link = {std::chrono::nanoseconds(std::max<int64_t>(1, std::llround(path.latency * 1e9))), wire},
          .reduced_bytes_per_second = std::max(path.reduced_per_second, wire)};
}

}  // namespace

Selector::Selector(const PathModel& model, const ForcedAlgorithms& forced)
    : model_(model), forced_(forced), priced_(PricedAlgorithms()) {}

Selection Selector::Select(const SelectionCase& what) {
  SelectionCase rounded = what;
  rounded.bytes = RoundedUp(what.bytes);
  const Key key{rounded.operation, rounded.bytes, rounded.hosts, rounded.rails, rounded.local};
  std::lock_guard lock(mutex_);
  const auto [entry, is_new] = known_.try_emplace(key);
  if (is_new) entry->second = Work(rounded);
  return entry->second;
}

Selection Selector::Work(const SelectionCase& what) const {
  const auto forced = forced_.Of(what.operation);
  const std::span<const Algorithm> all = AlgorithmsOf(what.operation);
  const std::vector<Algorithm> candidates = forced ? std::vector{*forced} : std::vector(all.begin(), all.end());
  Selection best{.seconds = std::numeric_limits<double>::infinity()};
  const auto offer = [&](Algorithm algorithm, int64_t chunk, double seconds) {
    if (seconds < best.seconds) best = {algorithm, chunk, seconds};
  };
  for (const Algorithm algorithm : candidates) {
    if (what.operation != Collective::kAllReduce) {
      offer(algorithm, what.bytes, Predict(what.operation, algorithm, what.bytes / what.rails, what.hosts, what.rails));
    } else if (forced) {
      offer(algorithm, kForcedChunkBytes, PredictChunked(what, algorithm, kForcedChunkBytes));
    } else {
      for (int64_t chunk = kLargestChunk; chunk >= kSmallestChunk; chunk /= 2) {
        if (chunk > kSmallestChunk && chunk / 2 >= what.bytes) continue;  // as good as the next
        offer(algorithm, chunk, PredictChunked(what, algorithm, chunk));
      }
    }
  }
  return best;
}

// Chunks go through three stages that overlap: into the host's slices, between hosts, and back to all. Each of the two
// in memory is taken to cost about what reducing as many bytes does.
double Selector::PredictChunked(const SelectionCase& what, Algorithm algorithm, int64_t chunk) const {
  const auto between = [&](int64_t bytes) {
    return Predict(what.operation, algorithm, bytes / what.rails, what.hosts, what.rails);
  };
  const auto in_memory = [&](int64_t bytes) {
    return what.local > 1 ? static_cast<double>(bytes) / model_.reduced_per_second : 0;
  };
  const int64_t whole = what.bytes / chunk, rest = what.bytes % chunk;
  double seconds = 0;
  if (whole > 0) seconds += static_cast<double>(whole) * std::max(between(chunk), 2 * in_memory(chunk));
  if (rest > 0) seconds += std::max(between(rest), 2 * in_memory(rest));
  return seconds + 2 * in_memory(whole > 0 ? chunk : rest);
}

double Selector::ClosedForm(Collective operation, Algorithm algorithm, int hosts, int64_t block,
                            const PriceModel& model) const {
  const auto priced = std::ranges::find_if(priced_, [&](const PricedAlgorithm& candidate) {
    return candidate.operation == NameOf(operation) && candidate.name == PricedName(algorithm);
  });
  const auto seconds = priced == priced_.end() ? std::nullopt : priced->closed_form(hosts, block, model);
  return seconds.value_or(std::numeric_limits<double>::infinity());
}

double Selector::Predict(Collective operation, Algorithm algorithm, int64_t bytes, int hosts, int rails) const {
  const PriceModel model = PriceModelOf(model_, rails);
  const int blocks = BlocksOf(algorithm, hosts);
  const int64_t block = (bytes + blocks - 1) / blocks;
  if (operation == Collective::kAllReduce && algorithm == Algorithm::kDoubleTree) {
    return ClosedForm(Collective::kReduce, algorithm, hosts, block, model) +
           ClosedForm(Collective::kBroadcast, algorithm, hosts, block, model);
  }
  const bool folds = algorithm == Algorithm::kRecursiveDoubling || algorithm == Algorithm::kHalvingDoubling;
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(hosts)));
  if (!folds || core == hosts) return ClosedForm(operation, algorithm, hosts, block, model);
  // Those left over hand all they have to one of the others before, and get it back afterwards.
  const double wire = static_cast<double>(bytes + blocks * model.header_bytes) / model.link.bytes_per_second;
  const double reduced = static_cast<double>(std::min(bytes, model.grain)) / model.reduced_bytes_per_second;
  return ClosedForm(operation, algorithm, core, block, model) + 2 * (model_.latency + wire) + reduced;
}

}  // namespace gyre::internal
