#include "collectives/hierarchical/operation.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace gyre::internal {

namespace {

// A stream that ended tells less than what comes on other ways: who died, or why the peer gave up. So long it is waited
// for.
constexpr std::chrono::milliseconds kWaitForTheReason{300};

// Who has waited for other hosts so long says in which call, and again after as long: with calls that differ, nobody
// may send to whom is waited for.
constexpr std::chrono::milliseconds kQuiet{500};

Call WithOwnCounts(Call call, std::span<const int64_t> counts, std::span<const int64_t> receive_counts) {
  call.counts = counts;
  call.receive_counts = receive_counts;
  return call;
}

}  // namespace

HierarchicalOperation::HierarchicalOperation(std::shared_ptr<Team> team, const Call& call, int stages)
    : team_(std::move(team)),
      counts_(call.counts.begin(), call.counts.end()),
      receive_counts_(call.receive_counts.begin(), call.receive_counts.end()),
      call_(WithOwnCounts(call, counts_, receive_counts_)),
      signature_(SignatureOf(call)),
      stages_(stages) {}

void HierarchicalOperation::StartClock(TimePoint now) {
  start_ = now;
  deadline_ = DeadlineAfter(now, *call_.timeout);
}

// --- Going on ---

shm::Progress HierarchicalOperation::Poll() {
  if (state_ == State::kBefore && !Begin()) return shm::Progress::kDone;
  if (state_ == State::kEnded) return shm::Progress::kDone;
  for (bool moved = false;;) {
    moved = PollNetwork() || moved;
    if (state_ == State::kEnded) return shm::Progress::kDone;
    moved = PollLocal() || moved;
    if (state_ == State::kEnded) return shm::Progress::kDone;
    // One turn and back, so that deadlines and losses are seen amid progress too.
    if (!StageEnded()) return moved ? shm::Progress::kSome : shm::Progress::kNone;
    if (!NextStage()) return shm::Progress::kDone;
    moved = true;
  }
}

bool HierarchicalOperation::Begin() {
  Group& group = team_->local();
  if (group.node().closed()) return !End(absl::FailedPreconditionError("the runtime was shut down"));
  if (absl::Status broken = group.status(); !broken.ok() && team_->told()) {
    return !End(absl::FailedPreconditionError(absl::StrCat("the communicator is unusable: ", broken.message())));
  }
  if (FindBroken()) return false;
  state_ = State::kUnderWay;
  if (call_.kind != CallKind::kMessage) {
    number_ = team_->NextCall(signature_);
    if (learns_) learning_ = team_->NextToLearn();
  }
  BeginStage(MakeStage(0));
  return true;
}

void HierarchicalOperation::BeginStage(Stage stage) {
  local_next_ = 0;
  stage_ = std::move(stage);
  // What goes on in the host's memory meanwhile would count as the network's. (A message must not look at the refiner.)
  if (stage_.transfer && (!stage_.local.empty() || !team_->refiner().wants_more())) stage_.transfer.reset();
  if (stage_.transfer) stage_began_ = team_->Now();
}

Operation* HierarchicalOperation::current_local() const {
  return local_next_ < stage_.local.size() ? stage_.local[local_next_].get() : nullptr;
}

bool HierarchicalOperation::StageEnded() const {
  return current_local() == nullptr && stage_.network == nullptr;
}

bool HierarchicalOperation::NextStage() {
  // Where a call is due for it, two stages more agree on what calls have taught.
  const bool learns = learning_ > 0 && team_->refiner().Due(learning_);
  if (++index_ == stages_ + (learns ? 2 : 0)) {
    if (learns) team_->refiner().Adopt(lessons_);
    const absl::Status finished = Finish();
    return !(finished.ok() ? End(finished) : FailAlone(finished));
  }
  if (index_ < stages_) {
    BeginStage(MakeStage(index_));
  } else {
    BeginStage(index_ == stages_ ? AgreeBetweenHosts() : AgreeWithinHost());
  }
  return true;
}

// The first rail for all: what its ranks have timed stands for their hosts.
HierarchicalOperation::Stage HierarchicalOperation::AgreeBetweenHosts() {
  Stage stage;
  if (team_->local_rank() != 0) return stage;
  lessons_ = team_->refiner().Offer();
  const MutableBytes block = std::as_writable_bytes(std::span(lessons_));
  stage.network =
      Network(team_->ScheduleOf(Collective::kAllReduce, Algorithm::kRecursiveDoubling), team_->Rail(0), {&block, 1}, {},
              team_->streams(), team_->id(), number_, {.dtype = DType::kF64, .op = ReduceOp::kMin});
  return stage;
}

HierarchicalOperation::Stage HierarchicalOperation::AgreeWithinHost() {
  Stage stage;
  if (team_->local_size() == 1) return stage;
  const TensorView view(lessons_.data(), static_cast<int64_t>(sizeof(lessons_)), DType::kU8);
  Broadcast& pass = passes_lessons_on_.emplace(team_->local(), team_->local().collective(), signature_, *call_.timeout,
                                               0, view, view);
  stage.local.emplace_back(std::shared_ptr<void>(), &pass);
  return stage;
}

// Both: whether anything moved. They may end the operation.

bool HierarchicalOperation::PollLocal() {
  Operation* const operation = current_local();
  if (operation == nullptr) return false;
  const shm::Progress progress = operation->Poll();
  if (progress != shm::Progress::kDone) return progress == shm::Progress::kSome;
  if (!operation->status().ok()) return FailLike(operation->status());
  ++local_next_;
  return true;
}

bool HierarchicalOperation::PollNetwork() {
  if (stage_.network == nullptr || absl::IsUnavailable(stage_.network->status())) return false;
  const shm::Progress progress = stage_.network->Poll();
  if (progress != shm::Progress::kNone) moved_ = true;
  if (progress != shm::Progress::kDone) return progress == shm::Progress::kSome;
  const absl::Status& status = stage_.network->status();
  if (status.ok()) {
    Learn();
    EndNetwork();
    return true;
  }
  if (absl::IsUnavailable(status)) return false;  // Check finds out why
  if (team_->local().node().closed()) return End(absl::FailedPreconditionError("the runtime was shut down"));
  return FailAlone(status);
}

void HierarchicalOperation::Learn() {
  if (!stage_.transfer) return;
  team_->refiner().Record(*stage_.transfer, std::chrono::duration<double>(team_->Now() - stage_began_).count());
}

// Another stage will have use for it; messages have lanes of their own.
void HierarchicalOperation::EndNetwork() {
  ShowAwaited(-1);
  if (call_.kind != CallKind::kMessage) team_->GiveExecutor(std::move(stage_.network));
  stage_.network.reset();
}

// --- Looking for cause to end ---

bool HierarchicalOperation::Check(TimePoint now) {
  if (state_ == State::kEnded) return true;
  if (deadline_ == TimePoint{}) StartClock(now);
  if (CheckLocal(now)) return true;
  if (team_->local().node().closed()) return End(absl::FailedPreconditionError("the runtime was shut down"));
  if (FindBroken()) return true;
  if (state_ == State::kUnderWay && (FindLost() || FindEndedStream(now))) return true;
  ShowAwaited(stage_.network != nullptr ? stage_.network->FirstAwaited() : -1);
  TellIfQuiet(now);
  return now >= deadline_ && FailLate();
}

// To this host's ranks, for those that wait for this one. Messages would show it beside the collective in course.
void HierarchicalOperation::ShowAwaited(int job_rank) {
  if (job_rank == shown_ || call_.kind == CallKind::kMessage) return;
  shown_ = job_rank;
  team_->local().ShowAwaited(job_rank < 0 ? -1 : NumberOf(job_rank), job_rank);
}

void HierarchicalOperation::TellIfQuiet(TimePoint now) {
  if (stage_.network == nullptr || call_.kind == CallKind::kMessage) return;
  if (std::exchange(moved_, false) || quiet_since_ == TimePoint{}) quiet_since_ = now;
  if (now - quiet_since_ < kQuiet) return;
  quiet_since_ = now;
  team_->TellCall(number_, signature_);
}

bool HierarchicalOperation::CheckLocal(TimePoint now) {
  Operation* const operation = current_local();
  if (operation == nullptr) return false;
  // Where other hosts are awaited as well, FailLate says for whom.
  operation->StartClock(stage_.network == nullptr ? start_ : now);
  return operation->Check(now) && !operation->status().ok() && FailLike(operation->status());
}

bool HierarchicalOperation::FindBroken() {
  Group& group = team_->local();
  auto words = group.OwnLastWords();
  if (!words) words = group.FindLastWords();
  if (!words) return false;
  if (words->rank >= 0) group.node().LearnLoss(words->rank, words->text);
  return Fail(absl::Status(words->code, absl::StrCat(Context(), " was aborted: ", words->text)), *words);
}

// A collective cannot end well without one of its ranks; who left in order may have done its part.
bool HierarchicalOperation::FindLost() {
  shm::Node& node = team_->local().node();
  if (node.losses() == 0) return false;
  for (int rank = 0; rank < team_->size(); ++rank) {
    if (call_.kind == CallKind::kMessage && rank != call_.peer) continue;
    const auto loss = node.LossOf(team_->place(rank).rank);
    if (loss && !loss->left()) return FailFor(*loss);
  }
  return false;
}

bool HierarchicalOperation::FindEndedStream(TimePoint now) {
  if (stage_.network == nullptr || !absl::IsUnavailable(stage_.network->status())) return false;
  const int peer = stage_.network->failed_peer();
  if (const auto loss = team_->local().node().LossOf(peer)) return FailFor(*loss);
  if (!stream_ended_) stream_ended_ = now;
  if (now - *stream_ended_ < kWaitForTheReason) return false;
  // The peer lives: it only gave this communicator up.
  return FailFor({-1, shm::Node::Loss::End::kLeft, std::string(stage_.network->status().message())});
}

std::string HierarchicalOperation::Awaited() const {
  if (state_ != State::kUnderWay) return "";
  std::vector<std::string> names;
  if (stage_.network != nullptr) {
    for (const int rank : stage_.network->Awaited()) names.push_back(NameOf(rank));
  }
  if (!names.empty()) return absl::StrJoin(names, ", ");
  const std::string local = current_local() != nullptr ? current_local()->Awaited() : "";
  return local.empty() ? "the host's other ranks" : local;
}

// Within the host, who has not come to the first stage; then, who has not sent anything to the first schedule.
int HierarchicalOperation::MissingRank() const {
  if (state_ != State::kUnderWay || index_ > 1) return -1;
  if (index_ == 0 && current_local() != nullptr) {
    const int local = current_local()->MissingRank();
    return local < 0 ? -1 : team_->on_host(team_->host())[static_cast<size_t>(local)];
  }
  const int job_rank = stage_.network != nullptr ? stage_.network->SilentPeer() : -1;
  return job_rank < 0 ? -1 : NumberOf(job_rank);
}

bool HierarchicalOperation::FailLate() {
  const std::string awaited = Awaited();
  const std::string reason =
      awaited.empty() ? "it waited for earlier calls" : absl::StrCat(awaited, " did not come, or not far enough");
  const std::string text = absl::StrFormat("%s timed out after %.3g s: %s", Context(),
                                           std::chrono::duration<double>(*call_.timeout).count(), reason);
  return Fail(absl::DeadlineExceededError(text), {-1, GaveUp(text)});
}

// --- Ending; all return true ---

// As the operation in the host's memory has ended.
bool HierarchicalOperation::FailLike(const absl::Status& local) {
  if (team_->local().node().closed()) return End(local);
  // It may have begun when another thread had just learned of a loss: this call is the first to say so.
  if (absl::IsFailedPrecondition(local) && FindBroken()) return true;
  return End(team_->BreakLike(local));
}

// Names what came first, and the loss that is in the way.
bool HierarchicalOperation::FailFor(const shm::Node::Loss& loss) {
  const shm::Node::Loss cause = team_->local().node().FirstLoss().value_or(loss);
  const std::string then = cause.rank == loss.rank ? "" : absl::StrCat("; then ", loss.text);
  absl::Status status = absl::AbortedError(absl::StrCat(Context(), " was aborted: ", cause.text, then));
  if (call_.peer_may_leave && cause.left() && cause.rank >= 0) return End(std::move(status));
  return Fail(std::move(status), {cause.end == shm::Node::Loss::End::kLost ? cause.rank : -1, cause.text});
}

// For what only this rank has found; the others' calls end with the same code.
bool HierarchicalOperation::FailAlone(const absl::Status& why) {
  return Fail(why, {-1, GaveUp(why.message()), why.code()});
}

std::string HierarchicalOperation::GaveUp(absl::string_view why) const {
  return absl::StrCat(team_->RankName(team_->rank()), " gave the communicator up: ", why);
}

bool HierarchicalOperation::Fail(absl::Status status, const shm::LastWords::Content& words) {
  team_->Break(status, words);
  team_->MarkTold();
  return End(std::move(status));
}

bool HierarchicalOperation::End(absl::Status status) {
  status_ = std::move(status);
  if (std::exchange(state_, State::kEnded) == State::kUnderWay) OnEnd();
  ShowAwaited(-1);
  if (Operation* const local = current_local(); local != nullptr) local->Abandon();
  stage_ = {};
  local_next_ = 0;
  return true;
}

std::string HierarchicalOperation::Context() const {
  return call_.kind == CallKind::kMessage ? Describe(signature_)
                                          : absl::StrCat(Describe(signature_), ", call ", number_);
}

// Of one of the communicator's ranks; -1: it is none of them.
int HierarchicalOperation::NumberOf(int job_rank) const {
  for (int rank = 0; rank < team_->size(); ++rank) {
    if (team_->place(rank).rank == job_rank) return rank;
  }
  return -1;
}

std::string HierarchicalOperation::NameOf(int job_rank) const {
  const int rank = NumberOf(job_rank);
  return rank < 0 ? absl::StrCat("rank ", job_rank, " of the job") : team_->RankName(rank);
}

bool HierarchicalOperation::AddWaits(std::vector<pollfd>& waits) const {
  if (stage_.network != nullptr) stage_.network->AddWaits(waits);
  return current_local() == nullptr;
}

}  // namespace gyre::internal
