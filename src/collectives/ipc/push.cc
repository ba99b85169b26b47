#include "collectives/ipc/push.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/gpu_counts.h"
#include "collectives/shm/slices.h"

namespace gyre::internal::ipc {

namespace {

constexpr int64_t kConnectRounds = 2;
constexpr int64_t kAlignment = 256;  // bytes: of slices and of segments in an area

// What a member says of its place when ports are connected: nothing is wrong, or what.
struct Answer {
  int64_t failed = 0;
  std::array<char, 248> why = {};

  void Say(const absl::Status& status) {
    if (status.ok()) return;
    failed = 1;
    const size_t length = std::min(status.message().size(), why.size() - 1);
    std::memcpy(why.data(), status.message().data(), length);
  }
};

static_assert(sizeof(PortOffer) > shm::Slot::kInlineBytes && sizeof(Answer) > shm::Slot::kInlineBytes);

// So many elements that as many of them as there are parts fit into `bytes`, each part on a boundary.
int64_t LengthOf(int64_t bytes, int64_t parts, int64_t element) {
  return std::max<int64_t>(1, bytes / parts / kAlignment * kAlignment / element);
}

std::byte* AtByte(void* data, int64_t bytes) {
  return static_cast<std::byte*>(data) + bytes;
}
const std::byte* AtByte(const void* data, int64_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}

}  // namespace

Push::Push(Group& group, Channel& channel, const GpuCall& call, std::shared_ptr<Port> port)
    : Operation(group, channel, SignatureOf(call.call), *call.call.timeout),
      port_(std::move(port)),
      gpu_(call.gpu),
      call_(call.call),
      input_ready_(call.input_ready),
      output_ready_(call.output_ready),
      reduction_(ReductionOf(call_, size())),
      dtype_(call_.in.dtype),
      element_(DTypeSize(dtype_)),
      length_(LengthOf(port_->half(), has_segments() ? size() : 1, element_)),
      sent_(Displacements(call_.counts)),
      received_(Displacements(call_.kind == CallKind::kAllToAll ? call_.receive_counts : call_.counts)),
      first_chunk_round_(port_->connected() ? 0 : kConnectRounds) {}

void Push::Publish(int64_t round) {
  if (round >= first_chunk_round_) return PublishChunk(round - first_chunk_round_);
  if (round == 0) return PublishOffer();
  Answer answer;
  answer.Say(failure_);
  std::memcpy(meeting().mine().payload(sizeof answer), &answer, sizeof answer);
}

Operation::Next Push::Consume(int64_t round) {
  if (round >= first_chunk_round_) return ConsumeChunk(round - first_chunk_round_);
  return round == 0 ? OpenOffers() : Connected();
}

// What is queued may still wait for the other ranks', and write the output after this call has ended in an error: what
// the caller does to its tensors then is to come after it.
void Push::OnEnd() {
  if (!status_.ok() && queued_) (void)Finish();
  if (!port_->connected()) port_->GiveUp();
}

// --- Connecting ---

void Push::PublishOffer() {
  auto offer = port_->Offer();
  if (!offer.ok()) {
    failure_ = offer.status();
    offer = PortOffer{};
  }
  std::memcpy(meeting().mine().payload(sizeof *offer), &*offer, sizeof *offer);
}

Operation::Next Push::OpenOffers() {
  for (int m = 0; m < size() && failure_.ok(); ++m) {
    if (m == rank()) continue;
    PortOffer offer;
    std::memcpy(&offer, meeting().slot(m).payload(sizeof offer), sizeof offer);
    if (offer.bytes != 0) failure_ = port_->Open(m, offer);  // else it says itself what is wrong
  }
  return Next::kRound;
}

// All come to the same end.
Operation::Next Push::Connected() {
  for (int m = 0; m < size(); ++m) {
    Answer answer;
    if (m == rank()) {
      answer.Say(failure_);
    } else {
      std::memcpy(&answer, meeting().slot(m).payload(sizeof answer), sizeof answer);
    }
    answer.why.back() = '\0';
    if (answer.failed == 0) continue;
    return Refuse(absl::UnavailableError(absl::StrCat(group().RankName(channel().members[static_cast<size_t>(m)]),
                                                      " cannot share its GPU's memory: ", answer.why.data())));
  }
  port_->MarkConnected();
  return Next::kRound;
}

// --- Chunks ---

int64_t Push::words() const {
  return call_.kind == CallKind::kAllToAll ? 1 + 2 * size() : 1;
}

void Push::PublishChunk(int64_t chunk) {
  if (chunk == 0) {
    chunks_ = ChunkCount();
    queued_ = true;
    if (input_ready_ != nullptr) Note(gpu_->Wait(port_->stream(), input_ready_));
    if (output_ready_ != nullptr) Note(gpu_->Wait(port_->stream(), output_ready_));
  }
  if (failure_.ok() && chunk < chunks_) Note(Stage(chunk));
  if (failure_.ok()) Note(gpu_->Record(port_->event(rank(), meeting().round()), port_->stream()));
  std::vector<int64_t> payload(static_cast<size_t>(words()));
  payload[0] = failure_.ok() ? 0 : 1;
  if (call_.kind == CallKind::kAllToAll) {
    std::ranges::copy(call_.counts, payload.begin() + 1);
    std::ranges::copy(call_.receive_counts, payload.begin() + 1 + size());
  }
  const auto bytes = static_cast<int64_t>(payload.size() * sizeof(int64_t));
  std::memcpy(meeting().mine().payload(bytes), payload.data(), static_cast<size_t>(bytes));
}

Operation::Next Push::ConsumeChunk(int64_t chunk) {
  if (!failure_.ok()) return GiveUp(Annotate(failure_, Context()));
  for (int m = 0; m < size(); ++m) {
    int64_t failed = 0;
    std::memcpy(&failed, meeting().slot(m).payload(words() * 8), sizeof failed);
    if (m == rank() || failed == 0) continue;
    return GiveUp(absl::AbortedError(absl::StrCat(
        Context(), " was aborted: ", group().RankName(channel().members[static_cast<size_t>(m)]), "'s GPU failed")));
  }
  if (chunk == 0 && call_.kind == CallKind::kAllToAll && !TakeCounts()) return Next::kEnd;
  Note(WaitForAll());
  if (failure_.ok() && chunk > 0) Note(TakeResults(chunk - 1));
  if (failure_.ok() && chunk < chunks_) Note(Work(chunk));
  if (chunk < chunks_) return Next::kRound;  // a failure is told there
  if (failure_.ok()) Note(Finish());
  return failure_.ok() ? Next::kEnd : GiveUp(Annotate(failure_, Context()));
}

void Push::Note(const absl::Status& status) {
  if (failure_.ok()) failure_ = status;
}

// Alike on all ranks; of an alltoall not before all counts are known.
int64_t Push::ChunkCount() const {
  switch (call_.kind) {
    case CallKind::kReduceScatter:
    case CallKind::kAllGather: return CeilDivide(std::ranges::max(call_.counts), length_);
    case CallKind::kAllToAll: return 1;
    default: return CeilDivide(call_.in.count, length_);
  }
}

// Every rank looks at all counts and comes to the same answer; then knows how many chunks there are.
bool Push::TakeCounts() {
  const size_t row = 2 * static_cast<size_t>(size());
  std::vector<int64_t> table(row * static_cast<size_t>(size()));
  int64_t most = 0;
  for (int m = 0; m < size(); ++m) {
    int64_t* const counts = &table[row * static_cast<size_t>(m)];
    if (m == rank()) {
      std::ranges::copy(call_.counts, counts);
      std::ranges::copy(call_.receive_counts, counts + size());
    } else {
      std::memcpy(counts, meeting().slot(m).payload(words() * 8) + sizeof(int64_t), row * sizeof(int64_t));
    }
    most = std::max(most, *std::max_element(counts, counts + size()));
  }
  if (const absl::Status agree = CountsAgree(table, size()); !agree.ok()) {
    Refuse(Annotate(agree, Context()));
    return false;
  }
  chunks_ = CeilDivide(most, length_);
  return true;
}

absl::Status Push::WaitForAll() {
  for (int m = 0; m < size(); ++m) {
    if (m != rank()) RETURN_IF_ERROR(gpu_->Wait(port_->stream(), port_->event(m, meeting().round())));
  }
  return absl::OkStatus();
}

absl::Status Push::Copy(void* to, const void* from, int64_t elements) {
  if (elements <= 0 || to == from) return absl::OkStatus();
  return gpu_->Copy(to, from, elements * element_, port_->stream());
}

absl::Status Push::Stage(int64_t chunk) {
  if (has_segments()) return StageSegments(chunk);
  if (call_.kind == CallKind::kBroadcast && rank() != call_.root) return absl::OkStatus();
  const Range piece = PieceOf(call_.in.count, length_, chunk);
  return Copy(area(rank(), chunk), AtByte(call_.in.data, piece.begin * element_), piece.count);
}

absl::Status Push::StageSegments(int64_t chunk) {
  for (int m = 0; m < size(); ++m) {
    const auto index = static_cast<size_t>(m);
    const Range piece = PieceOf(call_.counts[index], length_, chunk);
    RETURN_IF_ERROR(Copy(area(rank(), chunk) + m * length_ * element_,
                         AtByte(call_.in.data, (sent_[index] + piece.begin) * element_), piece.count));
  }
  return absl::OkStatus();
}

absl::Status Push::Work(int64_t chunk) {
  switch (call_.kind) {
    case CallKind::kAllReduce:
    case CallKind::kReduce: return ReduceSlice(chunk);
    case CallKind::kReduceScatter: return ReduceSegment(chunk);
    case CallKind::kAllGather: return Gather(chunk);
    case CallKind::kAllToAll: return Exchange(chunk);
    default: break;
  }
  if (rank() == call_.root) return absl::OkStatus();
  const Range piece = PieceOf(call_.out.count, length_, chunk);
  return Copy(AtByte(call_.out.data, piece.begin * element_), area(call_.root, chunk), piece.count);
}

// Of all areas, to all of them, or the root's.
absl::Status Push::ReduceSlice(int64_t chunk) {
  const Range piece = PieceOf(call_.in.count, length_, chunk);
  const Range slice = SliceOf(piece.count, size(), rank(), kAlignment / element_);
  if (slice.count == 0) return absl::OkStatus();
  std::array<const void*, device::Gpu::kMaxOperands> sources = {};
  std::array<void*, device::Gpu::kMaxOperands> destinations = {};
  const auto members = static_cast<size_t>(size());
  for (size_t m = 0; m < members; ++m) {
    destinations[m] = area(static_cast<int>(m), chunk) + slice.begin * element_;
    sources[m] = destinations[m];
  }
  std::span<void* const> to = std::span(destinations).first(members);
  if (call_.kind == CallKind::kReduce) to = to.subspan(static_cast<size_t>(call_.root), 1);
  return gpu_->Reduce(reduction_, std::span(sources).first(members), to, slice.count, port_->stream());
}

absl::Status Push::ReduceSegment(int64_t chunk) {
  const Range piece = PieceOf(call_.out.count, length_, chunk);
  if (piece.count == 0) return absl::OkStatus();
  std::array<const void*, device::Gpu::kMaxOperands> sources = {};
  const auto members = static_cast<size_t>(size());
  for (size_t m = 0; m < members; ++m) sources[m] = area(static_cast<int>(m), chunk) + rank() * length_ * element_;
  const std::array<void*, 1> destination = {AtByte(call_.out.data, piece.begin * element_)};
  return gpu_->Reduce(reduction_, std::span(sources).first(members), destination, piece.count, port_->stream());
}

absl::Status Push::Gather(int64_t chunk) {
  for (int m = 0; m < size(); ++m) {
    const auto index = static_cast<size_t>(m);
    const Range piece = PieceOf(call_.counts[index], length_, chunk);
    std::byte* const to = AtByte(call_.out.data, (received_[index] + piece.begin) * element_);
    const void* const from = m == rank() ? AtByte(call_.in.data, piece.begin * element_) : area(m, chunk);
    RETURN_IF_ERROR(Copy(to, from, piece.count));
  }
  return absl::OkStatus();
}

absl::Status Push::Exchange(int64_t chunk) {
  for (int m = 0; m < size(); ++m) {
    const auto index = static_cast<size_t>(m);
    const Range piece = PieceOf(call_.receive_counts[index], length_, chunk);
    RETURN_IF_ERROR(Copy(AtByte(call_.out.data, (received_[index] + piece.begin) * element_),
                         area(m, chunk) + rank() * length_ * element_, piece.count));
  }
  return absl::OkStatus();
}

// Of what all ranks have stored in this one's area.
absl::Status Push::TakeResults(int64_t chunk) {
  const bool takes = call_.kind == CallKind::kAllReduce || (call_.kind == CallKind::kReduce && rank() == call_.root);
  if (!takes) return absl::OkStatus();
  const Range piece = PieceOf(call_.out.count, length_, chunk);
  return Copy(AtByte(call_.out.data, piece.begin * element_), area(rank(), chunk), piece.count);
}

// The caller's streams see all of it.
absl::Status Push::Finish() {
  RETURN_IF_ERROR(gpu_->Record(port_->done(), port_->stream()));
  if (call_.in.device.on_gpu()) RETURN_IF_ERROR(gpu_->Wait(call_.in.device.stream, port_->done()));
  if (call_.out.device.on_gpu()) RETURN_IF_ERROR(gpu_->Wait(call_.out.device.stream, port_->done()));
  return absl::OkStatus();
}

}  // namespace gyre::internal::ipc
