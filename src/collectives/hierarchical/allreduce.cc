#include "collectives/hierarchical/allreduce.h"

#include <utility>

#include "collectives/selection/algorithms.h"

namespace gyre::internal {

namespace {

// Up to here one rail does it all: more messages would cost more than a second stream wins.
constexpr int64_t kOneRailBytes = 64 << 10;

// Slices of the rails begin on multiples of this many elements.
constexpr int64_t kGrain = 128;

int RailsOf(const Team& team, int64_t bytes) {
  return bytes <= kOneRailBytes ? 1 : team.rails();
}

int64_t ChunkElements(const Selection& selection, DType dtype) {
  return selection.chunk_bytes / DTypeSize(dtype);
}

int ChunksOf(const Selection& selection, const ConstTensorView& in) {
  return static_cast<int>(std::max<int64_t>(1, CeilDivide(in.count, ChunkElements(selection, in.dtype))));
}

}  // namespace

HierarchicalAllReduce::HierarchicalAllReduce(const std::shared_ptr<Team>& team, const Call& call)
    : HierarchicalOperation(team, call, 0) {}

int HierarchicalAllReduce::chunks() const {
  return ChunksOf(selection_, call().in);
}

// Stage t: chunk t is scattered, chunk t - 1 is between the hosts, chunk t - 2 is gathered.
HierarchicalAllReduce::Stage HierarchicalAllReduce::MakeStage(int index) {
  if (index == 0) {
    const int64_t bytes = call().in.bytes();
    selection_ = team().Select(Collective::kAllReduce, bytes, RailsOf(team(), bytes));
    chunk_elements_ = ChunkElements(selection_, call().in.dtype);
    SetStages(chunks() + 2);
  }
  const int last = chunks();
  Stage stage;
  if (index >= 1 && index <= last) Between(index - 1, stage);
  if (index >= 2) {
    if (auto gather = Gather(index - 2)) stage.local.push_back(std::move(gather));
  }
  if (index < last) {
    if (auto scatter = Scatter(index)) stage.local.push_back(std::move(scatter));
  }
  return stage;
}

Range HierarchicalAllReduce::ChunkOf(int64_t chunk) const {
  return PieceOf(call().in.count, chunk_elements_, chunk);
}

int HierarchicalAllReduce::RailsFor(int64_t count) const {
  return RailsOf(team(), count * element());
}

RailSlices HierarchicalAllReduce::SlicesOf(int64_t count) const {
  return {count, team().local_size(), RailsFor(count), kGrain};
}

char* HierarchicalAllReduce::Out(int64_t element_index) const {
  return static_cast<char*>(call().out.data) + element_index * element();
}

std::unique_ptr<Operation> HierarchicalAllReduce::Scatter(int64_t chunk) {
  if (OnlyCopies()) return nullptr;
  const Range range = ChunkOf(chunk);
  const RailSlices slices = SlicesOf(range.count);
  const auto local = static_cast<size_t>(team().local_rank());
  return LocalReduceScatter(static_cast<const char*>(call().in.data) + range.begin * element(), slices.counts,
                            Out(range.begin + slices.begins[local]));
}

void HierarchicalAllReduce::Between(int64_t chunk, Stage& stage) {
  const Range range = ChunkOf(chunk);
  const RailSlices slices = SlicesOf(range.count);
  const int rail = team().local_rank();
  if (rail >= RailsFor(range.count)) return;
  const auto local = static_cast<size_t>(rail);
  const int64_t begin = range.begin + slices.begins[local], count = slices.counts[local];
  const int hosts = team().hosts();
  std::vector<MutableBytes> blocks;
  std::vector<Bytes> sources;
  Schedule schedule = MakeSchedule(Collective::kAllReduce, selection_.algorithm, team().host(), hosts);
  for (int block = 0; block < schedule.blocks; ++block) {
    const Range part = SliceOf(count, schedule.blocks, block, 1);
    blocks.emplace_back(reinterpret_cast<std::byte*>(Out(begin + part.begin)),
                        static_cast<size_t>(part.count * element()));
    if (OnlyCopies()) {
      sources.emplace_back(static_cast<const std::byte*>(call().in.data) + (begin + part.begin) * element(),
                           blocks.back().size());
    }
  }
  stage.network = Network(std::move(schedule), team().Rail(rail), std::move(blocks), std::move(sources));
  stage.transfer = {Collective::kAllReduce, selection_.algorithm, count * element(), hosts, RailsFor(range.count)};
}

std::unique_ptr<Operation> HierarchicalAllReduce::Gather(int64_t chunk) {
  const Range range = ChunkOf(chunk);
  const RailSlices slices = SlicesOf(range.count);
  const auto local = static_cast<size_t>(team().local_rank());
  char* const own = Out(range.begin + slices.begins[local]);
  ApplyResultScale(own, slices.counts[local]);
  return LocalAllGather(own, slices.counts, Out(range.begin));
}

}  // namespace gyre::internal
