#include "runtime/reducer_state.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "fusion/arithmetic.h"
#include "fusion/layout.h"
#include "runtime/gpu_codec_device.h"
#include "runtime/gpus.h"
#include "runtime/reducer_agreement.h"

namespace gyre {

namespace {

// A tensor of so many bytes is reduced by a call of its own, within a host: if it lives in the program's memory, that
// costs less than a copy to its bucket and back. Between hosts calls are fewer and larger.
constexpr int64_t kOwnCallBytes = 512 << 10;

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

GradientReducer::State::State(std::unique_ptr<Communicator> communicator, const ReducerOptions& options,
                              internal::CompressionRequest compression)
    : communicator_(std::move(communicator)),
      ranks_(communicator_->state_),
      options_(options),
      timeout_(options.timeout.value_or(ranks_->runtime().config().operation_timeout)),
      compression_(std::move(compression)),
      forced_bytes_(options.bucket_bytes ? options.bucket_bytes : ranks_->runtime().config().fusion_bytes) {}

GradientReducer::State::~State() {
  if (memory_.data != nullptr) memory_.arena->Free(memory_.data);
}

absl::Status GradientReducer::State::CheckRegistration(std::string_view name, const Device& device) const {
  if (begun_) return absl::FailedPreconditionError("gradients are registered before Start");
  if (device.gpu < -1) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient \"", absl::CHexEscape(ToAbsl(name)), "\" is on GPU ", device.gpu, ", which cannot be"));
  }
  if (internal::IsPerThread(device)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient \"", absl::CHexEscape(ToAbsl(name)), "\" is on ", internal::kPerThreadText));
  }
  if (!devices_.empty() && devices_[0].gpu != device.gpu) {
    return absl::InvalidArgumentError(absl::StrCat("gradient \"", absl::CHexEscape(ToAbsl(name)), "\" is on ",
                                                   internal::NameOfDevice(device), ", those before it on ",
                                                   internal::NameOfDevice(devices_[0])));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> GradientReducer::State::Register(std::string_view name, std::span<const int64_t> shape, DType dtype,
                                                     const Device& device) {
  RETURN_IF_ERROR(CheckRegistration(name, device));
  ASSIGN_OR_RETURN(const int index, registry_.Add(name, shape, dtype));
  devices_.push_back(device);
  return index;
}

// --- Start ---

absl::Status GradientReducer::State::Start() {
  RETURN_IF_ERROR(process().Check());
  if (begun_) return absl::FailedPreconditionError("a reducer is started once");
  begun_ = true;
  tensors_ = registry_.Tensors();
  places_ = registry_.Places();
  absl::StatusOr<fusion::SavedPlan> saved = fusion::SavedPlan();
  if (!options_.plan.empty()) {
    saved = fusion::FromText(options_.plan);
    if (saved.ok()) {
      if (absl::Status fits = CheckPlanFits(*saved, tensors_); !fits.ok()) saved = std::move(fits);
    }
  }
  RETURN_IF_ERROR(
      internal::AgreeOnGradients(*communicator_, registry_.Describe(DescribeOptions(saved)), call_options()));
  RETURN_IF_ERROR(MakeFirstPlan(saved));
  RETURN_IF_ERROR(internal::AgreeOnSuccess(*communicator_, MakeGradients(MakeLayout(tensors_, plan_)), call_options()));
  if (on_gpu_ != nullptr) {  // in buckets that are laid out alike on all ranks
    ASSIGN_OR_RETURN(in_nccl_memory_, internal::AllSucceeded(*communicator_, in_nccl_memory_, call_options()));
  }
  rows_ = MakeRowExchange();
  readiness_ = std::make_unique<fusion::Readiness>(size());
  RETURN_IF_ERROR(MakeCompressor());
  graphs_due_ = options_.graphs && on_gpu_ != nullptr && compressor_ == nullptr;
  if ((compressor_ != nullptr || on_gpu_ != nullptr) && !plan_.turns.empty()) {
    return absl::InvalidArgumentError(
        "the plan has turns: it is for gradients that are on the host and are not compressed");
  }
  step_ = std::make_unique<internal::GradientStep>(*ranks_, *gradients_, *readiness_,
                                                   internal::GradientStep::Settings{.op = options_.op,
                                                                                    .prescale = options_.prescale,
                                                                                    .postscale = postscale(),
                                                                                    .timeout = timeout_,
                                                                                    .compressor = compressor_.get(),
                                                                                    .rows = rows_.get(),
                                                                                    .rows_on_gpu = rows_on_gpu_.get(),
                                                                                    .same_place = in_nccl_memory_});
  Follow(std::move(plan_));
  if (compressor_ != nullptr) compressor_->Restart(steps_ + 1);
  RETURN_IF_ERROR(PrepareToPlan());
  step_->Restart(steps_ + 1);
  step_begins_ = std::chrono::steady_clock::now();
  started_.store(true);
  return absl::OkStatus();
}

absl::Status GradientReducer::State::MakeGradients(const fusion::Layout& layout) {
  if (!devices_.empty() && devices_[0].on_gpu()) {
    ASSIGN_OR_RETURN(const internal::OpenedGpu opened, ranks_->runtime().gpus().Get(devices_[0].gpu));
    std::vector<void*> streams(devices_.size());
    for (size_t index = 0; index < devices_.size(); ++index) {
      streams[static_cast<size_t>(places_[index])] = devices_[index].stream;
    }
    ASSIGN_OR_RETURN(auto gradients, fusion::GradientsOnGpu::Create(opened.gpu, opened.memory, tensors_, layout,
                                                                    std::move(streams), options_.accumulate));
    on_gpu_ = gradients.get();
    in_nccl_memory_ = opened.nccl_memory != nullptr && Has(*opened.nccl_memory, on_gpu_->begin());
    gradients_ = std::move(gradients);
    return row_shapes_.empty() ? absl::OkStatus() : MakeRowsOnGpu(opened.gpu);
  }
  RETURN_IF_ERROR(Allocate(layout.bytes));
  const int64_t own_call_bytes = communicator_->node_count() == 1 ? kOwnCallBytes : INT64_MAX;
  gradients_ = std::make_unique<fusion::Gradients>(tensors_, layout, memory_.data, own_call_bytes, options_.accumulate);
  return absl::OkStatus();
}

// Where the gradients are.
absl::StatusOr<std::shared_ptr<internal::CodecDevice>> GradientReducer::State::MakeCodecDevice() const {
  if (on_gpu_ == nullptr) return internal::MakeHostDevice();
  ASSIGN_OR_RETURN(internal::OpenedGpu opened, ranks_->runtime().gpus().Get(on_gpu_->own().gpu));
  return internal::MakeGpuDevice(std::move(opened), on_gpu_->own().stream, communicator_->rank(), timeout_);
}

absl::Status GradientReducer::State::MakeCompressor() {
  ASSIGN_OR_RETURN(auto device, MakeCodecDevice());
  ASSIGN_OR_RETURN(compressor_,
                   internal::Compressor::Create(*communicator_, *ranks_, compression_, options_, tensors_,
                                                registry_.Shapes(), postscale(), std::move(device), compression_use_));
  return absl::OkStatus();
}

// What must be equal on all ranks beside the gradients.
std::string GradientReducer::State::DescribeOptions(const absl::StatusOr<fusion::SavedPlan>& saved) const {
  const auto exact = [](double number) { return absl::StrFormat("%.17g", number); };
  const std::string norm = options_.max_norm ? exact(*options_.max_norm) : "none";
  std::string plan = "none";
  if (!saved.ok()) {
    plan = absl::CHexEscape(saved.status().message());
  } else if (!options_.plan.empty()) {
    plan = absl::StrCat(absl::Hex(Hash(saved->plan)));
  }
  return absl::StrCat(
      "op ", ToAbsl(ReduceOpName(options_.op)), ", prescale ", exact(options_.prescale), ", postscale ",
      exact(options_.postscale), ", max_norm ", norm, ", skip_non_finite ", options_.skip_non_finite, ", accumulate ",
      options_.accumulate, ", tune ", options_.tune, ", priorities ", options_.priorities, ", graphs ", options_.graphs,
      ", bucket_bytes ", forced_bytes_ ? absl::StrCat(*forced_bytes_) : "none", ", plan ", plan, ", compression ",
      internal::Describe(compression_), ", on ", !devices_.empty() && devices_[0].on_gpu() ? "a GPU" : "the host");
}

absl::Status GradientReducer::State::MakeFirstPlan(const absl::StatusOr<fusion::SavedPlan>& saved) {
  RETURN_IF_ERROR(saved.status());
  if (!options_.plan.empty()) {
    plan_ = saved->plan;
    planned_ = true;
    return absl::OkStatus();
  }
  std::vector<int> order(places_.rbegin(), places_.rend());
  RETURN_IF_ERROR(internal::AdoptOrder(*communicator_, order, call_options()));
  plan_ = PlanBySize(tensors_, order, bucket_bytes());
  return absl::OkStatus();
}

absl::Status GradientReducer::State::Allocate(int64_t bytes) {
  memory_.arena = ranks_->runtime().node()->arena();
  ASSIGN_OR_RETURN(memory_.data, memory_.arena->Allocate(bytes));
  std::fill_n(memory_.data, bytes, std::byte{});  // it may have been used before
  return absl::OkStatus();
}

void GradientReducer::State::Follow(fusion::Plan plan) {
  plan_ = std::move(plan);
  const bool own_calls = communicator_->node_count() == 1 && on_gpu_ == nullptr;
  auto parts = MakeParts(tensors_, plan_, gradients_->layout(), own_calls ? kOwnCallBytes : INT64_MAX);
  auto row_parts = MakeRowParts(parts);
  step_->Follow(std::move(parts), std::move(row_parts));
  if (compressor_ != nullptr) compressor_->Follow(step_->parts());
  readiness_->Follow(plan_);
}

// --- What compression keeps ---

bool GradientReducer::State::carries_momentum(int index) const {
  if (compressor_ == nullptr || index < 0 || index >= size()) return false;
  return compressor_->carries_momentum() && compressor_->covers(places_[static_cast<size_t>(index)]);
}

std::vector<std::byte> GradientReducer::State::SaveCompression() const {
  if (compressor_ == nullptr) return {};
  auto saved = compressor_->Save();
  if (saved.ok()) return *std::move(saved);
  ranks_->runtime().logger().Error(absl::StrCat("compression state was not saved: ", saved.status().ToString()));
  return {};
}

absl::Status GradientReducer::State::RestoreCompression(std::span<const std::span<const std::byte>> saved) {
  RETURN_IF_ERROR(CheckUsable());
  if (compressor_ != nullptr) return compressor_->Restore(saved);
  if (std::ranges::all_of(saved, [](const auto& bytes) { return bytes.empty(); })) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("compression state: there is none to take it; ", ToAbsl(CompressionUseText(compression_use_))));
}

// --- A step ---

TensorView GradientReducer::State::gradient(int index) const {
  if (step_ == nullptr || index < 0 || index >= size()) return {};
  return gradients_->home(places_[static_cast<size_t>(index)]);
}

TensorView GradientReducer::State::result(int index) const {
  if (step_ == nullptr || index < 0 || index >= size()) return {};
  return gradients_->result(places_[static_cast<size_t>(index)]);
}

std::string GradientReducer::State::NameOf(int place) const {
  return absl::StrCat("\"", absl::CHexEscape(tensors_[static_cast<size_t>(place)].name), "\"");
}

absl::Status GradientReducer::State::CheckUsable() const {
  RETURN_IF_ERROR(process().Check());
  if (!started_.load()) return absl::FailedPreconditionError("the reducer was not started");
  if (!failed_.load()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the reducer has failed: ", failure_.message()));
}

absl::Status GradientReducer::State::CheckIndex(int index) const {
  if (index >= 0 && index < size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("there is no gradient ", index, " of ", size()));
}

absl::Status GradientReducer::State::Claim(int place) {
  if (tuning_ != nullptr) NoteFirstGradient();
  if (readiness_->Claim(place)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("gradient ", NameOf(place), " was ready in this step already"));
}

absl::Status GradientReducer::State::Give(int index, const TensorView* view, bool zeros) {
  RETURN_IF_ERROR(CheckUsable());
  RETURN_IF_ERROR(CheckIndex(index));
  const int place = places_[static_cast<size_t>(index)];
  const fusion::TensorInfo& tensor = tensors_[static_cast<size_t>(place)];
  if (rows_->has(place) && !zeros) {
    return absl::InvalidArgumentError(absl::StrCat("gradient ", NameOf(place), " is given by ReadyRows"));
  }
  if (view != nullptr && view->data == nullptr && view->count > 0) {
    return absl::InvalidArgumentError(absl::StrCat("gradient ", NameOf(place), " was given as a null pointer"));
  }
  if (view != nullptr && (view->count != tensor.count || !fusion::IsGradientDType(view->dtype))) {
    return absl::InvalidArgumentError(absl::StrCat("gradient ", NameOf(place), " has ", tensor.count,
                                                   " floating-point elements; given were ", view->count, " of ",
                                                   ToAbsl(DTypeName(view->dtype))));
  }
  if (view != nullptr && internal::IsPerThread(view->device)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient ", NameOf(place), " was given on ", internal::kPerThreadText));
  }
  if (view != nullptr) {
    const absl::Status fits = on_gpu_ != nullptr       ? on_gpu_->Check(place, *view)
                              : view->device.gpu != -1 ? absl::InvalidArgumentError("it was registered on the host")
                                                       : absl::OkStatus();
    if (!fits.ok()) return Annotate(fits, absl::StrCat("gradient ", NameOf(place)));
  }
  RETURN_IF_ERROR(Claim(place));
  if (zeros) {
    gradients_->GiveZeros(place);
  } else if (view != nullptr) {
    gradients_->Give(place, *view);
  } else {
    gradients_->Give(place);
  }
  Complete(place);
  return absl::OkStatus();
}

void GradientReducer::State::Complete(int place) {
  if (ready_times_ != nullptr) ready_times_->Record(place, Seconds(std::chrono::steady_clock::now() - step_begins_));
  const int64_t attempt = attempt_.load();
  const bool reduces = !gradients_->only_adds();
  if (on_gpu_ != nullptr) on_gpu_->Mark(readiness_->Arrive(place));
  const auto [filled, first_full, last] = readiness_->Complete(place);
  // From here on the step may have ended, and the next one may have begun.
  if (!filled && !last) return;
  if (launched_.load() == attempt) {
    step_->Nudge();
  } else if (reduces && first_full && !last && TakeLaunch(attempt)) {
    // There is something to compute meanwhile. Once everything is ready, Wait does the work itself.
    ranks_->runtime().progress()->Start(ranks_->owner(), step_->lane(), {shared_from_this(), step_.get()});
  }
}

bool GradientReducer::State::TakeLaunch(int64_t attempt) {
  int64_t before = attempt - 1;
  return launched_.compare_exchange_strong(before, attempt);
}

// Whether its result takes those of all others: they are scaled by the norm of all, are rows, which are added up at the
// end, or are on a GPU, whose streams are told once.
bool GradientReducer::State::NeedsAll(int place) const {
  return options_.max_norm || options_.skip_non_finite || on_gpu_ != nullptr || rows_->has(place);
}

// The program waits for this gradient (-1: for all), and would have done so earlier if it had not waited before.
void GradientReducer::State::NoteNeeds(int place) {
  if (need_times_ == nullptr) return;
  needed_.resize(static_cast<size_t>(size()));
  const double now = Seconds(std::chrono::steady_clock::now() - step_begins_) - waited_.count();
  const bool all = place < 0 || NeedsAll(place);
  for (int each = all ? 0 : place; each < (all ? size() : place + 1); ++each) {
    if (!needed_[static_cast<size_t>(each)]) need_times_->Record(each, now);
    needed_[static_cast<size_t>(each)] = true;
  }
}

absl::StatusOr<bool> GradientReducer::State::WaitFor(int index) {
  RETURN_IF_ERROR(CheckUsable());
  RETURN_IF_ERROR(CheckIndex(index));
  if (gradients_->only_adds()) return false;
  const int place = places_[static_cast<size_t>(index)];
  NoteNeeds(place);
  if (NeedsAll(place)) {
    if (!finished_) RETURN_IF_ERROR(Reduce());
    return !finished_->skipped;
  }
  if (!step_->Has(place)) RETURN_IF_ERROR(ReduceUntil(place));
  return true;
}

absl::StatusOr<StepSummary> GradientReducer::State::Wait() {
  RETURN_IF_ERROR(CheckUsable());
  NoteNeeds(-1);
  if (!finished_) RETURN_IF_ERROR(Reduce());
  StepSummary summary = *finished_;
  if (summary.reduced) {
    summary.step = ++steps_;
    if (!planned_) {
      if (absl::Status planned = PlanAfterStep(summary); !planned.ok()) return Fail(std::move(planned));
    } else if (graphs_due_) {
      if (absl::Status captured = CaptureGraphs(summary); !captured.ok()) return Fail(std::move(captured));
    }
    if (compressor_ != nullptr && compressor_->IsDue(summary.step)) {
      absl::Status chosen = compressor_->ChooseAgain(*communicator_, step_->parts(), call_options());
      if (!chosen.ok()) return Fail(std::move(chosen));
      ++summary.control_messages;
    }
  } else if (tuning_ != nullptr) {
    tuning_->first_gradient.store(0);  // only the micro-batch that reduces is timed
  }
  finished_.reset();
  waited_ = {};
  needed_.clear();
  readiness_->Restart();
  gradients_->Restart();
  if (compressor_ != nullptr) compressor_->Restart(steps_ + 1);
  step_->Restart(steps_ + 1);
  if (!planned_) step_begins_ = std::chrono::steady_clock::now();
  attempt_.fetch_add(1);
  return summary;
}

// Helps until this one's result is there.
absl::Status GradientReducer::State::ReduceUntil(int place) {
  const auto begin = std::chrono::steady_clock::now();
  const auto& progress = ranks_->runtime().progress();
  step_->Await();
  step_->TellOfParts(true);
  if (TakeLaunch(attempt_.load())) {
    progress->Start(ranks_->owner(), step_->lane(), {shared_from_this(), step_.get()});
  } else {
    step_->Nudge();  // for its deadline
  }
  progress->WaitUntil([&] { return step_->Has(place) || step_->done(); });
  step_->TellOfParts(false);
  step_->LeaveOff();
  return EndWait(step_->Has(place) ? absl::OkStatus() : step_->status(), begin);
}

// All of them, and what is made of them together.
absl::Status GradientReducer::State::Reduce() {
  const auto begin = std::chrono::steady_clock::now();
  const auto& progress = ranks_->runtime().progress();
  step_->Await();
  absl::Status status;
  if (TakeLaunch(attempt_.load())) {
    status = progress->Run(ranks_->owner(), step_->lane(), *step_);
  } else {
    step_->Nudge();  // for its deadline
    progress->Wait(*step_);
    status = step_->status();
  }
  const bool reduces = !gradients_->only_adds();
  if (status.ok() && reduces) rows_->FinishStep();
  RETURN_IF_ERROR(EndWait(std::move(status), begin));
  finished_.emplace();
  finished_->reduced = reduces;
  if (!reduces) return absl::OkStatus();
  absl::Status finished = FinishResults(*finished_);
  if (finished.ok()) return finished;
  // The others have their results, and would wait for this rank in the next step.
  step_->Abandon(absl::StrCat("rank ", communicator_->rank(), " could not finish its step: ", finished.message()));
  return Fail(std::move(finished));
}

absl::Status GradientReducer::State::EndWait(absl::Status status, std::chrono::steady_clock::time_point begin) {
  const auto end = std::chrono::steady_clock::now();
  waited_ += end - begin;
  if (internal::CallObserver* const observer = ranks_->runtime().observer(); observer != nullptr) {
    observer->Ended(
        {.activity = internal::Activity::kGradientWait, .failed = !status.ok(), .begin = begin, .end = end});
  }
  return status.ok() ? status : Fail(std::move(status));
}

// All ranks have the same results, and so come to the same conclusions. Fails on a GPU alone, and then on this rank.
absl::Status GradientReducer::State::FinishResults(StepSummary& summary) {
  summary.exposed_seconds = waited_.count();
  summary.buckets = static_cast<int>(plan_.buckets.size());
  summary.calls = static_cast<int>(step_->parts().size()) + rows_->calls();
  summary.bytes = rows_->sent_bytes();
  for (const fusion::TensorInfo& tensor : tensors_) summary.bytes += tensor.bytes();
  const auto [longest, time] = step_->longest_wait();
  summary.waiting_for = longest;
  summary.waited_seconds = Seconds(time);
  summary.compression = compression_use_;
  if (compressor_ != nullptr) {
    summary.compressed_calls = compressor_->calls();
    summary.compressed_bytes = compressor_->sent_bytes();
  }
  if (on_gpu_ != nullptr) return FinishOnGpu(summary);
  if (!options_.max_norm && !options_.skip_non_finite) return absl::OkStatus();
  double squares = rows_->SumOfSquares();
  for (int place = 0; place < size(); ++place) squares += fusion::SumOfSquares(gradients_->common_result(place));
  summary.norm = std::sqrt(squares);
  bool finite = std::isfinite(squares);
  if (!finite) {  // or their squares were too large for a double
    finite = rows_->AllFinite();
    for (int place = 0; place < size() && finite; ++place) finite = fusion::AllFinite(gradients_->common_result(place));
  }
  summary.skipped = options_.skip_non_finite && !finite;
  if (!options_.max_norm || !std::isfinite(squares) || *summary.norm <= *options_.max_norm) return absl::OkStatus();
  const double scale = *options_.max_norm / *summary.norm;
  rows_->Scale(scale);
  for (int place = 0; place < size(); ++place) {
    const TensorView common = gradients_->common_result(place), result = gradients_->result(place);
    fusion::Scale(common, scale);
    if (result.data != common.data) fusion::Convert(common, result);
  }
  return absl::OkStatus();
}

absl::Status GradientReducer::State::FinishOnGpu(StepSummary& summary) {
  if (options_.max_norm || options_.skip_non_finite) RETURN_IF_ERROR(LookOnGpu(summary));
  if (rows_on_gpu_ != nullptr) RETURN_IF_ERROR(rows_on_gpu_->Bring(*rows_));
  return on_gpu_->Finish();
}

// Sums of rows are still on the host.
absl::Status GradientReducer::State::LookOnGpu(StepSummary& summary) {
  const TimePoint deadline = DeadlineAfter(std::chrono::steady_clock::now(), timeout_);
  ASSIGN_OR_RETURN(const fusion::GradientsOnGpu::Facts facts, on_gpu_->Look(step_->parts(), deadline));
  const double of_rows = rows_->SumOfSquares(), squares = facts.squares + of_rows;
  const bool finite = facts.finite && (std::isfinite(of_rows) || rows_->AllFinite());
  summary.norm = std::sqrt(squares);
  summary.skipped = options_.skip_non_finite && !finite;
  if (!options_.max_norm || !std::isfinite(squares) || *summary.norm <= *options_.max_norm) return absl::OkStatus();
  const double scale = *options_.max_norm / *summary.norm;
  rows_->Scale(scale);
  return on_gpu_->Scale(step_->parts(), scale);
}

// What was queued on a GPU is yet to be done, and who learns of the failure uses the gradients for something else. An
// error there is of less interest.
absl::Status GradientReducer::State::Fail(absl::Status status) {
  if (on_gpu_ != nullptr) {
    DropGraphs();
    (void)on_gpu_->Finish();
  }
  failure_ = status;
  failed_.store(true);
  return status;
}

void GradientReducer::State::Close() {
  graphs_turn_.reset();  // they are not launched any more
  if (step_ == nullptr || failed_.load()) return;
  const bool launched = launched_.load() == attempt_.load();
  if (readiness_->remaining() == size() && !launched) return;  // between steps
  step_->Abandon(absl::StrCat("rank ", communicator_->rank(), " destroyed its reducer amid a step"));
  // With all results here it has ended, but nobody has marked it so where WaitFor carried it out by itself.
  if (launched && !finished_) ranks_->runtime().progress()->Wait(*step_);
}

}  // namespace gyre
