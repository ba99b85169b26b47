#include "collectives/hierarchical/random_call.h"

#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace gyre {

using internal::Call;
using internal::CallKind;

namespace {

constexpr CallKind kKinds[] = {CallKind::kAllReduce, CallKind::kReduceScatter, CallKind::kAllGather,
                               CallKind::kBroadcast, CallKind::kReduce,        CallKind::kAllToAll,
                               CallKind::kBarrier,   CallKind::kMessage};

}  // namespace

RandomCall::RandomCall(std::mt19937_64& random, int size) : size_(size) {
  kind_ = kKinds[random() % std::size(kKinds)];
  dtype_ = static_cast<DType>(random() % kDTypeCount);
  reduction_.op = static_cast<ReduceOp>(random() % kReduceOpCount);
  if (Reduces() && random() % 4 == 0) DrawScales(random);
  root_ = static_cast<int>(random() % static_cast<uint64_t>(size));
  peer_ = (root_ + 1) % size;
  const int64_t scale = int64_t{1} << (random() % (size <= 8 ? 15 : 9));
  count_ = static_cast<int64_t>(random() % static_cast<uint64_t>(scale));
  in_place_ = random() % 2 == 0;
  for (int r = 0; r < size; ++r) counts_.push_back(static_cast<int64_t>(random() % 40));
  matrix_.resize(static_cast<size_t>(size) * static_cast<size_t>(size));
  for (int64_t& entry : matrix_) entry = static_cast<int64_t>(random() % 20);
  const RandomValues values = Reduces() ? RandomValues(random, dtype_, reduction_.op, size) : RandomValues(random());
  for (int r = 0; r < size; ++r) MakeMemory(r, values);
  for (int r = 0; r < size; ++r) {
    const Memory& memory = memory_[static_cast<size_t>(r)];
    inputs_.emplace_back(memory.given.data(), memory.in_count, dtype_);
  }
}

// None above 1, which what fits would not outlive, and of products, where a scale counts as often as there are ranks,
// none below 1 either.
void RandomCall::DrawScales(std::mt19937_64& random) {
  constexpr double kScales[] = {1, -1, 0.5, -0.25};
  const uint64_t choices = reduction_.op == ReduceOp::kProduct ? 2 : 4;
  reduction_.prescale = kScales[random() % choices];
  reduction_.postscale = kScales[random() % choices];
}

bool RandomCall::Reduces() const {
  return kind_ == CallKind::kAllReduce || kind_ == CallKind::kReduceScatter || kind_ == CallKind::kReduce;
}

bool RandomCall::UsesOneBuffer() const {
  return kind_ == CallKind::kBroadcast || (kind_ == CallKind::kAllReduce && in_place_);
}

int64_t RandomCall::Total() const {
  return std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
}

void RandomCall::MakeMemory(int rank, const RandomValues& values) {
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
  values.Fill({memory.in.data(), in, dtype_}, rank);
  memory.given = memory.in;
  if (UsesOneBuffer()) memory.out = memory.in;
  memory.in_count = in;
  memory.out_count = out;
  memory_.push_back(std::move(memory));
}

Call RandomCall::Of(int rank) {
  Memory& memory = memory_[static_cast<size_t>(rank)];
  TensorView in(memory.in.data(), memory.in_count, dtype_);
  const TensorView out(memory.out.data(), memory.out_count, dtype_);
  if (kind_ == CallKind::kBarrier) return {.kind = kind_};
  if (UsesOneBuffer()) in = out;
  Call call{.kind = kind_,
            .in = in,
            .out = out,
            .op = reduction_.op,
            .prescale = reduction_.prescale,
            .postscale = reduction_.postscale,
            .counts = counts_};
  call.root = root_;
  if (kind_ == CallKind::kMessage) {
    call.send = rank == root_;
    call.peer = call.send ? peer_ : root_;
    if (call.send) call.out = {};
    if (!call.send) call.in = {};
  }
  if (kind_ == CallKind::kAllToAll) {
    call.counts = std::span(memory.sends);
    call.receive_counts = std::span(memory.receives);
  }
  return call;
}

std::string RandomCall::refusal() const {
  if (!Reduces() || IsFloatingPoint(dtype_)) return "";
  if (dtype_ == DType::kBool && reduction_.op == ReduceOp::kAverage) return "booleans have no average";
  const bool scaled = reduction_.prescale != 1 || reduction_.postscale != 1;
  return scaled ? "prescale and postscale apply to floating-point tensors only" : "";
}

std::string RandomCall::Wrong(int rank) const {
  const Memory& memory = memory_[static_cast<size_t>(rank)];
  std::string wrong = memory.in == memory.given ? "" : "the input was changed";
  const bool elsewhere =
      (kind_ == CallKind::kMessage && rank != peer_) || (kind_ == CallKind::kReduce && rank != root_);
  for (int64_t i = 0; i < memory.out_count && wrong.empty() && !elsewhere && kind_ != CallKind::kBarrier; ++i) {
    wrong = WrongElement(rank, i);
    if (!wrong.empty()) wrong = absl::StrCat("element ", i, " of ", memory.out_count, " is ", wrong);
  }
  if (wrong.empty()) return "";
  return absl::StrCat("rank ", rank, " of ", size_, ": ", wrong, " (",
                      internal::Describe({static_cast<uint8_t>(kind_), static_cast<uint8_t>(dtype_),
                                          static_cast<uint8_t>(reduction_.op), 0, root_, count_, 0}),
                      ", scales ", reduction_.prescale, " and ", reduction_.postscale, ")");
}

std::string RandomCall::WrongElement(int rank, int64_t index) const {
  const Memory& memory = memory_[static_cast<size_t>(rank)];
  if (Reduces()) {
    int64_t at = index;
    if (kind_ == CallKind::kReduceScatter) at += std::accumulate(counts_.begin(), counts_.begin() + rank, int64_t{0});
    return Expected::Of(reduction_, inputs_, at).Wrong({memory.out.data(), memory.out_count, dtype_}, index);
  }
  const auto [from, at] = SourceOf(rank, index);
  const int64_t element = DTypeSize(dtype_);
  const char* const given = memory_[static_cast<size_t>(from)].given.data() + at * element;
  const bool same = std::memcmp(memory.out.data() + index * element, given, static_cast<size_t>(element)) == 0;
  return same ? "" : absl::StrCat("not element ", at, " of rank ", from);
}

// Which rank's element of those given an element becomes that is only moved.
std::pair<int, int64_t> RandomCall::SourceOf(int rank, int64_t index) const {
  int from = 0;
  switch (kind_) {
    case CallKind::kAllGather:
      for (; index >= counts_[static_cast<size_t>(from)]; ++from) index -= counts_[static_cast<size_t>(from)];
      return {from, index};
    case CallKind::kAllToAll:
      for (; index >= Entry(from, rank); ++from) index -= Entry(from, rank);
      for (int to = 0; to < rank; ++to) index += Entry(from, to);
      return {from, index};
    default: return {root_, index};
  }
}

}  // namespace gyre
