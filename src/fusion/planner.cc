#include "fusion/planner.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

namespace gyre::fusion {

namespace {

constexpr double kTolerance = 0.01;  // of the uncovered time: what fewer buckets are worth
constexpr size_t kMostPieces = 512;
constexpr int64_t kPiecesOfAll = 256;
constexpr double kMostBytes = 8 << 20, kMostOfFixed = 4;
constexpr double kNever = std::numeric_limits<double>::infinity();

double Cost(const CostModel& model, int64_t bytes) {
  return model.seconds_per_bucket + static_cast<double>(bytes) * model.seconds_per_byte;
}

int64_t MostBytes(const CostModel& model, double grain) {
  constexpr double kAll = int64_t{1} << 62;
  const double bytes =
      model.seconds_per_byte > 0 ? kMostOfFixed * model.seconds_per_bucket / model.seconds_per_byte : kAll;
  return static_cast<int64_t>(std::clamp(bytes, grain * kMostBytes, kAll));
}

// The buckets of one plan, cut wherever the other one has a border as well.
Plan Refine(const Plan& plan, const Plan& other, std::span<const TensorInfo> tensors) {
  std::vector<size_t> bucket_of(tensors.size());
  for (size_t b = 0; b < other.buckets.size(); ++b) {
    for (const int tensor : other.buckets[b].tensors) bucket_of[static_cast<size_t>(tensor)] = b;
  }
  Plan refined;
  for (const Bucket& bucket : plan.buckets) {
    std::vector<int> members;
    for (const int tensor : bucket.tensors) {
      const bool cut =
          !members.empty() && bucket_of[static_cast<size_t>(tensor)] != bucket_of[static_cast<size_t>(members.back())];
      if (cut) refined.buckets.push_back(MakeBucket(tensors, std::exchange(members, {})));
      members.push_back(tensor);
    }
    refined.buckets.push_back(MakeBucket(tensors, std::move(members)));
  }
  return refined;
}

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Tensors of one dtype, by the position in the order of readiness that a prefix of all tensors ends at.
struct Prefixes {
  DType dtype;
  std::vector<int64_t> bytes;  // of those before the position
  std::vector<size_t> last;    // the position after the last of them; 0: there is none
};

// The tensors in the order in which they become ready, in pieces that stay together.
class Timeline {
 public:
  Timeline(std::span<const TensorInfo> tensors, std::span<const double> ready, const CostModel& model)
      : tensors_(tensors), ready_(ready), model_(model), order_(tensors.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(order_, {}, [&](int tensor) { return ready_[static_cast<size_t>(tensor)]; });
    for (const TensorInfo& tensor : tensors) AddDtype(tensor.dtype);
    CutIntoPieces();
  }

  size_t pieces() const { return ends_.size() - 1; }

  // The first piece of the longest interval that ends before `past`: of at most `bytes`, or one piece.
  size_t FurthestFirst(size_t past, int64_t bytes) const {
    size_t first = past - 1;
    while (first > 0 && BytesBefore(past) - BytesBefore(first - 1) <= bytes) --first;
    return first;
  }
  double last_ready() const { return ReadyAt(order_.size() - 1); }

  // When pieces [first, past) are reduced if all before them are at `start`: a bucket for each dtype.
  double Finish(double start, size_t first, size_t past) const {
    for (const Prefixes* prefixes : InOrderOfEnds(past)) {
      const size_t last = prefixes->last[ends_[past]];
      if (last <= ends_[first]) continue;
      start = std::max(start, ReadyAt(last - 1)) +
              Cost(model_, prefixes->bytes[ends_[past]] - prefixes->bytes[ends_[first]]);
    }
    return start;
  }

  void AppendBuckets(size_t first, size_t past, Plan& plan) const {
    for (const Prefixes* prefixes : InOrderOfEnds(past)) {
      std::vector<int> members;
      for (size_t position = ends_[first]; position < ends_[past]; ++position) {
        const int tensor = order_[position];
        if (tensors_[static_cast<size_t>(tensor)].dtype == prefixes->dtype) members.push_back(tensor);
      }
      if (!members.empty()) plan.buckets.push_back(MakeBucket(tensors_, std::move(members)));
    }
  }

 private:
  int64_t BytesBefore(size_t end) const {
    int64_t bytes = 0;
    for (const Prefixes& prefixes : prefixes_) bytes += prefixes.bytes[ends_[end]];
    return bytes;
  }

  double ReadyAt(size_t position) const { return ready_[static_cast<size_t>(order_[position])]; }

  void AddDtype(DType dtype) {
    if (std::ranges::find(prefixes_, dtype, &Prefixes::dtype) != prefixes_.end()) return;
    Prefixes prefixes{.dtype = dtype, .bytes = {0}, .last = {0}};
    for (size_t position = 0; position < order_.size(); ++position) {
      const TensorInfo& tensor = tensors_[static_cast<size_t>(order_[position])];
      const bool one = tensor.dtype == dtype;
      prefixes.bytes.push_back(prefixes.bytes.back() + (one ? Aligned(tensor.bytes()) : 0));
      prefixes.last.push_back(one ? position + 1 : prefixes.last.back());
    }
    prefixes_.push_back(std::move(prefixes));
  }

  // Where they end, and for each end the dtypes in the order of their last tensors.
  void CutIntoPieces() {
    int64_t total = 0;
    for (const Prefixes& prefixes : prefixes_) total += prefixes.bytes.back();
    const int64_t most = order_.size() > kMostPieces ? total / kPiecesOfAll : -1;
    int64_t bytes = 0;
    ends_.push_back(0);
    for (size_t position = 0; position < order_.size(); ++position) {
      const int64_t more = Aligned(tensors_[static_cast<size_t>(order_[position])].bytes());
      if (position > 0 && bytes + more > most) {
        ends_.push_back(position);
        bytes = 0;
      }
      bytes += more;
    }
    ends_.push_back(order_.size());
    for (const size_t end : ends_) {
      std::vector<const Prefixes*>& dtypes = in_order_.emplace_back();
      for (const Prefixes& prefixes : prefixes_) dtypes.push_back(&prefixes);
      std::ranges::sort(dtypes, {},
                        [end](const Prefixes* prefixes) { return std::pair(prefixes->last[end], prefixes->dtype); });
    }
  }

  const std::vector<const Prefixes*>& InOrderOfEnds(size_t past) const { return in_order_[past]; }

  const std::span<const TensorInfo> tensors_;
  const std::span<const double> ready_;
  const CostModel model_;
  std::vector<int> order_;
  std::vector<Prefixes> prefixes_;                      // of each dtype that there is
  std::vector<size_t> ends_;                            // of pieces, in positions; the first is 0
  std::vector<std::vector<const Prefixes*>> in_order_;  // by end
};

// By piece: where the longest interval may begin that ends before it.
std::vector<size_t> FurthestFirsts(const Timeline& timeline, int64_t most_bytes) {
  std::vector<size_t> firsts = {0};
  for (size_t past = 1; past <= timeline.pieces(); ++past) firsts.push_back(timeline.FurthestFirst(past, most_bytes));
  return firsts;
}

// The earliest finish of all pieces, with any number of borders.
double EarliestFinish(const Timeline& timeline, const std::vector<size_t>& furthest) {
  std::vector<double> finish(timeline.pieces() + 1, kNever);
  finish[0] = -kNever;
  for (size_t past = 1; past < finish.size(); ++past) {
    for (size_t first = furthest[past]; first < past; ++first) {
      finish[past] = std::min(finish[past], timeline.Finish(finish[first], first, past));
    }
  }
  return finish.back();
}

// The pieces at which intervals end, for as few intervals as finish by `limit`. REQUIRES: some number of them does.
std::vector<size_t> FewestIntervals(const Timeline& timeline, const std::vector<size_t>& furthest, double limit) {
  const size_t pieces = timeline.pieces();
  std::vector<double> finish(pieces + 1, kNever);  // with so many intervals as there are rows in begins
  finish[0] = -kNever;
  std::vector<std::vector<size_t>> begins;  // of the last interval, by where it ends
  while (begins.empty() || (finish[pieces] > limit && begins.size() < pieces)) {
    std::vector<double> next(pieces + 1, kNever);
    std::vector<size_t>& row = begins.emplace_back(pieces + 1, 0);
    for (size_t past = begins.size(); past <= pieces; ++past) {
      for (size_t first = std::max(furthest[past], begins.size() - 1); first < past; ++first) {
        const double end = timeline.Finish(finish[first], first, past);
        if (end < next[past]) {
          next[past] = end;
          row[past] = first;
        }
      }
    }
    finish = std::move(next);
  }
  std::vector<size_t> ends = {pieces};
  for (auto row = begins.rbegin(); row != begins.rend() - 1; ++row) ends.push_back((*row)[ends.back()]);
  std::ranges::reverse(ends);
  return ends;
}

}  // namespace

CostModel FitCost(std::span<const CostSample> samples) {
  const CostSample &small = samples.front(), &large = samples.back();
  CostModel model;
  if (large.bytes > small.bytes) {
    model.seconds_per_byte =
        std::max(0.0, (large.seconds - small.seconds) / static_cast<double>(large.bytes - small.bytes));
  }
  model.seconds_per_bucket = std::max(0.0, small.seconds - static_cast<double>(small.bytes) * model.seconds_per_byte);
  return model;
}

Plan PlanCautiously(std::span<const TensorInfo> tensors, std::span<const double> ready, const CostModel& model,
                    double grain) {
  const auto times = [&](double factor) {
    return CostModel{factor * grain * model.seconds_per_bucket, factor * model.seconds_per_byte};
  };
  const auto uncovered = [&](const Plan& plan) {
    return UncoveredSeconds(plan, tensors, ready, times(1)) + UncoveredSeconds(plan, tensors, ready, times(2));
  };
  const int64_t most = MostBytes(times(1), grain);
  const Plan likely = PlanByCost(tensors, ready, times(1), most), slow = PlanByCost(tensors, ready, times(2), most);
  std::array<Plan, 3> plans = {slow, likely, Refine(slow, likely, tensors)};
  return std::move(*std::ranges::min_element(plans, {}, uncovered));
}

Plan PlanByCost(std::span<const TensorInfo> tensors, std::span<const double> ready, const CostModel& model,
                int64_t most_bytes) {
  Plan plan;
  if (tensors.empty()) return plan;
  const Timeline timeline(tensors, ready, model);
  const std::vector<size_t> furthest = FurthestFirsts(timeline, most_bytes);
  const double earliest = EarliestFinish(timeline, furthest);
  const double limit = earliest + kTolerance * (earliest - timeline.last_ready());
  size_t first = 0;
  for (const size_t past : FewestIntervals(timeline, furthest, limit)) {
    timeline.AppendBuckets(first, past, plan);
    first = past;
  }
  return plan;
}

double UncoveredSeconds(const Plan& plan, std::span<const TensorInfo> tensors, std::span<const double> ready,
                        const CostModel& model) {
  if (tensors.empty()) return 0;
  double finish = -kNever;
  for (const Bucket& bucket : plan.buckets) {
    int64_t bytes = 0;
    for (const int tensor : bucket.tensors) {
      finish = std::max(finish, ready[static_cast<size_t>(tensor)]);
      bytes += Aligned(tensors[static_cast<size_t>(tensor)].bytes());
    }
    finish += Cost(model, bytes);
  }
  return finish - *std::ranges::max_element(ready);
}

}  // namespace gyre::fusion
