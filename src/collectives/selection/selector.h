// Selector: which algorithm, and which chunk, a collective over hosts is carried out with: the one whose formula
// (pricing/closed_form.h) comes to the least for the network's latency, bandwidth and speed of reduction. All ranks
// must have been given the same numbers, so that they choose alike.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "collectives/pricing/closed_form.h"
#include "collectives/selection/algorithms.h"

namespace gyre::internal {

// What the network between hosts is taken for: the alpha, beta and gamma of the literature. The defaults are nominal.
struct PathModel {
  double latency = 20e-6;            // seconds, one way
  double bytes_per_second = 1.25e9;  // of a host, each way
  double reduced_per_second = 10e9;  // bytes of what arrives, by one rank
};

// What is to be chosen for. Equal on all ranks that take part.
struct SelectionCase {
  Collective operation = Collective::kAllReduce;
  int64_t bytes = 0;  // of the whole on one host, as gyre-bench's sizes count
  int hosts = 1;
  int rails = 1;  // that share the bytes, and a host's bandwidth
  int local = 1;  // ranks of the largest host
};

struct Selection {
  Algorithm algorithm = Algorithm::kRing;
  int64_t chunk_bytes = 0;  // of an allreduce: so much goes through the host's memory and the network at a time
  double seconds = 0;       // predicted, for the whole
};

// Thread-safe.
class Selector {
 public:
  explicit Selector(const PathModel& model, const ForcedAlgorithms& forced = {});

  const PathModel& model() const { return model_; }

  // Nothing is forced, nor is the model nominal because somebody wanted the same choices in every run.
  bool may_be_refined() const { return forced_.ToString().empty(); }

  // For so many bytes, rounded up a little (by a quarter at most), and remembered. A forced algorithm comes with
  // kForcedChunkBytes, so that its results do not depend on the model: they are the same bits in every run.
  Selection Select(const SelectionCase& what);

  // Seconds between hosts of one algorithm, for the bytes of one rail. An estimate where there is no formula: for ranks
  // left over from a power of two, and for the double tree's allreduce.
  double Predict(Collective operation, Algorithm algorithm, int64_t bytes, int hosts, int rails) const;

  static constexpr int64_t kForcedChunkBytes = 8 << 20;

 private:
  Selection Work(const SelectionCase& what) const;
  double PredictChunked(const SelectionCase& what, Algorithm algorithm, int64_t chunk) const;
  double ClosedForm(Collective operation, Algorithm algorithm, int hosts, int64_t block, const PriceModel& model) const;

  const PathModel model_;
  const ForcedAlgorithms forced_;
  const std::vector<PricedAlgorithm> priced_;

  using Key = std::tuple<Collective, int64_t, int, int, int>;
  std::mutex mutex_;
  std::map<Key, Selection> known_;  // guarded by mutex_
};

}  // namespace gyre::internal
