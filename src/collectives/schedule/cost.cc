#include "collectives/schedule/cost.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/schedule/step_graph.h"

namespace gyre::internal {

namespace {

// Walks the steps in an order in which none comes before what it waits for.
class RoundCounter {
 public:
  explicit RoundCounter(std::span<const StepGraph::Node> nodes) : nodes_(nodes), states_(nodes.size()) {}

  // Works out all rounds and returns the last.
  absl::StatusOr<int> Last();

 private:
  struct State {
    int round = 0;  // the messages on the longest chain up to here
    int8_t waits_for = 0;
  };

  void CountWaits();
  void Follow(int after, int before_round);

  const std::span<const StepGraph::Node> nodes_;
  std::vector<State> states_;
  std::vector<int> ready_;  // nodes that wait for nothing and were not looked at
};

void RoundCounter::CountWaits() {
  for (const StepGraph::Node& node : nodes_) {
    for (const int after : {node.next_on_block, node.next_in_stream, node.receive}) {
      if (after != StepGraph::kNone) ++states_[static_cast<size_t>(after)].waits_for;
    }
  }
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (states_[node].waits_for == 0) ready_.push_back(static_cast<int>(node));
  }
}

// One of the steps that `after` waits for is done, in that round.
void RoundCounter::Follow(int after, int before_round) {
  if (after == StepGraph::kNone) return;
  State& state = states_[static_cast<size_t>(after)];
  state.round = std::max(state.round, before_round);
  if (--state.waits_for == 0) ready_.push_back(after);
}

absl::StatusOr<int> RoundCounter::Last() {
  CountWaits();
  int last = 0;
  size_t done = 0;
  for (; !ready_.empty(); ++done) {
    const StepGraph::Node& node = nodes_[static_cast<size_t>(ready_.back())];
    const int round = states_[static_cast<size_t>(ready_.back())].round;
    ready_.pop_back();
    last = std::max(last, round);
    Follow(node.next_on_block, round);
    Follow(node.next_in_stream, round);
    Follow(node.receive, round + 1);
  }
  if (done == nodes_.size()) return last;
  return absl::InvalidArgumentError(
      absl::StrCat("schedule: ", nodes_.size() - done, " of ", nodes_.size(), " steps wait for each other"));
}

}  // namespace

absl::StatusOr<Cost> CountCost(std::span<const Schedule> programs, std::span<const int64_t> block_bytes) {
  for (const Schedule& schedule : programs) {
    if (schedule.blocks == static_cast<int>(block_bytes.size())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: ", schedule.blocks, " blocks, but sizes of ", block_bytes.size()));
  }
  ASSIGN_OR_RETURN(const StepGraph graph, StepGraph::Of(programs));
  Cost cost{.rounds = 0,
            .messages = 0,
            .sent = std::vector<int64_t>(programs.size()),
            .received = std::vector<int64_t>(programs.size())};
  ASSIGN_OR_RETURN(cost.rounds, RoundCounter(graph.nodes()).Last());
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    for (const Step& step : programs[rank].steps) {
      if (step.kind != Step::Kind::kSend) continue;
      const int64_t bytes = block_bytes[static_cast<size_t>(step.block)];
      cost.sent[rank] += bytes;
      cost.received[static_cast<size_t>(step.peer)] += bytes;
      ++cost.messages;
    }
  }
  return cost;
}

}  // namespace gyre::internal
