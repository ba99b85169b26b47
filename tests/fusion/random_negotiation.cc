// Clusters and programs drawn from a seed.
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fusion/fused_calls.h"
#include "fusion/negotiation_world.h"

namespace gyre {

namespace {

using internal::NamedKind;
using internal::NamedSignature;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

enum class Fault { kNone, kMismatch, kMissing };

// How an operation of one step must end.
struct Expected {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::vector<std::string> words;  // in the message
};

class RandomNegotiation {
 public:
  RandomNegotiation(uint64_t seed, int most_ranks) : random_(seed), seed_(seed) {
    size_ = Between(2, most_ranks);
    steps_ = Between(1, 14);
    ordered_ = OneIn(2);
    serial_ = ordered_ && OneIn(4);
    dynamic_ = OneIn(4);
    joins_ = OneIn(4);
    late_ = OneIn(4);
    fused_ = OneIn(3);
    const int fault = Between(0, 3);
    if (fault == 1) fault_ = Fault::kMismatch;
    if (fault == 2) fault_ = Fault::kMissing;
    fault_step_ = Between(0, steps_ - 1);
    fault_rank_ = Between(0, size_ - 1);
    programs_.resize(static_cast<size_t>(size_));
  }

  std::string Run() {
    MakePrograms();
    NegotiationWorld world(programs_, seed_);
    std::string wrong = world.Run();
    if (wrong.empty() && world.frozen_messages() != 0) wrong = "messages were sent while the order was frozen";
    for (int rank = 0; rank < size_ && wrong.empty(); ++rank) wrong = Judge(world, rank);
    if (wrong.empty()) return wrong;
    return absl::StrCat("seed ", seed_, ", ", size_, " ranks, ", steps_, " steps", ordered_ ? ", ordered" : "",
                        serial_ ? ", serial" : "", dynamic_ ? ", dynamic" : "", joins_ ? ", joins" : "",
                        late_ ? ", late" : "", fused_ ? ", fused" : "", fault_ == Fault::kMismatch ? ", mismatch" : "",
                        fault_ == Fault::kMissing ? ", missing" : "", ": ", wrong);
  }

 private:
  using Operations = std::vector<std::pair<std::string, NamedSignature>>;

  int Between(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  bool OneIn(int n) { return Between(1, n) == 1; }

  Operations RandomOperations(const std::string& prefix, int count) {
    Operations operations;
    for (int i = 0; i < count; ++i) {
      NamedSignature signature{.kind = static_cast<NamedKind>(Between(1, 3)),
                               .dtype = static_cast<DType>(Between(0, kDTypeCount - 1)),
                               .op = static_cast<ReduceOp>(Between(0, kReduceOpCount - 1)),
                               .count = Between(0, 100)};
      if (fused_) signature = OnGpu();
      // A root that has joined would be a fault of its own; a rank's own counts are drawn below.
      signature.root = joins_ ? longest_ : Between(0, size_ - 1);
      operations.emplace_back(absl::StrCat(prefix, i), signature);
    }
    return operations;
  }

  // Next to each other, some fit into one call, some do not.
  NamedSignature OnGpu() {
    const int64_t most = internal::kMostFusedBytes / DTypeSize(DType::kF32);
    return {.kind = OneIn(6) ? NamedKind::kAllGather : NamedKind::kAllReduce,
            .dtype = OneIn(6) ? DType::kF64 : DType::kF32,
            .op = OneIn(6) ? ReduceOp::kMax : ReduceOp::kSum,
            .count = OneIn(6) ? most - Between(0, 200) : Between(0, 100),
            .on_gpu = true};
  }

  // Cuts operations into single ones and groups, alike on all ranks.
  std::vector<SimSubmission> Cut(const Operations& operations) {
    std::vector<SimSubmission> submissions;
    for (size_t next = 0; next < operations.size();) {
      const auto length = std::min<size_t>(OneIn(3) ? static_cast<size_t>(Between(1, 4)) : 1, operations.size() - next);
      SimSubmission one;
      std::vector<std::string> names;
      for (size_t i = 0; i < length; ++i) names.push_back(operations[next + i].first);
      for (size_t i = 0; i < length; ++i) {
        one.operations.push_back(operations[next + i]);
        if (length == 1) continue;
        NamedSignature& signature = one.operations.back().second;
        signature.group = internal::GroupOf(names);
        signature.group_size = static_cast<int32_t>(length);
        signature.group_index = static_cast<int32_t>(i);
      }
      submissions.push_back(std::move(one));
      next += length;
    }
    return submissions;
  }

  void MakePrograms() {
    longest_ = Between(0, size_ - 1);
    for (int rank = 0; rank < size_; ++rank) {
      // Who joins without ever having brought a tensor on a GPU would be a fault of its own.
      lengths_.push_back(joins_ && rank != longest_ ? Between(fused_ ? 1 : 0, steps_) : steps_);
    }
    // An operation that fails for want of a rank needs all the others to be there.
    if (joins_) fault_ = Fault::kNone;
    std::string usual = "t";
    auto set = Cut(RandomOperations(usual, Between(1, 8)));
    for (int step = 0; step < steps_; ++step) {
      if (dynamic_ && OneIn(3))
        set = Cut(RandomOperations(OneIn(2) ? usual : absl::StrCat("s", step, "."), Between(1, 8)));
      AddStep(step, set);
      // What a rank has not submitted is owed to the others: from then on the programs do without.
      if (fault_ != Fault::kMissing || step != fault_step_) continue;
      usual = "after";
      set = Cut(RandomOperations(usual, Between(1, 8)));
    }
  }

  void AddStep(int step, const std::vector<SimSubmission>& set) {
    const bool faulty = fault_ != Fault::kNone && step == fault_step_;
    const size_t victim = static_cast<size_t>(Between(0, static_cast<int>(set.size()) - 1));
    const size_t member = static_cast<size_t>(Between(0, static_cast<int>(set[victim].operations.size()) - 1));
    if (faulty) Expect(step, set[victim], set[victim].operations[member]);
    std::vector<size_t> order(set.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::shuffle(order, random_);
    for (int rank = 0; rank < size_; ++rank) {
      if (!ordered_) std::ranges::shuffle(order, random_);
      if (step >= lengths_[static_cast<size_t>(rank)]) continue;
      auto& steps = programs_[static_cast<size_t>(rank)].steps;
      steps.emplace_back();
      for (const size_t i : order) {
        if (faulty && fault_ == Fault::kMissing && i == victim && rank == fault_rank_) continue;
        SimSubmission one = set[i];
        one.delay = microseconds(Between(0, 30));
        if (late_ && OneIn(20)) one.delay = milliseconds(Between(1, 300));
        one.timeout = faulty && i == victim ? seconds(2) : seconds(3600);
        one.waits = serial_;
        if (faulty && fault_ == Fault::kMismatch && i == victim && rank == fault_rank_) {
          NamedSignature& signature = one.operations[member].second;
          signature.dtype = signature.dtype == DType::kF32 ? DType::kF64 : DType::kF32;
        }
        steps.back().push_back(std::move(one));
      }
      for (const SimSubmission& one : steps.back()) {
        for (const auto& [name, signature] : one.operations) steps_of_[{rank, name}].push_back(step);
      }
    }
    for (auto& program : programs_) program.joins = joins_;
  }

  void Expect(int step, const SimSubmission& victim, const std::pair<std::string, NamedSignature>& member) {
    Expected expected;
    const std::string who = absl::StrCat("rank ", fault_rank_);
    if (fault_ == Fault::kMissing) {
      // Of a group any member may be named: none of it was there.
      expected = {absl::StatusCode::kDeadlineExceeded,
                  {absl::StrCat("not submitted by ", who, " in time"), "tensor '"}};
    } else {
      expected = {absl::StatusCode::kInvalidArgument,
                  {who, absl::StrCat("tensor '", member.first, "' differs"), "f32", Describe(member.second)}};
    }
    for (const auto& [name, signature] : victim.operations) expected_[{step, name}] = expected;
  }

  std::string Judge(const NegotiationWorld& world, int rank) {
    size_t submitted = 0;
    for (const auto& [key, steps] : steps_of_) submitted += key.first == rank ? steps.size() : 0;
    if (world.ends(rank).size() != submitted) return absl::StrCat("rank ", rank, " misses ends");
    for (const SimEnd& end : world.ends(rank)) {
      const int step = steps_of_[{rank, end.name}][static_cast<size_t>(end.instance)];
      const auto it = expected_.find({step, end.name});
      const Expected expected = it == expected_.end() ? Expected() : it->second;
      const std::string what =
          absl::StrCat("rank ", rank, ", '", end.name, "' in step ", step, ": ", end.status.ToString());
      if (end.status.code() != expected.code) return what;
      for (const std::string& word : expected.words) {
        if (!absl::StrContains(end.status.message(), word)) return absl::StrCat(what, " lacks ", word);
      }
      const auto [first, fresh] = messages_.try_emplace({step, end.name}, end.status);
      if (!fresh && first->second != end.status) return absl::StrCat(what, ", elsewhere ", first->second.ToString());
    }
    if (joins_ && world.join_value(rank) != world.join_value(0)) return "ranks disagree about who joined last";
    const bool steady = fault_ == Fault::kNone && !dynamic_ && !joins_ && !late_ && !serial_ && steps_ > 4;
    if (steady && world.negotiator(rank).frozen_calls() == 0) return "the order was never frozen";
    if (!fused_ && world.most_parts(rank) > 1) return "operations of the host were fused";
    return {};
  }

  std::mt19937_64 random_;
  const uint64_t seed_;
  int size_ = 0, steps_ = 0, longest_ = 0;
  bool ordered_ = false, serial_ = false, dynamic_ = false, joins_ = false, late_ = false, fused_ = false;
  Fault fault_ = Fault::kNone;
  int fault_step_ = 0, fault_rank_ = 0;
  std::vector<int> lengths_;
  std::vector<SimProgram> programs_;
  std::map<std::pair<int, std::string>, std::vector<int>> steps_of_;  // by rank and name: the step of each instance
  std::map<std::pair<int, std::string>, Expected> expected_;          // by step and name
  std::map<std::pair<int, std::string>, absl::Status> messages_;      // likewise: what the first rank was told
};

}  // namespace

std::string RunRandomNegotiation(uint64_t seed, int most_ranks) {
  return RandomNegotiation(seed, most_ranks).Run();
}

}  // namespace gyre
