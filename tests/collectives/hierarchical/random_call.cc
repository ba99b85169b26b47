#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "collectives/hierarchical/sim_world.h"
#include "conformance/definitions.h"
#include "support/fill.h"

namespace gyre {

using internal::Call;
using internal::CallKind;

namespace {

constexpr CallKind kKinds[] = {CallKind::kAllReduce, CallKind::kReduceScatter, CallKind::kAllGather,
                               CallKind::kBroadcast, CallKind::kReduce,        CallKind::kAllToAll,
                               CallKind::kBarrier,   CallKind::kMessage};

// One call, as all ranks make it, and the memory of each.
class RandomCall {
 public:
  RandomCall(std::mt19937_64& random, int size) : size_(size), seed_(random()) {
    kind_ = kKinds[random() % std::size(kKinds)];
    dtype_ = static_cast<DType>(random() % kDTypeCount);
    op_ = static_cast<ReduceOp>(random() % kReduceOpCount);
    if (size > 8 && (dtype_ == DType::kU8 || dtype_ == DType::kI8)) dtype_ = DType::kI16;  // sums would wrap
    if (dtype_ == DType::kBool && op_ == ReduceOp::kAverage) op_ = ReduceOp::kSum;
    if (op_ == ReduceOp::kProduct && dtype_ != DType::kBool) op_ = ReduceOp::kSum;  // not exact over many ranks
    root_ = static_cast<int>(random() % static_cast<uint64_t>(size));
    peer_ = (root_ + 1) % size;
    const int64_t scale = int64_t{1} << (random() % (size <= 8 ? 15 : 9));
    count_ = static_cast<int64_t>(random() % static_cast<uint64_t>(scale));
    in_place_ = random() % 2 == 0;
    for (int r = 0; r < size; ++r) counts_.push_back(static_cast<int64_t>(random() % 40));
    matrix_.resize(static_cast<size_t>(size * size));
    for (int64_t& entry : matrix_) entry = static_cast<int64_t>(random() % 20);
    for (int r = 0; r < size; ++r) MakeMemory(r);
  }

  bool TakesPart(int rank) const { return kind_ != CallKind::kMessage || rank == root_ || rank == peer_; }

  Call Of(int rank) {
    const auto index = static_cast<size_t>(rank);
    TensorView in(memory_[index].in.data(), in_counts_[index], dtype_);
    TensorView out(memory_[index].out.data(), out_counts_[index], dtype_);
    if (UsesOneBuffer()) in = TensorView(out.data, in.count, dtype_);
    Call call{.kind = kind_, .in = in, .out = out, .op = op_, .counts = counts_};
    call.root = root_;
    if (kind_ == CallKind::kBarrier) call = {.kind = kind_};
    if (kind_ == CallKind::kMessage) {
      call.send = rank == root_;
      call.peer = call.send ? peer_ : root_;
      (call.send ? call.out : in) = {};
      if (!call.send) call.in = {};
    }
    if (kind_ == CallKind::kAllToAll) {
      call.counts = std::span(memory_[index].sends);
      call.receive_counts = std::span(memory_[index].receives);
    }
    return call;
  }

  // What is wrong with the rank's output; empty if nothing.
  std::string Wrong(int rank) const {
    const auto index = static_cast<size_t>(rank);
    if (kind_ == CallKind::kBarrier || (kind_ == CallKind::kMessage && rank != peer_)) return "";
    if (kind_ == CallKind::kReduce && rank != root_) return "";
    for (int64_t i = 0; i < out_counts_[index]; ++i) {
      const double expected = Expected(rank, i);
      const double got =
          support::ReadElement(ConstTensorView(memory_[index].out.data(), out_counts_[index], dtype_), i);
      const double tolerance = RelativeTolerance(dtype_) * std::max(1.0, std::fabs(expected)) * size_;
      if (!(std::fabs(got - expected) <= tolerance)) {
        return absl::StrCat("rank ", rank, " of ", size_, ": element ", i, " of ", out_counts_[index], " is ", got,
                            ", not ", expected, " (",
                            internal::Describe({static_cast<uint8_t>(kind_), static_cast<uint8_t>(dtype_),
                                                static_cast<uint8_t>(op_), 0, root_, count_, 0}),
                            ")");
      }
    }
    return "";
  }

 private:
  struct Memory {
    std::vector<char> in, out;
    std::vector<int64_t> sends, receives;
  };

  bool UsesOneBuffer() const { return kind_ == CallKind::kBroadcast || (kind_ == CallKind::kAllReduce && in_place_); }

  int64_t Total() const { return std::accumulate(counts_.begin(), counts_.end(), int64_t{0}); }
  int64_t Entry(int from, int to) const { return matrix_[static_cast<size_t>(from * size_ + to)]; }

  void MakeMemory(int rank) {
    Memory memory;
    int64_t in = count_, out = count_;
    if (kind_ == CallKind::kReduceScatter) in = Total(), out = counts_[static_cast<size_t>(rank)];
    if (kind_ == CallKind::kAllGather) out = Total(), in = counts_[static_cast<size_t>(rank)];
    if (kind_ == CallKind::kAllToAll) {
      for (int other = 0; other < size_; ++other) {
        memory.sends.push_back(Entry(rank, other));
        memory.receives.push_back(Entry(other, rank));
      }
      in = std::accumulate(memory.sends.begin(), memory.sends.end(), int64_t{0});
      out = std::accumulate(memory.receives.begin(), memory.receives.end(), int64_t{0});
    }
    memory.in.resize(static_cast<size_t>(in * DTypeSize(dtype_)) + 1);
    memory.out.resize(static_cast<size_t>(out * DTypeSize(dtype_)) + 1);
    char* const source = UsesOneBuffer() ? memory.out.data() : memory.in.data();
    support::FillExact(TensorView(source, in, dtype_), seed_, rank);
    in_counts_.push_back(in);
    out_counts_.push_back(out);
    memory_.push_back(std::move(memory));
  }

  double Expected(int rank, int64_t i) const {
    switch (kind_) {
      case CallKind::kAllReduce:
      case CallKind::kReduce: return Reduced(op_, dtype_, seed_, size_, i);
      case CallKind::kReduceScatter:
        return Reduced(op_, dtype_, seed_, size_,
                       i + std::accumulate(counts_.begin(), counts_.begin() + rank, int64_t{0}));
      case CallKind::kBroadcast:
      case CallKind::kMessage: return support::ExactValue(dtype_, seed_, root_, i);
      case CallKind::kAllGather:
        return FromSegments(
            i, [&](int from) { return counts_[static_cast<size_t>(from)]; }, [](int) { return int64_t{0}; });
      default:
        return FromSegments(
            i, [&](int from) { return Entry(from, rank); },
            [&](int from) {
              int64_t begin = 0;
              for (int to = 0; to < rank; ++to) begin += Entry(from, to);
              return begin;
            });
    }
  }

  // Element i of a concatenation of a segment of every rank, each from the rank's `begin` on.
  template <typename Length, typename Begin>
  double FromSegments(int64_t i, Length length, Begin begin) const {
    int from = 0;
    for (; i >= length(from); ++from) i -= length(from);
    return support::ExactValue(dtype_, seed_, from, begin(from) + i);
  }

  const int size_;
  const uint64_t seed_;
  CallKind kind_;
  DType dtype_;
  ReduceOp op_;
  int root_, peer_;
  int64_t count_;
  bool in_place_;
  std::vector<int64_t> counts_, matrix_, in_counts_, out_counts_;
  std::vector<Memory> memory_;
};

sim::NetworkOptions RandomNetwork(std::mt19937_64& random, bool faults, int max_ranks) {
  sim::NetworkOptions options{.ranks = 2 + static_cast<int>(random() % static_cast<uint64_t>(max_ranks - 1)),
                              .seed = random()};
  options.link.bytes_per_second = 1e6 * std::pow(10, static_cast<double>(random() % 4));
  options.window = 1 << (10 + random() % 10);
  options.packet_bytes = 1 << (6 + random() % 10);
  if (!faults) return options;
  const auto perhaps = [&](double most) {
    return random() % 2 == 0 ? 0.0 : most * static_cast<double>(random() % 100) / 100;
  };
  options.faults = {.drop = perhaps(0.2),
                    .duplicate = perhaps(0.2),
                    .delay = perhaps(0.5),
                    .damage = perhaps(0.01),
                    .reset = perhaps(0.01)};
  return options;
}

}  // namespace

std::string RunRandomCall(uint64_t seed, bool faults, int max_ranks, uint64_t* trace) {
  std::mt19937_64 random(seed);
  const sim::NetworkOptions options = RandomNetwork(random, faults, max_ranks);
  const bool checksum = random() % 2 == 0;
  SimWorld world(options, checksum);
  RandomCall call(random, options.ranks);
  const bool kills = faults && random() % 4 == 0, cuts = faults && random() % 4 == 0;
  const int victim = static_cast<int>(random() % static_cast<uint64_t>(options.ranks));
  std::vector<std::shared_ptr<internal::HierarchicalOperation>> operations(static_cast<size_t>(options.ranks));
  for (int r = 0; r < options.ranks; ++r) {
    if (call.TakesPart(r) && !(kills && r == victim)) operations[static_cast<size_t>(r)] = world.Make(r, call.Of(r));
  }
  if (kills) world.network().Kill(victim);
  if (cuts) world.network().Cut(victim, (victim + 1) % options.ranks);
  const bool ended = world.Run(operations, std::chrono::seconds(30));
  if (trace != nullptr) *trace = world.network().trace();
  if (!ended) return absl::StrCat("seed ", seed, ": a rank has not ended long after its deadline");
  for (int r = 0; r < options.ranks; ++r) {
    const auto& operation = operations[static_cast<size_t>(r)];
    if (operation == nullptr) continue;
    const absl::Status& status = operation->status();
    if (status.ok() && options.faults.damage > 0 && !checksum) continue;
    if (status.ok()) {
      if (std::string wrong = call.Wrong(r); !wrong.empty()) return absl::StrCat("seed ", seed, ": ", wrong);
    } else if (!faults || status.message().find("rank ") == std::string::npos) {
      return absl::StrCat("seed ", seed, ": rank ", r, " ended in ", status.ToString());
    }
  }
  return "";
}

}  // namespace gyre
