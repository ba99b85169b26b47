#include "runtime/gradient_step.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/first_and_more.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

// "a", "b", "c" and 4 more.
std::string Names(const std::vector<fusion::TensorInfo>& tensors, const std::vector<int>& which) {
  constexpr size_t kMost = 3;
  return FirstAndMore(which, kMost, [&](int number) {
    return absl::StrCat("\"", absl::CHexEscape(tensors[static_cast<size_t>(number)].name), "\"");
  });
}

// After how much of a call's time it is worth a warning that it still waits, and how often.
constexpr int kPartOfTimeout = 4;
constexpr std::chrono::seconds kLongestWait{10}, kBetweenWarnings{60};

}  // namespace

GradientStep::GradientStep(const CommunicatorState& communicator, fusion::Gradients& gradients,
                           const fusion::Readiness& readiness, const Settings& settings)
    : communicator_(communicator),
      gradients_(gradients),
      readiness_(readiness),
      settings_(settings),
      waited_(static_cast<size_t>(communicator.team() != nullptr ? communicator.team()->size()
                                                                 : communicator.group()->size())) {}

void GradientStep::Follow(std::vector<fusion::Part> parts, std::vector<RowPart> rows) {
  parts_ = std::move(parts);
  row_parts_ = std::move(rows);
  complete_at_.assign(gradients_.tensors().size(), 0);
  for (size_t part = 0; part < parts_.size(); ++part) {
    for (const int tensor : parts_[part].tensors) complete_at_[static_cast<size_t>(tensor)] = part + 1;
  }
}

void GradientStep::Restart(int64_t number) {
  Pollable::Restart();
  number_ = number;
  next_ = next_rows_ = prepared_ = 0;
  ended_ = false;
  failure_ = absl::OkStatus();
  waits_since_ = TimePoint{};
  missing_ = -1;
  std::ranges::fill(waited_, Duration::zero());
  waits_.store(0);
  waits_for_gpu_.store(false);
  seen_waits_ = 0;
  delivered_.store(0);
  SetDeadline(TimePoint::max());
}

Lane& GradientStep::lane() const {
  return group().collective().lane;  // a team's is its group's
}

void GradientStep::Nudge() const {
  communicator_.runtime().progress()->Ring();
}

bool GradientStep::AddWaits(std::vector<pollfd>& waits) const {
  return call_ != nullptr && call_->AddWaits(waits);
}

shm::Progress GradientStep::Poll() {
  if (ended_) return shm::Progress::kDone;
  if (call_ == nullptr) {
    if (gradients_.only_adds() || (next_ == parts_.size() && RowsDue() == nullptr)) {
      if (readiness_.remaining() != 0) return shm::Progress::kNone;  // some are added up, or have no elements
      ended_ = true;
      return shm::Progress::kDone;
    }
    if (!MayLaunchNext()) return shm::Progress::kNone;
    if (absl::Status launched = Launch(); !launched.ok()) {
      Break(launched);
      End(std::move(launched));
      return shm::Progress::kDone;
    }
  }
  const shm::Progress progress = call_->Poll();
  NoteWait(progress);
  // While it waits for a GPU, that is soon.
  if (on_gpu_ != nullptr || compressed_ != nullptr) SetDeadline(call_->deadline());
  if (progress == shm::Progress::kNone && PrepareLater()) return shm::Progress::kSome;
  if (progress != shm::Progress::kDone) return progress;
  return Deliver() ? shm::Progress::kSome : shm::Progress::kDone;
}

// The clock is read where a wait begins and where it ends. Who came last is who was still missing at the last look.
void GradientStep::NoteWait(shm::Progress progress) {
  const bool waits = progress == shm::Progress::kNone;
  if (!waits && missing_ < 0) return;
  int missing = -1;
  if (waits && over_hosts_) missing = over_hosts_->MissingRank();
  if (waits && within_host_) missing = within_host_->MissingRank();
  if (missing >= 0 && missing_ < 0) missing_since_ = std::chrono::steady_clock::now();
  if (missing < 0 && missing_ >= 0) {
    waited_[static_cast<size_t>(missing_)] += std::chrono::steady_clock::now() - missing_since_;
  }
  missing_ = missing;
}

GradientStep::Waited GradientStep::longest_wait() const {
  const auto longest = std::ranges::max_element(waited_);
  if (*longest == Duration::zero()) return {-1, Duration::zero()};
  return {static_cast<int>(longest - waited_.begin()), *longest};
}

// What comes next, if that is row gradients.
const GradientStep::RowPart* GradientStep::RowsDue() const {
  const bool due = next_rows_ < row_parts_.size() && row_parts_[next_rows_].before == next_;
  return due ? &row_parts_[next_rows_] : nullptr;
}

bool GradientStep::MayLaunchNext() {
  const RowPart* const rows = RowsDue();
  return rows != nullptr ? readiness_.full(rows->bucket) && RowsThere(*rows) : MayLaunch(next_) && LookedAtAll();
}

// True also where they never will be: Launch says so.
bool GradientStep::RowsThere(const RowPart& rows) {
  if (settings_.rows_on_gpu == nullptr) return true;
  const auto there = settings_.rows_on_gpu->Arrive(rows.tensors, *settings_.rows);
  if (!there.ok()) failure_ = Annotate(there.status(), NameOfNext());
  waits_for_gpu_.store(there.ok() && !*there);
  return !waits_for_gpu_.load();
}

bool GradientStep::WaitsForAll() const {
  return settings_.compressor != nullptr && settings_.compressor->waits_for_all();
}

bool GradientStep::MayLaunch(size_t part) const {
  return WaitsForAll() ? readiness_.remaining() == 0 : readiness_.full(parts_[part].bucket);
}

// Where a step begins with that: whether it is done. True also where it never will be: Launch says so.
bool GradientStep::LookedAtAll() {
  if (!WaitsForAll()) return true;
  const auto looked = LookAtAll();
  if (!looked.ok()) failure_ = Annotate(looked.status(), absl::StrCat("step ", number_));
  waits_for_gpu_.store(looked.ok() && !*looked);
  return !waits_for_gpu_.load();
}

absl::StatusOr<bool> GradientStep::LookAtAll() {
  for (; prepared_ < parts_.size(); ++prepared_) RETURN_IF_ERROR(gradients_.Prepare(parts_[prepared_]));
  return settings_.compressor->LookAtAll(parts_, gradients_);
}

// While the call in course waits for others: something that a later part's call will need. One gradient at a time,
// for which what arrives meanwhile has to wait.
bool GradientStep::PrepareLater() {
  if (settings_.compressor == nullptr) return false;
  for (size_t part = rows_ ? next_ : next_ + 1; part < parts_.size() && MayLaunch(part); ++part) {
    if (settings_.compressor->Prepare(part, parts_, gradients_)) return true;
  }
  return false;
}

// An error is this rank's own.
absl::Status GradientStep::Launch() {
  RETURN_IF_ERROR(failure_);
  if (const RowPart* const rows = RowsDue(); rows != nullptr) {
    settings_.rows->Begin(rows->tensors);
    call_ = &rows_.emplace(communicator_, *settings_.rows, settings_.timeout);
  } else {
    RETURN_IF_ERROR(LaunchPart());
  }
  launched_ = std::chrono::steady_clock::now();
  waits_since_ = launched_;
  call_->StartClock(launched_);
  SetDeadline(call_->deadline());
  return absl::OkStatus();
}

absl::Status GradientStep::LaunchPart() {
  if (prepared_ == 0) RETURN_IF_ERROR(gradients_.Prepare(parts_[next_]));
  if (settings_.compressor != nullptr) {
    auto compressed = settings_.compressor->Launch(next_, parts_, gradients_, settings_.timeout);
    if (!compressed.ok()) return Annotate(compressed.status(), NameOfNext());
    call_ = compressed_ = *compressed;
    if (compressed_ != nullptr) return absl::OkStatus();  // it makes its calls itself
  }
  const Call call = CallOn(gradients_.BufferOf(parts_[next_]));
  if (call.in.device.on_gpu()) {
    const GpuManner manner{.graph = gradients_.GraphOf(parts_[next_]), .same_place = settings_.same_place};
    on_gpu_ = communicator_.gpu_calls()->Make(call, absl::OkStatus(), manner);
    call_ = on_gpu_.get();
  } else if (communicator_.team() != nullptr) {
    call_ = &over_hosts_.emplace(communicator_.team(), call);
  } else {
    call_ = &within_host_.emplace(group(), call, SignatureOf(call));
  }
  return absl::OkStatus();
}

Call GradientStep::CallOn(const TensorView& buffer) const {
  return {.kind = CallKind::kAllReduce,
          .in = buffer,
          .out = buffer,
          .op = settings_.op,
          .prescale = settings_.prescale,
          .postscale = settings_.postscale,
          .timeout = settings_.timeout};
}

void GradientStep::TellObserver(const absl::Status& status) const {
  CallObserver* const observer = communicator_.runtime().observer();
  if (observer == nullptr) return;
  observer->Ended({.activity = Activity::kBucket,
                   .asynchronous = true,
                   .failed = !status.ok(),
                   .bytes = rows_ ? settings_.rows->part_bytes() : gradients_.BufferOf(parts_[next_]).bytes(),
                   .begin = launched_,
                   .end = std::chrono::steady_clock::now()});
}

// The call in course has ended. False: and with it the step.
bool GradientStep::Deliver() {
  absl::Status status = call_->status();
  TellObserver(status);
  const bool rows = rows_.has_value();
  if (rows && rows_->failed_here()) Break(status);
  rows_.reset();
  if (compressed_ != nullptr) {
    if (compressed_->failed_here()) Break(status);
    settings_.compressor->Finish();
    compressed_ = nullptr;
  }
  call_ = nullptr;
  within_host_.reset();
  over_hosts_.reset();
  on_gpu_.reset();
  waits_since_ = TimePoint{};
  SetDeadline(TimePoint::max());
  if (!status.ok()) return !End(Annotate(status, NameOfNext()));
  if (rows) {
    ++next_rows_;
  } else {
    gradients_.Deliver(parts_[next_++]);
  }
  delivered_.store(next_);
  if (tells_of_parts_.load()) Nudge();
  return true;
}

bool GradientStep::End(absl::Status status) {
  status_ = std::move(status);
  ended_ = true;
  waits_for_gpu_.store(false);
  return true;
}

bool GradientStep::Check(TimePoint now) {
  if (ended_) return true;
  WarnIfLate(now);
  if (call_ == nullptr) return CheckOwn(now);
  return call_->Check(now) && !Deliver();
}

// Names who is late, long before the deadline does.
void GradientStep::WarnIfLate(TimePoint now) {
  if (waits_since_ == TimePoint{}) waits_since_ = now;
  const Duration late = std::min<std::chrono::milliseconds>(settings_.timeout / kPartOfTimeout, kLongestWait);
  if (now - waits_since_ < late || now < quiet_until_) return;
  quiet_until_ = now + kBetweenWarnings;
  const std::string what = call_ == nullptr ? absl::StrCat("step ", number_, ", ", Absent()) : Awaited();
  const double seconds = std::chrono::duration<double>(now - waits_since_).count();
  communicator_.runtime().logger().Warn(absl::StrFormat("%s, for %.3g s", what, seconds));
}

// What the call in course waits for; of a compressed one, or of rows, nobody can say.
std::string GradientStep::Awaited() {
  std::string ranks;
  if (over_hosts_) ranks = over_hosts_->Awaited();
  if (within_host_) ranks = within_host_->Awaited();
  return absl::StrCat(NameOfNext(), ": ", ranks.empty() ? "under way" : absl::StrCat("waiting for ", ranks));
}

// Between calls: whether there is cause to wait no longer for gradients of this rank.
bool GradientStep::CheckOwn(TimePoint now) {
  if (group().node().closed()) return End(absl::FailedPreconditionError("the runtime was shut down"));
  std::string cause;
  if (const absl::Status broken = group().status(); !broken.ok()) {
    cause = std::string(broken.message());
  } else if (const auto words = group().FindLastWords(); words) {
    cause = words->text;
    group().Break(absl::Status(words->code, words->text), *words);
  }
  if (!cause.empty()) return End(absl::AbortedError(absl::StrCat(cause, "; here, ", Absent())));
  if (const uint32_t waits = waits_.load(); waits != seen_waits_) {
    seen_waits_ = waits;
    SetDeadline(TimePoint::max());  // what is left of the time of an earlier wait is not this one's
  }
  if (seen_waits_ % 2 == 0) return false;
  if (own_deadline() == TimePoint::max()) SetDeadline(DeadlineAfter(now, settings_.timeout));
  return now >= own_deadline() && FailLate();
}

bool GradientStep::FailLate() {
  const std::string text =
      absl::StrFormat("step %d timed out after %.3g s: on rank %d, %s", number_,
                      std::chrono::duration<double>(settings_.timeout).count(),
                      communicator_.team() != nullptr ? communicator_.team()->rank() : group().rank(), Absent());
  const absl::Status status = absl::DeadlineExceededError(text);
  Break(status);
  return End(status);
}

void GradientStep::Abandon(const std::string& why) {
  Break(absl::AbortedError(why));
  Nudge();
}

// Tells the other ranks.
void GradientStep::Break(const absl::Status& status) {
  const shm::LastWords::Content words{-1, std::string(status.message())};
  if (communicator_.team() != nullptr) {
    communicator_.team()->Break(status, words);
  } else {
    group().Break(status, words);
  }
}

// What is in course, or comes next.
std::string GradientStep::NameOfNext() const {
  const RowPart* const rows = RowsDue();
  return rows != nullptr ? NameOf("row gradients", rows->tensors) : NameOf(parts_[next_]);
}

std::string GradientStep::NameOf(std::string_view what, const std::vector<int>& tensors) const {
  return absl::StrCat("step ", number_, ", ", ToAbsl(what), " ", Names(gradients_.tensors(), tensors));
}

// What this rank waits for.
std::string GradientStep::Absent() const {
  std::vector<int> absent;
  for (int tensor = 0; tensor < static_cast<int>(gradients_.tensors().size()); ++tensor) {
    if (!readiness_.claimed(tensor)) absent.push_back(tensor);
  }
  if (absent.empty() && waits_for_gpu_.load()) {
    return RowsDue() != nullptr ? "rows have not come from the GPU" : settings_.compressor->Awaited();
  }
  if (absent.empty()) return "all gradients are ready or about to be";
  return absl::StrCat("gradients not ready: ", Names(gradients_.tensors(), absent));
}

}  // namespace gyre::internal
