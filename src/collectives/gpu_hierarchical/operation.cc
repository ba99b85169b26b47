#include "collectives/gpu_hierarchical/operation.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "collectives/gpu_hierarchical/connecting.h"
#include "collectives/hierarchical/rail.h"

namespace gyre::internal::gpu_hierarchical {

namespace {

// So long a backend that has given up what it had queued has to break the communicator, with the reason.
constexpr std::chrono::seconds kNamingPatience{1};

}  // namespace

Operation::Operation(std::shared_ptr<Backend> backend, const GpuCall& call)
    : backend_(std::move(backend)),
      gpu_call_(call),
      call_(gpu_call_.call),
      signature_(SignatureOf(call_)),
      chunks_(call_, backend_->team(), backend_->limits()) {}

Operation::~Operation() {
  if (ring_ != nullptr) backend_->rings().Give(std::move(ring_), true);  // under way: what it has queued goes on
}

// --- The clock ---

void Operation::StartClock(TimePoint now) {
  start_ = now;
  deadline_ = DeadlineAfter(now, *call_.timeout);
}

// A GPU rings no bell: who waits for it is to look again soon.
TimePoint Operation::deadline() const {
  if (waits_for_gpu_) return TimePoint{};
  TimePoint next = TimePoint::max();
  for (const Pollable* const part : {first_.get(), within_.get(), between_.get()}) {
    if (part != nullptr) next = std::min(next, part->deadline());
  }
  return next == TimePoint::max() ? deadline_ : next;
}

bool Operation::AddWaits(std::vector<pollfd>& waits) const {
  bool all = !waits_for_gpu_;
  for (const Pollable* const part : {first_.get(), within_.get(), between_.get()}) {
    if (part != nullptr) all = part->AddWaits(waits) && all;
  }
  return all;
}

// --- Beginning ---

shm::Progress Operation::Poll() {
  if (state_ == State::kBefore) Begin();
  if (state_ == State::kBeginning) return PollFirst();
  if (ended()) return shm::Progress::kDone;
  const shm::Progress between = PollBetween();
  if (ended()) return shm::Progress::kDone;
  const shm::Progress within = PollWithin();
  if (ended()) return shm::Progress::kDone;
  const bool moved = between != shm::Progress::kNone || within != shm::Progress::kNone;
  return moved ? shm::Progress::kSome : shm::Progress::kNone;
}

// A rank without memory can still tell the others in this call's place, for nothing was done yet.
void Operation::Begin() {
  if (start_ == TimePoint{}) StartClock(std::chrono::steady_clock::now());
  state_ = State::kBeginning;
  if (absl::Status taken = TakeMemory(); !taken.ok()) {
    first_ = backend_->host().MakeRefusal(call_, taken);
  } else if (!backend_->connected()) {
    first_ = std::make_shared<Connecting>(*backend_, gpu_call_, signature_);
  } else {
    return BeginChunks();
  }
  first_->StartClock(start_);
}

absl::Status Operation::TakeMemory() {
  ASSIGN_OR_RETURN(ring_, backend_->rings().Take(backend_->limits().slot_bytes));
  RETURN_IF_ERROR(backend_->rings().HaveWithin(*ring_));
  if (chunks_.area_bytes() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(areas_, backend_->rings().AreaOf(*ring_, chunks_.depth() * chunks_.area_bytes()));
  return absl::OkStatus();
}

shm::Progress Operation::PollFirst() {
  const shm::Progress progress = first_->Poll();
  if (progress != shm::Progress::kDone) return progress;
  OnFirstEnded();
  return ended() ? shm::Progress::kDone : shm::Progress::kSome;
}

void Operation::OnFirstEnded() {
  const absl::Status status = std::exchange(first_, nullptr)->status();
  if (!status.ok()) {
    End(status);
    return;
  }
  backend_->MarkConnected();
  BeginChunks();
}

void Operation::BeginChunks() {
  state_ = State::kUnderWay;
  in_course_.resize(static_cast<size_t>(chunks_.depth()));
  if (absl::Status waits = WaitForTensors(); !waits.ok()) GiveUp(waits);
}

absl::Status Operation::WaitForTensors() {
  if (gpu_call_.input_ready != nullptr) RETURN_IF_ERROR(gpu().Wait(ring_->within, gpu_call_.input_ready));
  if (gpu_call_.output_ready == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(gpu().Wait(ring_->within, gpu_call_.output_ready));
  return gpu().Wait(ring_->back, gpu_call_.output_ready);
}

absl::Status Operation::Queue(const Copy& copy, device::Gpu::Stream stream) {
  return gpu().Copy(copy.to, copy.from, copy.bytes, stream);
}

// --- Within the host ---

// Alike on all ranks of the host, in the same turn.
bool Operation::GoesInward() const {
  return inward_ < std::min(chunks_.count(), outward_ + chunks_.depth());
}

shm::Progress Operation::PollWithin() {
  if (within_ == nullptr) {
    const bool inward = GoesInward();
    if (!inward && outward_ == passed_) return shm::Progress::kNone;
    if (!backend_->host().group().usable()) return shm::Progress::kNone;  // Check finds out why
    if (absl::Status begun = inward ? BeginInward() : BeginOutward(); !begun.ok()) {
      GiveUp(begun);
      return shm::Progress::kDone;
    }
  }
  if (within_ != nullptr) {
    const shm::Progress progress = within_->Poll();
    if (progress != shm::Progress::kDone) return progress;
    OnWithinEnded();
  } else {
    EndTurn();
  }
  return shm::Progress::kSome;
}

void Operation::BeginWithin(Call call, device::Gpu::Event ready) {
  call.in.device = call.out.device = {.gpu = gpu().ordinal(), .stream = ring_->within};
  call.timeout = call_.timeout;
  call.part_of = &signature_;
  within_ = backend_->within().Make({.call = call, .gpu = gpu_call_.gpu, .input_ready = ready, .output_ready = ready});
  within_->StartClock(start_ + kGraceWithinHost);
}

// It has told the ranks of the host; the others learn it now.
void Operation::OnWithinEnded() {
  const absl::Status status = std::exchange(within_, nullptr)->status();
  if (status.ok()) return EndTurn();
  End(backend_->BreakLike(status, Context()));
}

void Operation::EndTurn() {
  if (absl::Status queued = GoesInward() ? EndInward() : EndOutward(); !queued.ok()) {
    GiveUp(queued);
  } else if (outward_ == chunks_.count()) {
    absl::Status joined = HaveProgramWait();
    if (joined.ok()) {
      End(std::move(joined));
    } else {
      GiveUp(joined);
    }
  }
}

absl::Status Operation::BeginInward() {
  Chunk& chunk = Of(inward_);
  const staged::Ring::Slot& by = slot(inward_);
  std::byte* const area = areas_ == nullptr ? nullptr : areas_ + inward_ % chunks_.depth() * chunks_.area_bytes();
  chunks_.Make(inward_, by.memory, area, chunk);
  for (const Copy& copy : chunk.pack) RETURN_IF_ERROR(Queue(copy, ring_->within));
  if (chunk.inward.kind == CallKind::kBarrier) return absl::OkStatus();
  RETURN_IF_ERROR(gpu().Record(by.copied_out, ring_->within));
  BeginWithin(chunk.inward, by.copied_out);
  return absl::OkStatus();
}

// The share is copied out behind what was exchanged, and behind the copy that still empties the slot.
absl::Status Operation::EndInward() {
  const Chunk& chunk = Of(inward_);
  const staged::Ring::Slot& to = slot(inward_);
  if (chunk.out.bytes > 0) {
    RETURN_IF_ERROR(gpu().Record(to.copied_out, ring_->within));
    RETURN_IF_ERROR(gpu().Wait(ring_->out, to.copied_out));
    RETURN_IF_ERROR(gpu().Wait(ring_->out, to.copied_back));
    RETURN_IF_ERROR(Queue(chunk.out, ring_->out));
    RETURN_IF_ERROR(gpu().Record(to.copied_out, ring_->out));
  }
  ++inward_;
  return absl::OkStatus();
}

// Not behind the copy back alone: a rank whose share is empty has none.
absl::Status Operation::BeginOutward() {
  const Chunk& chunk = Of(outward_);
  if (chunk.outward.kind == CallKind::kBarrier) return absl::OkStatus();
  const device::Gpu::Event ready = slot(outward_).copied_back;
  RETURN_IF_ERROR(gpu().Record(ready, ring_->within));
  BeginWithin(chunk.outward, ready);
  return absl::OkStatus();
}

// From then on its slot and its area may be filled anew.
absl::Status Operation::EndOutward() {
  for (const Copy& copy : Of(outward_).unpack) RETURN_IF_ERROR(Queue(copy, ring_->within));
  RETURN_IF_ERROR(gpu().Record(slot(outward_).copied_back, ring_->within));
  ++outward_;
  return absl::OkStatus();
}

// --- Between the hosts ---

shm::Progress Operation::PollBetween() {
  if (between_ == nullptr && !BeginBetween()) return shm::Progress::kNone;
  const shm::Progress progress = between_->Poll();
  if (progress != shm::Progress::kDone) return progress;
  OnBetweenEnded();
  return shm::Progress::kSome;
}

// Whether the next chunk's share is there, or the slot empty that it is to be received in. What the backend within the
// host has given up must not go to hosts that may never learn of that.
bool Operation::BeginBetween() {
  waits_for_gpu_ = false;
  if (passed_ == inward_ || !backend_->host().group().usable()) return false;
  const Chunk& chunk = Of(passed_);
  if (chunk.between.out.count > 0) {
    const auto done = gpu().Done(chunk.out.bytes > 0 ? slot(passed_).copied_out : slot(passed_).copied_back);
    if (!done.ok()) {
      GiveUp(done.status());
      return false;
    }
    waits_for_gpu_ = !*done || !backend_->within().sound();
    if (waits_for_gpu_) return false;
  }
  Call call = chunk.between;
  call.timeout = call_.timeout;
  call.part_of = &signature_;
  between_ = std::make_shared<HierarchicalRail>(backend_->host().team(), call);
  between_->StartClock(start_);
  return true;
}

void Operation::OnBetweenEnded() {
  const absl::Status status = std::exchange(between_, nullptr)->status();
  if (!status.ok()) {
    End(backend_->Explain(status, Context()));
  } else if (absl::Status queued = CopyBack(); !queued.ok()) {
    GiveUp(queued);
  }
}

// Behind what has been in its place until now. What is left of the scales is applied there.
absl::Status Operation::CopyBack() {
  const Chunk& chunk = Of(passed_);
  const staged::Ring::Slot& from = slot(passed_);
  if (chunk.back.bytes > 0) {
    RETURN_IF_ERROR(gpu().Wait(ring_->back, from.copied_back));
    RETURN_IF_ERROR(Queue(chunk.back, ring_->back));
    if (chunk.rest.count > 0) {
      const std::array<const void*, 1> source = {chunk.rest.data};
      const std::array<void*, 1> destination = {chunk.rest.data};
      RETURN_IF_ERROR(gpu().Reduce(chunks_.rest(), source, destination, chunk.rest.count, ring_->back));
    }
    RETURN_IF_ERROR(gpu().Record(from.copied_back, ring_->back));
    RETURN_IF_ERROR(gpu().Wait(ring_->within, from.copied_back));
  }
  ++passed_;
  return absl::OkStatus();
}

// --- Looking for cause to end ---

bool Operation::Check(TimePoint now) {
  if (ended()) return true;
  if (start_ == TimePoint{}) StartClock(now);
  if (first_ != nullptr) {
    if (first_->Check(now)) OnFirstEnded();
    return ended();
  }
  const Members& members = backend_->members();
  if (members.group->node().closed()) return End(absl::FailedPreconditionError("the runtime was shut down"));
  if (const auto cause = members.FindCause(Context()); cause) {
    members.Break(*cause);
    return End(cause->status);
  }
  if (between_ != nullptr && between_->Check(now)) OnBetweenEnded();
  if (!ended() && within_ != nullptr && within_->Check(now)) OnWithinEnded();
  if (ended()) return true;
  const bool waits_for_others = within_ != nullptr || between_ != nullptr;  // which have their own deadlines
  const TimePoint late = backend_->within().sound() ? deadline_ : DeadlineAfter(deadline_, kNamingPatience);
  return now >= late && (waits_for_gpu_ || !waits_for_others) && FailLate();
}

// --- Ending; those that return bool return true ---

std::string Operation::Lateness() const {
  if (state_ != State::kUnderWay) return "it had not begun";
  if (!backend_->within().sound()) return "what its host's ranks exchanged was given up on their GPUs";
  if (passed_ == inward_) return absl::StrCat("it had come through ", outward_, " of ", chunks_.count(), " chunks");
  const bool reads = Of(passed_).out.bytes > 0;
  return absl::StrCat("GPU ", gpu().ordinal(), " of ", backend_->team().RankName(backend_->members().rank()),
                      " had not ", reads ? "copied its share of" : "emptied the slot for", " chunk ", passed_ + 1,
                      " of ", chunks_.count(), reads ? " to the host" : "",
                      ": it was still at work on what was queued before, or waited for another GPU of its host");
}

bool Operation::FailLate() {
  const double seconds = std::chrono::duration<double>(*call_.timeout).count();
  return GiveUp(absl::DeadlineExceededError(absl::StrFormat("timed out after %.3g s: %s", seconds, Lateness())));
}

bool Operation::GiveUp(const absl::Status& why) {
  const absl::Status status = Annotate(why, Context());
  backend_->members().GiveUp(status);
  return End(status);
}

bool Operation::End(absl::Status status) {
  status_ = std::move(status);
  const bool begun = std::exchange(state_, State::kEnded) == State::kUnderWay;
  waits_for_gpu_ = false;
  first_.reset();
  between_.reset();
  StopWithin();
  if (ring_ == nullptr) return true;
  const bool spoilt = begun && !status_.ok();
  if (spoilt) (void)HaveProgramWait();
  backend_->rings().Give(std::move(ring_), spoilt);
  return true;
}

// The communicator is broken, or the runtime was shut down: it finds out, but what all have come to it does first. Then
// its stream waits for what it has queued.
void Operation::StopWithin() {
  const TimePoint now = std::chrono::steady_clock::now();
  while (within_ != nullptr) {
    if (within_->Check(now) || within_->Poll() == shm::Progress::kDone) within_.reset();
  }
}

// What the program queues on its tensors' streams from now on comes after all of this, of which some may be under way
// after a failure as well: then as much as can be had. Returns the first error.
absl::Status Operation::HaveProgramWait() {
  const device::Gpu::Event mark = ring_->slots[0].copied_back;
  absl::Status all;
  const auto wait = [&](device::Gpu::Stream stream, device::Gpu::Stream before) {
    absl::Status waits = gpu().Record(mark, before);
    if (waits.ok()) waits = gpu().Wait(stream, mark);
    all.Update(waits);
  };
  wait(ring_->within, ring_->out);
  wait(ring_->within, ring_->back);
  for (const Device& device : {call_.in.device, call_.out.device}) {
    if (device.on_gpu()) wait(device.stream, ring_->within);
  }
  return all;
}

}  // namespace gyre::internal::gpu_hierarchical
