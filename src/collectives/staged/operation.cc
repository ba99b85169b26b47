#include "collectives/staged/operation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "collectives/staged/factory.h"

namespace gyre::internal::staged {

Operation::Operation(HostCalls host, std::shared_ptr<Rings> rings, const GpuCall& call)
    : host_(std::move(host)),
      rings_(std::move(rings)),
      gpu_call_(call),
      call_(gpu_call_.call),
      signature_(SignatureOf(call_)) {}

Operation::~Operation() {
  if (ring_ != nullptr) rings_->Give(std::move(ring_), true);
}

// --- The clock ---

void Operation::StartClock(TimePoint now) {
  start_ = now;
  deadline_ = DeadlineAfter(now, *call_.timeout);
}

// A GPU rings no bell: who waits for it is to look again soon.
TimePoint Operation::deadline() const {
  return waits_for_gpu_ ? TimePoint{} : deadline_;
}

// --- Going on ---

shm::Progress Operation::Poll() {
  if (state_ == State::kBefore) Begin();
  if (state_ == State::kEnded) return shm::Progress::kDone;
  if (host_call_ == nullptr) {
    if (!Look()) return state_ == State::kEnded ? shm::Progress::kDone : shm::Progress::kNone;
    return shm::Progress::kSome;
  }
  const shm::Progress progress = host_call_->Poll();
  if (progress != shm::Progress::kDone) return progress;
  return OnHostCallEnded() ? shm::Progress::kDone : shm::Progress::kSome;
}

void Operation::Begin() {
  if (start_ == TimePoint{}) StartClock(std::chrono::steady_clock::now());
  auto ring = rings_->Take(Pieces::SlotBytes(call_, rings_->sizes().slot_bytes));
  if (!ring.ok()) return Refuse(ring.status());
  ring_ = *std::move(ring);
  if (Pieces::NeedLongest(call_)) return Measure();
  BeginPieces(0);
}

// Nothing was done yet: the other ranks can be told in this call's place.
void Operation::Refuse(const absl::Status& why) {
  state_ = State::kRefusing;
  host_call_ = host_.MakeRefusal(call_, why);
  host_call_->StartClock(start_);
}

// Into how many pieces an uneven alltoall is cut, no rank knows alone.
void Operation::Measure() {
  state_ = State::kMeasuring;
  longest_ = std::max(*std::ranges::max_element(call_.counts), *std::ranges::max_element(call_.receive_counts));
  const TensorView longest(&longest_, 1, DType::kI64);
  MakeHostCall({.kind = CallKind::kAllReduce, .in = longest, .out = longest, .op = ReduceOp::kMax});
}

void Operation::BeginPieces(int64_t longest) {
  state_ = State::kUnderWay;
  pieces_.emplace(call_, host_.rank(), host_.size(), ring_->slot_bytes, longest);
  in_course_.resize(ring_->slots.size());
  if (absl::Status waits = WaitForTensors(); !waits.ok()) {
    GiveUp(waits);
    return;
  }
  CopyOut();
}

// Who only receives begins at once: there is nothing to be copied out behind what the program has queued.
absl::Status Operation::WaitForTensors() {
  if (gpu_call_.input_ready != nullptr) RETURN_IF_ERROR(gpu().Wait(ring_->out, gpu_call_.input_ready));
  if (gpu_call_.output_ready != nullptr) RETURN_IF_ERROR(gpu().Wait(ring_->back, gpu_call_.output_ready));
  return absl::OkStatus();
}

void Operation::CopyOut() {
  const int64_t end = std::min(pieces_->count(), called_ + static_cast<int64_t>(ring_->slots.size()));
  while (state_ != State::kEnded && copied_out_ < end) {
    if (absl::Status queued = CopyOut(copied_out_); !queued.ok()) {
      GiveUp(queued);
      return;
    }
    ++copied_out_;
  }
}

// Behind the copy that still empties the slot. Where nothing is to be copied, the event says that it is empty.
absl::Status Operation::CopyOut(int64_t index) {
  Ring::Slot& to = slot(index);
  pieces_->Make(index, to.memory, piece(index));
  const bool reads = !piece(index).out.empty();
  if (!reads) return absl::OkStatus();
  RETURN_IF_ERROR(gpu().Wait(ring_->out, to.copied_back));
  for (const Span& span : piece(index).out) {
    const auto* const from = static_cast<const std::byte*>(call_.in.data) + span.in_tensor;
    RETURN_IF_ERROR(gpu().Copy(to.memory + span.in_slot, from, span.bytes, ring_->out));
  }
  return gpu().Record(to.copied_out, ring_->out);
}

// Whether the next piece's call could begin, or all has ended.
bool Operation::Look() {
  const Ring::Slot& next = slot(called_);
  const bool reads = !piece(called_).out.empty();
  const auto done = gpu().Done(reads ? next.copied_out : next.copied_back);
  if (!done.ok()) {
    GiveUp(done.status());
    return false;
  }
  waits_for_gpu_ = !*done;
  if (*done) MakeHostCall(piece(called_).call);
  return *done;
}

void Operation::MakeHostCall(Call call) {
  call.timeout = call_.timeout;
  call.part_of = &signature_;
  host_call_ = host_.Make(call);
  host_call_->StartClock(start_);
}

// True: all has.
bool Operation::OnHostCallEnded() {
  const absl::Status status = host_call_->status();
  host_call_.reset();
  if (!status.ok()) return End(status);
  if (state_ == State::kMeasuring) {
    BeginPieces(longest_);
    return state_ == State::kEnded;
  }
  if (absl::Status back = CopyBack(); !back.ok()) return GiveUp(back);
  ++called_;
  if (called_ == pieces_->count()) {
    if (absl::Status finished = Finish(); !finished.ok()) return GiveUp(finished);
    return End(absl::OkStatus());
  }
  CopyOut();
  return state_ == State::kEnded;
}

absl::Status Operation::CopyBack() {
  if (piece(called_).back.empty()) return absl::OkStatus();
  const Ring::Slot& from = slot(called_);
  for (const Span& span : piece(called_).back) {
    auto* const to = static_cast<std::byte*>(call_.out.data) + span.in_tensor;
    RETURN_IF_ERROR(gpu().Copy(to, from.memory + span.in_slot, span.bytes, ring_->back));
  }
  written_ = from.copied_back;
  return gpu().Record(from.copied_back, ring_->back);
}

// What the program queues from now on comes after the last copy. The input was read: copies out have all been done.
absl::Status Operation::Finish() {
  return written_ == nullptr ? absl::OkStatus() : gpu().Wait(call_.out.device.stream, written_);
}

// --- Ending; those that return bool return true ---

bool Operation::Check(TimePoint now) {
  if (state_ == State::kEnded) return true;
  if (start_ == TimePoint{}) StartClock(now);
  if (host_call_ != nullptr) return host_call_->Check(now) && OnHostCallEnded();
  if (auto cause = host_.FindCause(Context()); cause) return End(*std::move(cause));
  return now >= deadline_ && FailLate();
}

bool Operation::FailLate() {
  std::string what = "it had not begun";
  if (state_ != State::kBefore) {
    const bool reads = !piece(called_).out.empty();
    what = absl::StrCat("GPU ", gpu().ordinal(), " of rank ", host_.rank(), " had not ",
                        reads ? "copied" : "emptied the slot for", " piece ", called_ + 1, " of ", pieces_->count(),
                        reads ? " to the host" : "", ", or not begun with what was queued before");
  }
  return GiveUp(absl::DeadlineExceededError(absl::StrFormat(
      "%s timed out after %.3g s: %s", Context(), std::chrono::duration<double>(*call_.timeout).count(), what)));
}

bool Operation::GiveUp(const absl::Status& why) {
  return End(host_.GiveUp(why));
}

bool Operation::End(absl::Status status) {
  status_ = std::move(status);
  state_ = State::kEnded;
  waits_for_gpu_ = false;
  host_call_.reset();
  if (ring_ == nullptr) return true;
  if (!status_.ok() && pieces_) HaveProgramWait();
  rings_->Give(std::move(ring_), !status_.ok());
  return true;
}

// Copies that were queued are yet to be done, and who learns of the failure uses the tensors for something else.
// Errors: it has failed as it is.
void Operation::HaveProgramWait() {
  const Ring::Slot& first = ring_->slots[0];
  const auto wait = [&](const Device& device, device::Gpu::Event event, device::Gpu::Stream on) {
    if (device.on_gpu() && gpu().Record(event, on).ok()) (void)gpu().Wait(device.stream, event);
  };
  wait(call_.in.device, first.copied_out, ring_->out);
  wait(call_.out.device, first.copied_back, ring_->back);
}

std::string Operation::Context() const {
  return Describe(signature_);
}

std::shared_ptr<Pollable> Backend::Make(const GpuCall& call) {
  return std::make_shared<Operation>(host_, rings_, call);
}

}  // namespace gyre::internal::staged
