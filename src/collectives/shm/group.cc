#include "collectives/shm/group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

std::string RankText(int number, int job_rank) {
  if (job_rank == number) return absl::StrCat("rank ", number);
  return absl::StrCat("rank ", number, " (", job_rank, " in the job)");
}

}  // namespace

Group::Group(std::shared_ptr<shm::Node> node, std::vector<int> ranks, int self, const GroupLayout& layout,
             std::vector<int> numbers)
    : node_(std::move(node)), ranks_(std::move(ranks)), self_(self), layout_(layout), numbers_(std::move(numbers)) {}

absl::StatusOr<std::shared_ptr<Group>> Group::Create(std::shared_ptr<shm::Node> node, std::vector<int> ranks,
                                                     std::span<const int64_t> regions, const GroupLayout& layout,
                                                     std::vector<int> numbers, std::span<const Domain> domains) {
  const auto self = std::ranges::find(ranks, node->rank()) - ranks.begin();
  std::shared_ptr<Group> group(
      new Group(std::move(node), std::move(ranks), static_cast<int>(self), layout, std::move(numbers)));
  for (size_t m = 0; m < group->ranks_.size(); ++m) {
    if (regions[m] < shm::kControlBlockBytes || regions[m] > shm::kControlSegmentBytes - layout.bytes()) {
      return absl::DataLossError(absl::StrCat("rank ", group->ranks_[m], " announced an impossible region"));
    }
    group->regions_.push_back(group->node_->control(group->ranks_[m]) + regions[m]);
    group->heads_.push_back(reinterpret_cast<RegionHead*>(group->regions_.back()));
    group->blocks_.push_back(&group->node_->block(group->ranks_[m]));
  }
  group->grid_ = GridFor(layout, domains, group->self_);
  group->MakeChannels();
  return group;
}

std::optional<Grid> Group::GridFor(const GroupLayout& layout, std::span<const Domain> domains, int self) {
  if (const Rows rows = RowsByDomain(domains); !rows.empty() && layout.size >= layout.placed_grid_size) {
    return MakeGrid(rows, self);
  }
  if (layout.size >= layout.grid_size) return MakeGrid(RowsByNumber(layout.size), self);
  return std::nullopt;
}

std::unique_ptr<Channel> Group::MakeChannel(std::vector<shm::Meeting::Member> places, std::vector<int> members,
                                            int self, int64_t capacity) {
  const size_t size = members.size();
  auto channel = std::make_unique<Channel>(shm::Meeting(std::move(places), self), capacity);
  channel->members = std::move(members);
  channel->sources.resize(size);
  channel->destinations.resize(size);
  return channel;
}

void Group::MakeChannels() {
  std::vector<shm::Meeting::Member> places;
  std::vector<int> members;
  std::vector<std::byte*> results;
  for (int m = 0; m < size(); ++m) {
    shm::Doorbell& bell = node_->block(ranks_[static_cast<size_t>(m)]).doorbell;
    places.push_back({region(m) + layout_.slots(), shm::Meeting::SlotBytes(layout_.capacity), &bell});
    members.push_back(m);
    results.push_back(region(m) + layout_.results());
  }
  collective_ = MakeChannel(std::move(places), std::move(members), self_, layout_.capacity);
  collective_->results = std::move(results);
  outgoing_.resize(static_cast<size_t>(size()));
  incoming_.resize(static_cast<size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != self_) MakeMessageChannels(peer);
  }
}

// A message channel is a meeting of two: the sender's slots carry the data, the receiver's only headers.
void Group::MakeMessageChannels(int peer) {
  const int64_t wide = shm::Meeting::SlotBytes(layout_.message_capacity);
  const int64_t narrow = shm::Meeting::SlotBytes(GroupLayout::kWordsCapacity);
  shm::Doorbell* mine = &node_->block(node_->rank()).doorbell;
  shm::Doorbell* theirs = &node_->block(ranks_[static_cast<size_t>(peer)]).doorbell;
  const auto index = static_cast<size_t>(peer);
  outgoing_[index] = MakeChannel(
      {{region(self_) + layout_.outgoing(peer), wide, mine}, {region(peer) + layout_.incoming(self_), narrow, theirs}},
      {self_, peer}, 0, layout_.message_capacity);
  incoming_[index] = MakeChannel(
      {{region(peer) + layout_.outgoing(self_), wide, theirs}, {region(self_) + layout_.incoming(peer), narrow, mine}},
      {peer, self_}, 1, layout_.message_capacity);
}

std::string Group::RankName(int member) const {
  const int number = numbers_.empty() ? member : numbers_[static_cast<size_t>(member)];
  return RankText(number, ranks_[static_cast<size_t>(member)]);
}

void Group::ShowAwaited(int number, int job_rank) const {
  const auto shown = number < 0 ? 0 : static_cast<uint64_t>(job_rank) << 32 | static_cast<uint64_t>(number + 1);
  head(self_).awaited.store(shown, std::memory_order_relaxed);
}

std::string Group::AwaitedBy(int member) const {
  const uint64_t shown = head(member).awaited.load(std::memory_order_relaxed);
  if (shown == 0) return "";
  return RankText(static_cast<int>(shown & 0xffffffff) - 1, static_cast<int>(shown >> 32));
}

absl::Status Group::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

bool Group::Break(const absl::Status& status, const shm::LastWords::Content& words) {
  {
    std::lock_guard lock(mutex_);
    if (!status_.ok()) return false;
    head(self_).last_words.Write(words);  // first: whoever sees the status finds them
    status_ = status;
    broken_.store(true, std::memory_order_release);
  }
  collective_->meeting.RingAll();
  node_->block(node_->rank()).doorbell.Ring();  // other threads of this rank may wait on the group as well
  return true;
}

std::optional<shm::LastWords::Content> Group::FindLastWords() const {
  for (int m = 0; m < size(); ++m) {
    if (m == self_) continue;
    if (auto words = head(m).last_words.Read()) return words;
  }
  return std::nullopt;
}

}  // namespace gyre::internal
