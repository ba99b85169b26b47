#include "collectives/hierarchical/sim_world.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "transport/shm/node.h"

namespace gyre {

using internal::Call;
using internal::Group;
using internal::GroupLayout;
using internal::HierarchicalOperation;
using internal::Team;

namespace {

// Deadlines stand still between looks no longer than this.
constexpr std::chrono::milliseconds kLook{20};

// A host of its own, as far as its rank can tell.
std::shared_ptr<Group> HostOfOne(int rank) {
  auto node =
      shm::Node::Create({.rank = rank}, *shm::OwnMemory::Create(rank, 1 << 20), {}, MakeLogger(LogLevel::kOff, "test"));
  const GroupLayout layout{.size = 1};
  const int64_t region = *(*node)->ReserveRegion(layout.bytes());
  return *Group::Create(*node, {rank}, std::vector{region}, layout, {rank});
}

}  // namespace

SimWorld::SimWorld(const sim::NetworkOptions& options, bool checksum, internal::ForcedAlgorithms forced,
                   std::optional<internal::PathModel> believed)
    : network_(std::make_unique<sim::SimNetwork>(options)),
      selector_(std::make_shared<internal::Selector>(
          believed.value_or(internal::PathModel{.latency = std::chrono::duration<double>(options.link.latency).count(),
                                                .bytes_per_second = options.link.bytes_per_second}),
          forced)) {
  std::vector<int> ranks(static_cast<size_t>(options.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (int rank = 0; rank < options.ranks; ++rank) {
    const internal::TeamLinks links{
        .open = [this, rank](uint64_t channel, const std::vector<int>&) { return network_->Open(rank, channel); },
        .checksum = checksum,
        .announce =
            [this, rank](uint64_t, const shm::LastWords::Content& words) {
              // At once and to all; how announcements travel is the transport's own test.
              for (int other = 0; other < size(); ++other) {
                if (other != rank && teams_[static_cast<size_t>(other)] != nullptr) {
                  team(other)->Break(absl::Status(words.code, words.text), words);
                }
              }
            },
        .selector = selector_,
        .now = [this] { return network_->now(); }};
    teams_.push_back(std::make_shared<Team>(HostOfOne(rank), internal::PlacesOf(ranks, ranks), rank, 77, links));
  }
}

std::shared_ptr<HierarchicalOperation> SimWorld::Make(int rank, Call call) const {
  if (!call.timeout) call.timeout = std::chrono::seconds(10);
  if (absl::Status wrong = internal::Validate(call, rank, size()); !wrong.ok()) {
    return internal::MakeHierarchicalRefusal(team(rank), call, wrong);
  }
  return internal::MakeHierarchical(team(rank), call);
}

bool SimWorld::Run(const std::vector<std::shared_ptr<HierarchicalOperation>>& operations, Duration limit) {
  const TimePoint end = network_->now() + limit;
  std::vector<bool> done(operations.size());
  for (size_t i = 0; i < operations.size(); ++i) {
    done[i] = operations[i] == nullptr;
    if (!done[i]) operations[i]->StartClock(network_->now());
  }
  TimePoint checked = network_->now();
  while (std::ranges::count(done, false) > 0) {
    bool moved = false;
    const bool check = network_->now() - checked >= kLook;
    if (check) checked = network_->now();
    for (size_t i = 0; i < operations.size(); ++i) {
      if (done[i]) continue;
      const shm::Progress progress = operations[i]->Poll();
      done[i] = progress == shm::Progress::kDone || (check && operations[i]->Check(network_->now()));
      moved = moved || done[i] || progress != shm::Progress::kNone;
    }
    if (moved) continue;
    if (network_->now() >= end) return false;
    network_->Advance(network_->now() + kLook);
  }
  return true;
}

}  // namespace gyre
