#include "collectives/hierarchical/team.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/call.h"
#include "collectives/executor.h"

namespace gyre::internal {

std::vector<Place> PlacesOf(std::span<const int> ranks, std::span<const int> hosts) {
  std::map<int, std::pair<int, int>> known;  // by host of the job: its number here, and how many ranks it has
  std::vector<Place> places;
  for (const int rank : ranks) {
    const int next = static_cast<int>(known.size());
    auto& [number, count] = known.try_emplace(hosts[static_cast<size_t>(rank)], next, 0).first->second;
    places.push_back({rank, number, count++});
  }
  return places;
}

Team::Team(std::shared_ptr<Group> local, std::vector<Place> places, int self, uint64_t id, TeamLinks links)
    : local_(std::move(local)),
      places_(std::move(places)),
      self_(self),
      id_(id),
      links_(std::move(links)),
      refiner_(links_.selector) {
  for (int rank = 0; rank < size(); ++rank) {
    const auto host = static_cast<size_t>(place(rank).host);
    if (by_host_.size() <= host) by_host_.resize(host + 1);
    by_host_[host].push_back(rank);
  }
  const auto [fewest, most] = std::ranges::minmax_element(by_host_, {}, &std::vector<int>::size);
  rails_ = static_cast<int>(fewest->size());
  most_local_ = static_cast<int>(most->size());
  by_rail_.resize(fewest->size());
  for (size_t rail = 0; rail < by_rail_.size(); ++rail) {
    for (const auto& one : by_host_) by_rail_[rail].push_back(one[rail]);
  }
  for (int rank = 0; rank < size(); ++rank) {
    const int job_rank = place(rank).rank;
    names_.push_back(job_rank == rank ? absl::StrCat("rank ", rank)
                                      : absl::StrCat("rank ", rank, " (", job_rank, " in the job)"));
  }
  std::vector<int> peers;
  for (const Place& other : places_) {
    if (other.host != host()) peers.push_back(other.rank);
  }
  streams_ = links_.open(id_, std::move(peers));
}

Team::~Team() = default;

std::vector<int> Team::Counterparts() const {
  std::vector<int> ranks;
  if (local_rank() >= rails_) return ranks;
  for (const int rank : Rail(local_rank())) {
    if (rank != self_) ranks.push_back(place(rank).rank);
  }
  return ranks;
}

const Schedule& Team::ScheduleOf(Collective operation, Algorithm algorithm) {
  const auto [entry, is_new] = schedules_.try_emplace({operation, algorithm});
  if (is_new) entry->second = MakeSchedule(operation, algorithm, host(), hosts());
  return entry->second;
}

std::unique_ptr<Executor> Team::TakeExecutor() {
  return std::move(spare_executor_);
}

void Team::GiveExecutor(std::unique_ptr<Executor> executor) {
  spare_executor_ = std::move(executor);
}

Team::MessageLane& Team::LaneOf(int from, int to) {
  std::lock_guard lock(mutex_);
  auto& lane = message_lanes_[{from, to}];
  if (lane == nullptr) {
    const uint64_t what[] = {id_, static_cast<uint64_t>(from), static_cast<uint64_t>(to)};
    lane = std::make_unique<MessageLane>();
    lane->channel = XXH3_64bits(what, sizeof(what));
    lane->streams = links_.open(lane->channel, {place(from == self_ ? to : from).rank});
  }
  return *lane;
}

Team::MessageLane& Team::outgoing(int to) {
  return LaneOf(self_, to);
}

Team::MessageLane& Team::incoming(int from) {
  return LaneOf(from, self_);
}

uint64_t Team::NextCall(const Signature& signature) {
  const uint64_t number = ++calls_;
  std::lock_guard lock(mutex_);
  called_[number % kRememberedCalls] = {number, signature};
  return number;
}

void Team::TellCall(uint64_t number, const Signature& signature) {
  if (links_.tell_call) links_.tell_call(id_, number, signature);
}

void Team::HeardOfCall(int job_rank, uint64_t number, const Signature& signature) {
  Called own;
  {
    std::lock_guard lock(mutex_);
    own = called_[number % kRememberedCalls];
  }
  const auto teller = std::ranges::find(places_, job_rank, &Place::rank);
  if (own.number != number || own.signature == signature || teller == places_.end()) return;
  const std::string self = RankName(self_);
  const std::string text =
      Disagreement(self, own.signature, RankName(static_cast<int>(teller - places_.begin())), signature);
  Break(absl::InvalidArgumentError(text),
        {-1, absl::StrCat(self, " gave the communicator up: ", text), absl::StatusCode::kInvalidArgument});
}

void Team::Break(const absl::Status& status, const shm::LastWords::Content& words) {
  local_->Break(status, words);  // an operation in the host's memory may have done that
  if (!announced_.exchange(true)) links_.announce(id_, words);
}

// It may have told the host's other ranks why.
absl::Status Team::BreakLike(const absl::Status& within_host) {
  auto words = local_->OwnLastWords();
  if (!words) words = local_->FindLastWords();
  if (!words) {  // a wrong call, which the ranks of this host have told each other without any
    words = shm::LastWords::Content{
        -1, absl::StrCat(RankName(self_), " gave the communicator up: ", within_host.message()), within_host.code()};
  }
  // "Aborted with its communicator" is all that a rank of the host may know of a wrong call elsewhere.
  const bool wrong_call = words->code == absl::StatusCode::kInvalidArgument;
  absl::Status status(wrong_call ? words->code : within_host.code(), within_host.message());
  Break(status, *words);
  MarkTold();
  return status;
}

void Team::PassOnBreak() {
  if (announced_.load() || local_->usable()) return;
  auto words = local_->OwnLastWords();
  if (!words) words = local_->FindLastWords();
  if (words) Break(absl::Status(words->code, words->text), *words);
}

}  // namespace gyre::internal
