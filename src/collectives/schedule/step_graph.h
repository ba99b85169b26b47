// StepGraph: the steps of all ranks' schedules, and which of them wait for each other, in the order that schedule.h
// gives them. What is counted and priced of schedules stands on it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/schedule/schedule.h"
#include "collectives/schedule/symmetry.h"

namespace gyre::internal {

class StepGraph {
 public:
  static constexpr int kNone = -1;

  // Steps are numbered rank by rank, in the order of their programs.
  struct Node {
    int rank;
    int peer;
    int block;
    Step::Kind kind;
    int previous_on_block = kNone;
    int next_on_block = kNone;
    int previous_in_stream = kNone;
    int next_in_stream = kNone;
    int receive = kNone;  // of a send
  };

  // `programs`: every rank's schedule. kInvalidArgument: they do not fit each other, or have more steps than an int
  // counts.
  static absl::StatusOr<StepGraph> Of(std::span<const Schedule> programs);

  // Of `size` ranks that all do what rank 0 does: its own steps alone. What it sends to a peer it receives itself, as
  // what comes from the peer to whom it stands as that first one stands to it.
  // REQUIRES: symmetry is not kNone.
  static absl::StatusOr<StepGraph> OfRankZero(const Schedule& program, int size, Symmetry symmetry);

  std::span<const Node> nodes() const { return nodes_; }

 private:
  class Builder;

  std::vector<Node> nodes_;
};

}  // namespace gyre::internal
