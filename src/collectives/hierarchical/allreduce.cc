#include "collectives/hierarchical/allreduce.h"

#include <utility>

#include "collectives/selection/algorithms.h"
#include "collectives/shm/slices.h"

namespace gyre::internal {

namespace {

// Up to here one rail does it all: more messages would cost more than a second stream wins.
constexpr int64_t kOneRailBytes = 64 << 10;

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
  if (index >= 2) Gather(index - 2, stage);
  if (index < last) Scatter(index, stage);
  return stage;
}

Range HierarchicalAllReduce::ChunkOf(int64_t chunk) const {
  return PieceOf(call().in.count, chunk_elements_, chunk);
}

int HierarchicalAllReduce::RailsFor(int64_t count) const {
  return RailsOf(team(), count * element());
}

RailSlices HierarchicalAllReduce::SlicesOf(int64_t count) const {
  return {count, team().local_size(), RailsFor(count), kSliceGrain};
}

char* HierarchicalAllReduce::Out(int64_t element_index) const {
  return static_cast<char*>(call().out.data) + element_index * element();
}

void HierarchicalAllReduce::Scatter(int64_t chunk, Stage& stage) {
  if (OnlyCopies()) return;
  const Range range = ChunkOf(chunk);
  const RailSlices slices = SlicesOf(range.count);
  const auto local = static_cast<size_t>(team().local_rank());
  const auto scatter = CallToReduceScatter(static_cast<const char*>(call().in.data) + range.begin * element(),
                                           slices.counts, Out(range.begin + slices.begins[local]));
  if (!scatter) return;
  stage.local.emplace_back(std::shared_ptr<void>(), &scatter_.emplace(team().local(), *scatter, signature()));
}

void HierarchicalAllReduce::Between(int64_t chunk, Stage& stage) {
  const Range range = ChunkOf(chunk);
  const RailSlices slices = SlicesOf(range.count);
  const int rail = team().local_rank();
  if (rail >= RailsFor(range.count)) return;
  const auto local = static_cast<size_t>(rail);
  const int64_t begin = range.begin + slices.begins[local], count = slices.counts[local];
  const int hosts = team().hosts();
  auto& [blocks, sources] = team().blocks();
  blocks.clear();
  sources.clear();
  const Schedule& schedule = team().ScheduleOf(Collective::kAllReduce, selection_.algorithm);
  for (int block = 0; block < schedule.blocks; ++block) {
    const Range part = SliceOf(count, schedule.blocks, block, 1);
    blocks.emplace_back(reinterpret_cast<std::byte*>(Out(begin + part.begin)),
                        static_cast<size_t>(part.count * element()));
    if (OnlyCopies()) {
      sources.emplace_back(static_cast<const std::byte*>(call().in.data) + (begin + part.begin) * element(),
                           blocks.back().size());
    }
  }
  stage.network = Network(schedule, team().Rail(rail), blocks, sources);
  stage.transfer = {Collective::kAllReduce, selection_.algorithm, count * element(), hosts, RailsFor(range.count)};
}

void HierarchicalAllReduce::Gather(int64_t chunk, Stage& stage) {
  const Range range = ChunkOf(chunk);
  const RailSlices slices = SlicesOf(range.count);
  const auto local = static_cast<size_t>(team().local_rank());
  char* const own = Out(range.begin + slices.begins[local]);
  ApplyResultScale(own, slices.counts[local]);
  const auto gather = CallToAllGather(own, slices.counts, Out(range.begin));
  if (!gather) return;
  stage.local.emplace_back(std::shared_ptr<void>(), &gather_.emplace(team().local(), *gather, signature()));
}

}  // namespace gyre::internal
