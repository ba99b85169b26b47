#include "runtime/clock_offset.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace gyre::internal {

namespace {

constexpr int kRounds = 16;

int64_t Now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Rank 0's part, for one other rank.
absl::Status Answer(Communicator& world, int rank) {
  for (int round = 0; round < kRounds; ++round) {
    int64_t time = 0;
    RETURN_IF_ERROR(world.Receive(std::span(&time, 1), rank));
    time = Now();
    RETURN_IF_ERROR(world.Send(std::span(&time, 1), rank));
  }
  return absl::OkStatus();
}

absl::StatusOr<ClockOffset> Ask(Communicator& world) {
  ClockOffset best{.uncertainty = std::chrono::nanoseconds::max()};
  for (int round = 0; round < kRounds; ++round) {
    int64_t time = 0;
    const int64_t asked = Now();
    RETURN_IF_ERROR(world.Send(std::span(&time, 1), 0));
    RETURN_IF_ERROR(world.Receive(std::span(&time, 1), 0));
    const int64_t answered = Now();
    const std::chrono::nanoseconds uncertainty((answered - asked) / 2);
    if (uncertainty >= best.uncertainty) continue;
    best = {.offset = std::chrono::nanoseconds(time - asked) - uncertainty, .uncertainty = uncertainty};
  }
  return best;
}

}  // namespace

absl::StatusOr<ClockOffset> MeasureClockOffset(Communicator& world) {
  const int64_t own_host = world.node_rank();
  std::vector<int64_t> hosts(static_cast<size_t>(world.size()));
  RETURN_IF_ERROR(world.AllGather(std::span(&own_host, 1), hosts));
  const auto first_of = [&](int64_t host) { return static_cast<int>(std::ranges::find(hosts, host) - hosts.begin()); };
  std::array<int64_t, 2> own = {0, 0};
  for (int rank = 1; rank < world.size(); ++rank) {
    const int64_t host = hosts[static_cast<size_t>(rank)];
    if (host == hosts[0] || first_of(host) != rank) continue;
    if (world.rank() == 0) RETURN_IF_ERROR(Answer(world, rank));
    if (world.rank() != rank) continue;
    ASSIGN_OR_RETURN(const ClockOffset asked, Ask(world));
    own = {asked.offset.count(), asked.uncertainty.count()};
  }
  std::vector<int64_t> all(2 * hosts.size());
  RETURN_IF_ERROR(world.AllGather(own, all));
  const auto at = 2 * static_cast<size_t>(first_of(own_host));
  return ClockOffset{.offset = std::chrono::nanoseconds(all[at]), .uncertainty = std::chrono::nanoseconds(all[at + 1])};
}

}  // namespace gyre::internal
