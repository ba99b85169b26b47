#include "collectives/schedule/prover.h"

#include <algorithm>
#include <deque>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

constexpr int kNone = -1;
constexpr int kNamedAtMost = 8;

struct StepState {
  Step step;
  int rank;
  int stream;
  int previous_on_block = kNone;
  int next_on_block = kNone;
  int next_in_stream = kNone;
  uint8_t done = 0;  // units
  uint8_t units = 1;
  bool queued = false;

  bool sends() const { return step.kind == Step::Kind::kSend; }
  bool ended() const { return done == units; }
};

// One direction of one pair: the first steps of either side that have not ended, the last ones, and the one place.
struct Stream {
  int send = kNone;
  int receive = kNone;
  int last_send = kNone;
  int last_receive = kNone;
  bool full = false;
  Value value = 0;
};

class Prover {
 public:
  Prover(std::span<const Schedule> programs, const Conditions& conditions, Outcome& outcome)
      : programs_(programs), conditions_(conditions), outcome_(outcome), random_(conditions.seed) {}

  absl::Status Load();
  absl::Status Run();

 private:
  absl::Status LoadRank(int rank);
  int NumberOfStream(int rank, const Step& step);
  absl::Status MatchStreams();
  bool MayMeet(const StepState& send, const StepState& receive) const;
  bool CanGoOn(const StepState& step);
  void Advance(int number);
  Value Combined(const StepState& step, Value held, Value arrived);
  void TryQueue(int number);
  int TakeNext();
  absl::Status Stuck();
  std::string Describe(const StepState& step) const;

  StepState& At(int number) { return steps_[static_cast<size_t>(number)]; }
  Stream& StreamOf(const StepState& step) { return streams_[static_cast<size_t>(step.stream)]; }
  static int& HeadOf(Stream& stream, const StepState& step) { return step.sends() ? stream.send : stream.receive; }
  Value& Held(const StepState& step) {
    return outcome_.held[static_cast<size_t>(step.rank) * static_cast<size_t>(outcome_.first_unit.back()) +
                         static_cast<size_t>(outcome_.first_unit[static_cast<size_t>(step.step.block)] + step.done)];
  }

  const std::span<const Schedule> programs_;
  const Conditions& conditions_;
  Outcome& outcome_;
  std::mt19937_64 random_;
  std::vector<StepState> steps_;
  std::vector<Stream> streams_;
  std::vector<int> stream_numbers_;  // by sender and receiver
  std::deque<int> queue_;            // the steps that can go on
  size_t ended_ = 0;
};

std::string Prover::Describe(const StepState& step) const {
  const char* const what = step.step.kind == Step::Kind::kSend      ? "sends"
                           : step.step.kind == Step::Kind::kReceive ? "receives"
                                                                    : "reduces";
  return absl::StrCat("rank ", step.rank, " ", what, " block ", step.step.block, step.sends() ? " to" : " from",
                      " rank ", step.step.peer);
}

int Prover::NumberOfStream(int rank, const Step& step) {
  const bool sends = step.kind == Step::Kind::kSend;
  const int from = sends ? rank : step.peer, to = sends ? step.peer : rank;
  int& number = stream_numbers_[static_cast<size_t>(from) * programs_.size() + static_cast<size_t>(to)];
  if (number == kNone) {
    number = static_cast<int>(streams_.size());
    streams_.emplace_back();
  }
  return number;
}

absl::Status Prover::LoadRank(int rank) {
  const Schedule& schedule = programs_[static_cast<size_t>(rank)];
  if (schedule.blocks != outcome_.blocks) return absl::InternalError(absl::StrCat("rank ", rank, " has other blocks"));
  std::vector<int> last_on_block(static_cast<size_t>(schedule.blocks), kNone);
  for (const Step& step : schedule.steps) {
    const int number = static_cast<int>(steps_.size());
    StepState state{.step = step, .rank = rank, .stream = kNone};
    if (step.peer < 0 || step.peer >= outcome_.ranks || step.peer == rank || step.block < 0 ||
        step.block >= outcome_.blocks) {
      return absl::InternalError(absl::StrCat("out of range: ", Describe(state)));
    }
    state.units = static_cast<uint8_t>(outcome_.UnitsOf(step.block));
    state.previous_on_block = std::exchange(last_on_block[static_cast<size_t>(step.block)], number);
    if (state.previous_on_block != kNone) At(state.previous_on_block).next_on_block = number;
    state.stream = NumberOfStream(rank, step);
    Stream& stream = StreamOf(state);
    const int before = std::exchange(state.sends() ? stream.last_send : stream.last_receive, number);
    (before == kNone ? HeadOf(stream, state) : At(before).next_in_stream) = number;
    steps_.push_back(state);
  }
  return absl::OkStatus();
}

bool Prover::MayMeet(const StepState& send, const StepState& receive) const {
  if (send.units != receive.units) return false;
  switch (conditions_.meeting) {
    case Meeting::kSameBlock: return send.step.block == receive.step.block;
    case Meeting::kPiece: return send.step.block == receive.rank && receive.step.block == outcome_.ranks + send.rank;
    case Meeting::kAny: return true;
  }
  return false;
}

absl::Status Prover::MatchStreams() {
  for (const Stream& stream : streams_) {
    int send = stream.send, receive = stream.receive;
    for (; send != kNone && receive != kNone; receive = At(receive).next_in_stream) {
      if (!MayMeet(At(send), At(receive))) {
        return absl::InternalError(absl::StrCat("wrong block: ", Describe(At(send)), ", but ", Describe(At(receive))));
      }
      send = At(send).next_in_stream;
    }
    if (send != receive) {
      return absl::InternalError(absl::StrCat("unmatched: ", Describe(At(send != kNone ? send : receive))));
    }
  }
  return absl::OkStatus();
}

absl::Status Prover::Load() {
  size_t steps = 0;
  for (const Schedule& schedule : programs_) steps += schedule.steps.size();
  steps_.reserve(steps);
  stream_numbers_.assign(programs_.size() * programs_.size(), kNone);
  for (int rank = 0; rank < outcome_.ranks; ++rank) RETURN_IF_ERROR(LoadRank(rank));
  return MatchStreams();
}

bool Prover::CanGoOn(const StepState& step) {
  if (step.ended()) return false;
  Stream& stream = StreamOf(step);
  if (&At(HeadOf(stream, step)) != &step || stream.full == step.sends()) return false;
  if (step.previous_on_block == kNone) return true;
  const int ahead = step.sends() ? conditions_.grain : 1;
  return At(step.previous_on_block).done >= std::min<int>(step.done + ahead, step.units);
}

void Prover::TryQueue(int number) {
  if (number == kNone || At(number).queued || !CanGoOn(At(number))) return;
  At(number).queued = true;
  queue_.push_back(number);
}

Value Prover::Combined(const StepState& step, Value held, Value arrived) {
  if (!conditions_.lower_rank_first) return outcome_.values.Combine(held, arrived);
  return step.rank < step.step.peer ? outcome_.values.CombineInOrder(held, arrived)
                                    : outcome_.values.CombineInOrder(arrived, held);
}

// Moves one unit of a step that can go on.
void Prover::Advance(int number) {
  StepState& step = At(number);
  Stream& stream = StreamOf(step);
  Value& held = Held(step);
  if (step.sends()) stream.value = held;
  if (step.step.kind == Step::Kind::kReceive) held = stream.value;
  if (step.step.kind == Step::Kind::kReceiveReduce) held = Combined(step, held, stream.value);
  stream.full = step.sends();
  ++step.done;
  if (step.ended()) {
    ++ended_;
    HeadOf(stream, step) = step.next_in_stream;
  }
  TryQueue(step.next_on_block);
  TryQueue(stream.send);
  TryQueue(stream.receive);
}

int Prover::TakeNext() {
  const bool oldest = conditions_.seed % 3 == 1, any = conditions_.seed % 3 == 2;
  if (any) std::swap(queue_.back(), queue_[random_() % queue_.size()]);
  const int number = oldest ? queue_.front() : queue_.back();
  oldest ? queue_.pop_front() : queue_.pop_back();
  return number;
}

absl::Status Prover::Stuck() {
  std::string text = absl::StrCat("deadlock: ", steps_.size() - ended_, " steps are stuck");
  int named = 0;
  for (const StepState& step : steps_) {
    if (step.ended() || named++ >= kNamedAtMost) continue;
    absl::StrAppend(&text, "; ", Describe(step));
  }
  return absl::InternalError(text);
}

absl::Status Prover::Run() {
  for (size_t number = 0; number < steps_.size(); ++number) TryQueue(static_cast<int>(number));
  while (!queue_.empty()) {
    const int number = TakeNext();
    At(number).queued = false;
    if (!CanGoOn(At(number))) return absl::InternalError("prover: a step that could go on no longer can");
    Advance(number);
  }
  return ended_ == steps_.size() ? absl::OkStatus() : Stuck();
}

}  // namespace

absl::StatusOr<Outcome> RunSymbolically(std::span<const Schedule> programs, const Conditions& conditions) {
  const int ranks = static_cast<int>(programs.size()), blocks = programs.empty() ? 0 : programs[0].blocks;
  Outcome outcome{ranks, blocks, {0}, {}, Values(ranks, blocks)};
  for (int block = 0; block < blocks; ++block) {
    const int units = conditions.units.empty() ? 1 : conditions.units[static_cast<size_t>(block)];
    outcome.first_unit.push_back(outcome.first_unit.back() + units);
  }
  outcome.held.reserve(static_cast<size_t>(ranks) * static_cast<size_t>(outcome.first_unit.back()));
  for (int rank = 0; rank < ranks; ++rank) {
    for (int block = 0; block < blocks; ++block) {
      outcome.held.insert(outcome.held.end(), static_cast<size_t>(outcome.UnitsOf(block)),
                          outcome.values.Leaf(rank, block));
    }
  }
  Prover prover(programs, conditions, outcome);
  RETURN_IF_ERROR(prover.Load());
  RETURN_IF_ERROR(prover.Run());
  return outcome;
}

}  // namespace gyre::internal
