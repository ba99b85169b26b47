#include "collectives/shm/allreduce.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/shm/slices.h"

namespace gyre::internal {

namespace {

// Up to here copies through the slots cost less than a second meeting.
int64_t DirectBytes(const Group& group) {
  return group.layout().crowded ? 16 << 10 : 1 << 10;
}

// Of plain buffers: up to here every rank reduces everything itself.
constexpr int kDirectRanks = 3;

// A grid has two meetings more. Where it begins to win: docs/measurements.md.
constexpr int64_t kGridBytes = 64 << 10;

// Push reads so many bytes, of all ranks together, between looks at deadline and losses: a few milliseconds' work.
constexpr int64_t kPushBytes = 16 << 20;

void Advance(std::vector<const void*>& sources, std::vector<void*>& destinations, int64_t bytes) {
  for (const void*& source : sources) source = static_cast<const char*>(source) + bytes;
  for (void*& destination : destinations) destination = static_cast<char*>(destination) + bytes;
}

}  // namespace

AllReduce::AllReduce(Group& group, const Call& call, const Signature& signature)
    : Operation(group, group.collective(), signature, *call.timeout),
      in_(call.in),
      out_(call.out),
      reduction_(ReductionOf(call, group.size())),
      element_(DTypeSize(in_.dtype)),
      chunk_elements_(channel().capacity >> std::countr_zero(static_cast<uint64_t>(element_))),
      chunks_(in_.count <= chunk_elements_ ? 1 : CeilDivide(in_.count, chunk_elements_)),
      way_(in_.bytes() <= DirectBytes(group) ? Way::kDirect : Way::kUndecided) {}

int64_t AllReduce::ChunkCount(int64_t chunk) const {
  return PieceOf(in_.count, chunk_elements_, chunk).count;
}

void AllReduce::Publish(int64_t round) {
  if (way_ == Way::kPush) return;
  if (way_ == Way::kUndecided) {
    const internal::Arena& arena = *group().node().arena();
    const auto in = arena.OffsetOf(in_.data, in_.bytes());
    const auto out = arena.OffsetOf(out_.data, out_.bytes());
    shared_ = in && out;
    if (shared_) {
      meeting().mine().offsets = {*in, *out};
      return;
    }
    // Plain: if the others' buffers are plain as well, this is the first chunk already.
  }
  const int64_t chunk = round - first_round_;
  const int64_t bytes = ChunkCount(chunk) * element_;
  if (bytes == 0) return;
  std::memcpy(meeting().mine().payload(bytes), static_cast<const char*>(in_.data) + ChunkBegin(chunk) * element_,
              static_cast<size_t>(bytes));
}

AllReduce::Next AllReduce::Consume(int64_t round) {
  switch (way_) {
    case Way::kUndecided: return Decide(round);
    case Way::kDirect: return Direct(round - first_round_);
    case Way::kPipelined: return Pipelined(round - first_round_);
    case Way::kPush:
    case Way::kGrid: break;
  }
  if (to_push_ > 0) return PushPiece();
  if (way_ == Way::kGrid && stage_ == Stage::kRow) return BeginStage(Stage::kColumn);
  if (way_ == Way::kGrid && stage_ == Stage::kColumn) return BeginStage(Stage::kSpread);
  // The second meeting: all slices are stored. A member that has given up meanwhile may have changed its buffers.
  return group().usable() ? Next::kEnd : EndBroken();
}

AllReduce::Next AllReduce::Decide(int64_t round) {
  int shared = shared_ ? 1 : 0;
  for (int m = 0; m < size(); ++m) {
    if (m != rank()) shared += meeting().slot(m).offsets.in != shm::kNowhere ? 1 : 0;
  }
  if (shared == size()) return UsesGrid() ? BeginGrid() : BeginPush();
  way_ = size() <= kDirectRanks ? Way::kDirect : Way::kPipelined;
  if (shared == 0) return Consume(round);
  first_round_ = round + 1;  // mixed: who hoped for push has published no chunk
  return Next::kRound;
}

AllReduce::Next AllReduce::Direct(int64_t chunk) {
  const int64_t count = ChunkCount(chunk);
  for (int m = 0; m < size(); ++m) {
    channel().sources[static_cast<size_t>(m)] = meeting().slot(m).payload(count * element_);
  }
  // Not from the slot, whose lines the others have taken by now (Meeting::Gathered).
  channel().sources[static_cast<size_t>(rank())] = static_cast<const char*>(in_.data) + ChunkBegin(chunk) * element_;
  void* const to = static_cast<char*>(out_.data) + ChunkBegin(chunk) * element_;
  device::Reduce(reduction_, channel().sources, {&to, 1}, count);
  return chunk + 1 < chunks_ ? Next::kRound : Next::kEnd;
}

AllReduce::Next AllReduce::Pipelined(int64_t chunk) {
  if (chunk > 0) CopyOutSlices(chunk - 1);
  if (chunk == chunks_) return Next::kEnd;
  const int64_t count = ChunkCount(chunk);
  const Range slice = SliceOf(count, size(), rank(), kSliceGrain);
  for (int m = 0; m < size(); ++m) {
    channel().sources[static_cast<size_t>(m)] = meeting().slot(m).payload(count * element_) + slice.begin * element_;
  }
  channel().sources[static_cast<size_t>(rank())] =
      static_cast<const char*>(in_.data) + (ChunkBegin(chunk) + slice.begin) * element_;
  void* const to = channel().result(rank(), meeting().round());
  device::Reduce(reduction_, channel().sources, {&to, 1}, slice.count);
  return Next::kRound;
}

// The slices that were reduced in the round before this one.
void AllReduce::CopyOutSlices(int64_t chunk) {
  const int64_t count = ChunkCount(chunk);
  char* const to = static_cast<char*>(out_.data) + ChunkBegin(chunk) * element_;
  for (int m = 0; m < size(); ++m) {
    const Range slice = SliceOf(count, size(), m, kSliceGrain);
    if (slice.count == 0) continue;
    std::memcpy(to + slice.begin * element_, channel().result(m, meeting().round() - 1),
                static_cast<size_t>(slice.count * element_));
  }
}

// The offsets come from another process's memory.
bool AllReduce::IsInArena(int member, const shm::Slot::Offsets& offsets) {
  const int64_t last = group().node().arena_size(group().ranks()[static_cast<size_t>(member)]) - in_.bytes();
  return offsets.in >= 0 && offsets.in <= last && offsets.out >= 0 && offsets.out <= last;
}

// Others may push into the buffers at any later time.
void AllReduce::OnGivenUp() {
  if (way_ == Way::kDirect || way_ == Way::kPipelined) return;
  group().node().arena()->Retire(in_.data);
  group().node().arena()->Retire(out_.data);
}

// Half types would be rounded once a level.
bool AllReduce::UsesGrid() const {
  const bool half = in_.dtype == DType::kF16 || in_.dtype == DType::kBF16;
  return group().grid() != nullptr && !half && in_.bytes() >= kGridBytes;
}

// Where a member's buffers are, from element `begin` on: into the channel's sources and destinations.
bool AllReduce::Reach(int member, int64_t begin) {
  const auto index = static_cast<size_t>(member);
  const void*& source = channel().sources[index];
  void*& destination = channel().destinations[index];
  if (member == rank()) {
    source = static_cast<const char*>(in_.data) + begin * element_;
    destination = static_cast<char*>(out_.data) + begin * element_;
    return true;
  }
  const shm::Slot::Offsets offsets = meeting().slot(member).offsets;
  if (!IsInArena(member, offsets)) {
    GiveUp(absl::DataLossError(absl::StrCat(group().RankName(member), " announced a buffer outside its arena")));
    return false;
  }
  std::byte* const arena = group().node().arena_data(group().ranks()[index]);
  source = arena + offsets.in + begin * element_;
  destination = arena + offsets.out + begin * element_;
  return true;
}

AllReduce::Next AllReduce::BeginPush() {
  way_ = Way::kPush;
  const Range slice = SliceOf(in_.count, size(), rank(), kSliceGrain);
  for (int m = 0; m < size(); ++m) {
    if (!Reach(m, slice.begin)) return Next::kEnd;
  }
  to_push_ = slice.count;
  return PushPiece();
}

AllReduce::Next AllReduce::BeginGrid() {
  way_ = Way::kGrid;
  const Grid& grid = *group().grid();
  const int64_t begin = grid.extra() ? 0 : SliceOf(in_.count, grid.columns, grid.column, kSliceGrain).begin;
  for (const int m : grid.row_members) {
    if (!Reach(m, begin)) return Next::kEnd;
  }
  for (const int m : grid.column_members) {
    if (!Reach(m, begin)) return Next::kEnd;
  }
  return BeginStage(Stage::kRow);
}

AllReduce::Next AllReduce::BeginStage(Stage stage) {
  stage_ = stage;
  const Grid& grid = *group().grid();
  std::vector<const void*>& from = channel().stage_sources;
  std::vector<void*>& to = channel().stage_destinations;
  from.clear();
  to.clear();
  if (grid.extra()) return EndStage();
  const auto output = [this](int member) { return channel().destinations[static_cast<size_t>(member)]; };
  const int64_t chunk = SliceOf(in_.count, grid.columns, grid.column, kSliceGrain).count;
  to_push_ = chunk;
  switch (stage) {
    case Stage::kRow:
      for (const int m : grid.row_members) from.push_back(channel().sources[static_cast<size_t>(m)]);
      to.push_back(output(rank()));
      break;
    case Stage::kColumn: {
      const Range slice = SliceOf(chunk, grid.rows, grid.row, kSliceGrain);
      for (const int m : grid.column_members) to.push_back(static_cast<char*>(output(m)) + slice.begin * element_);
      from.assign(to.begin(), to.end());
      to_push_ = slice.count;
      break;
    }
    case Stage::kSpread:
      from.push_back(output(rank()));
      for (const int m : grid.row_members) {
        if (m != rank()) to.push_back(output(m));
      }
      break;
  }
  return to_push_ > 0 ? PushPiece() : EndStage();
}

// A row's work is what its columns go on with; the columns' what is spread in rows; the end of that is the row's
// affair.
AllReduce::Next AllReduce::EndStage() {
  const Grid& grid = *group().grid();
  meeting().NarrowNext(stage_ == Stage::kSpread ? grid.row_members : grid.column_meeting);
  return Next::kFence;
}

// What is computed in this stage: what goes into the sum is scaled in rows, the sum in columns.
device::Reduction AllReduce::StageReduction() const {
  device::Reduction reduction = reduction_;
  if (stage_ != Stage::kRow) reduction.scale_source = 1;
  if (stage_ != Stage::kColumn) {
    reduction.scale_result = 1;
    reduction.divisor = 1;
  }
  return reduction;
}

AllReduce::Next AllReduce::PushPiece() {
  if (group().node().closed()) return EndBroken();
  const bool in_grid = way_ == Way::kGrid;
  std::vector<const void*>& from = in_grid ? channel().stage_sources : channel().sources;
  std::vector<void*>& to = in_grid ? channel().stage_destinations : channel().destinations;
  if (const int gone = FirstPartnerGone(); gone >= 0) return GiveUpOn(gone);
  const auto streams = static_cast<int64_t>(std::max(from.size(), to.size()));
  const int64_t piece = std::max<int64_t>(1, kPushBytes / streams / element_ / kSliceGrain) * kSliceGrain;
  const int64_t count = std::min(piece, to_push_);
  device::Reduce(in_grid ? StageReduction() : reduction_, from, to, count);
  to_push_ -= count;
  // Nobody can have come to the end in order by now: who has left has given up, and what was read may be anything.
  if (const int gone = FirstPartnerGone(); gone >= 0) return GiveUpOn(gone);
  if (to_push_ == 0) return in_grid ? EndStage() : Next::kRound;
  Advance(from, to, count * element_);
  return Next::kAgain;
}

// The first of those whose memory this rank works on that has left, or -1. In a grid others may be through.
int AllReduce::FirstPartnerGone() const {
  if (way_ != Way::kGrid) return FirstGone();
  const Grid& grid = *group().grid();
  return FirstGone(stage_ == Stage::kColumn ? grid.column_members : grid.row_members);
}

}  // namespace gyre::internal
