#include "collectives/hierarchical/allreduce.h"

#include <utility>

#include "collectives/schedule/recursive_doubling.h"
#include "collectives/schedule/ring.h"

namespace gyre::internal {

namespace {

// So much goes through the three stages at a time: long enough that a ring's start does not show, short enough that the
// host's memory works while the network does.
constexpr int64_t kChunkBytes = 8 << 20;

// Up to here one rail does it all: more messages would cost more than a second stream wins.
constexpr int64_t kOneRailBytes = 64 << 10;

// Up to here fewer steps count for more than fewer bytes.
constexpr int64_t kDoublingBytes = 16 << 10;

// Slices of the rails begin on multiples of this many elements.
constexpr int64_t kGrain = 128;

int64_t ChunkElements(DType dtype) {
  return kChunkBytes / DTypeSize(dtype);
}

int ChunksOf(const ConstTensorView& in) {
  return static_cast<int>(std::max<int64_t>(1, CeilDivide(in.count, ChunkElements(in.dtype))));
}

}  // namespace

HierarchicalAllReduce::HierarchicalAllReduce(std::shared_ptr<Team> team, const Call& call)
    : HierarchicalOperation(std::move(team), call, ChunksOf(call.in) + 2) {}

// Stage t: chunk t is scattered, chunk t - 1 is between the hosts, chunk t - 2 is gathered.
HierarchicalAllReduce::Stage HierarchicalAllReduce::MakeStage(int index) {
  const int chunks = ChunksOf(call().in);
  Stage stage;
  if (index >= 1 && index <= chunks) stage.network = Between(index - 1);
  if (index >= 2) {
    if (auto gather = Gather(index - 2)) stage.local.push_back(std::move(gather));
  }
  if (index < chunks) {
    if (auto scatter = Scatter(index)) stage.local.push_back(std::move(scatter));
  }
  return stage;
}

Range HierarchicalAllReduce::ChunkOf(int64_t chunk) const {
  return PieceOf(call().in.count, ChunkElements(call().in.dtype), chunk);
}

RailSlices HierarchicalAllReduce::SlicesOf(int64_t count) const {
  const int rails = count * element() <= kOneRailBytes ? 1 : team().rails();
  return {count, team().local_size(), rails, kGrain};
}

char* HierarchicalAllReduce::Out(int64_t element_index) const {
  return static_cast<char*>(call().out.data) + element_index * element();
}

std::unique_ptr<Operation> HierarchicalAllReduce::Scatter(int64_t chunk) {
  const Range range = ChunkOf(chunk);
  const RailSlices slices = SlicesOf(range.count);
  const auto local = static_cast<size_t>(team().local_rank());
  return LocalReduceScatter(static_cast<const char*>(call().in.data) + range.begin * element(), slices.counts,
                            Out(range.begin + slices.begins[local]));
}

std::unique_ptr<Executor> HierarchicalAllReduce::Between(int64_t chunk) {
  const Range range = ChunkOf(chunk);
  const RailSlices slices = SlicesOf(range.count);
  const int rail = team().local_rank();
  const int rails_used = range.count * element() <= kOneRailBytes ? 1 : team().rails();
  if (rail >= rails_used) return nullptr;
  const auto local = static_cast<size_t>(rail);
  const int64_t begin = range.begin + slices.begins[local], count = slices.counts[local];
  const int hosts = team().hosts();
  std::vector<MutableBytes> blocks;
  const auto bytes_at = [&](const Range& part) {
    return MutableBytes(reinterpret_cast<std::byte*>(Out(begin + part.begin)),
                        static_cast<size_t>(part.count * element()));
  };
  if (hosts == 2 || count * element() <= kDoublingBytes) {
    return Network(RecursiveDoublingAllReduce(team().host(), hosts), team().Rail(rail), {bytes_at({0, count})});
  }
  for (int block = 0; block < hosts; ++block) blocks.push_back(bytes_at(SliceOf(count, hosts, block, 1)));
  return Network(RingAllReduce(team().host(), hosts), team().Rail(rail), std::move(blocks));
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
