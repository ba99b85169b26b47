#include "collectives/schedule/step_graph.h"

#include <limits>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

absl::Status CheckStep(int rank, const Step& step, int64_t ranks, int blocks) {
  if (step.peer < 0 || step.peer >= ranks || step.peer == rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: rank ", rank, " of ", ranks, " has a step with rank ", step.peer));
  }
  if (step.block >= 0 && step.block < blocks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("schedule: rank ", rank, " has a step on block ", step.block, " of ", blocks));
}

}  // namespace

class StepGraph::Builder {
 public:
  Builder(StepGraph& graph, int64_t ranks, Symmetry symmetry) : graph_(graph), ranks_(ranks), symmetry_(symmetry) {}

  absl::Status AddAll(std::span<const Schedule> programs);

 private:
  // The steps that two ranks do on the stream from one to the other, as lists through next_in_stream.
  struct Stream {
    struct List {
      int first = StepGraph::kNone;
      int last = StepGraph::kNone;
    };
    List sends;
    List receives;
  };

  absl::Status Add(int rank, const Schedule& schedule);
  absl::Status MatchStreams();
  int64_t KeyOf(const Node& node) const;
  Node& At(int number) { return graph_.nodes_[static_cast<size_t>(number)]; }

  StepGraph& graph_;
  const int64_t ranks_;
  const Symmetry symmetry_;
  std::unordered_map<int64_t, Stream> streams_;  // by sender * ranks_ + receiver
};

// By symmetry, what comes from a peer to rank 0 is what goes from rank 0 to the one that rank 0 becomes where that peer
// becomes rank 0.
int64_t StepGraph::Builder::KeyOf(const Node& node) const {
  if (node.kind == Step::Kind::kSend) return node.rank * ranks_ + node.peer;
  if (symmetry_ == Symmetry::kNone) return node.peer * ranks_ + node.rank;
  return Moved(symmetry_, node.rank, node.peer, node.rank, static_cast<int>(ranks_));
}

absl::Status StepGraph::Builder::Add(int rank, const Schedule& schedule) {
  std::vector<int> last_on_block(static_cast<size_t>(schedule.blocks), StepGraph::kNone);
  for (const Step& step : schedule.steps) {
    RETURN_IF_ERROR(CheckStep(rank, step, ranks_, schedule.blocks));
    const int number = static_cast<int>(graph_.nodes_.size());
    Node node{.rank = rank, .peer = step.peer, .block = step.block, .kind = step.kind};

    node.previous_on_block = std::exchange(last_on_block[static_cast<size_t>(step.block)], number);
    if (node.previous_on_block != StepGraph::kNone) At(node.previous_on_block).next_on_block = number;

    Stream& stream = streams_[KeyOf(node)];
    Stream::List& list = step.kind == Step::Kind::kSend ? stream.sends : stream.receives;
    node.previous_in_stream = std::exchange(list.last, number);
    (node.previous_in_stream == StepGraph::kNone ? list.first : At(node.previous_in_stream).next_in_stream) = number;
    graph_.nodes_.push_back(node);
  }
  return absl::OkStatus();
}

absl::Status StepGraph::Builder::MatchStreams() {
  for (const auto& [key, stream] : streams_) {
    int send = stream.sends.first, receive = stream.receives.first;
    for (; send != StepGraph::kNone && receive != StepGraph::kNone; receive = At(receive).next_in_stream) {
      At(send).receive = receive;
      send = At(send).next_in_stream;
    }
    if (send != receive) {
      return absl::InvalidArgumentError(absl::StrCat("schedule: rank ", key / ranks_, " sends ",
                                                     send == StepGraph::kNone ? "fewer" : "more", " messages to rank ",
                                                     key % ranks_, " than that receives"));
    }
  }
  return absl::OkStatus();
}

absl::Status StepGraph::Builder::AddAll(std::span<const Schedule> programs) {
  size_t steps = 0;
  for (const Schedule& schedule : programs) steps += schedule.steps.size();
  if (steps > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return absl::InvalidArgumentError("schedule: too many steps to count");
  }
  graph_.nodes_.reserve(steps);
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    RETURN_IF_ERROR(Add(static_cast<int>(rank), programs[rank]));
  }
  return MatchStreams();
}

absl::StatusOr<StepGraph> StepGraph::Of(std::span<const Schedule> programs) {
  StepGraph graph;
  Builder builder(graph, static_cast<int64_t>(programs.size()), Symmetry::kNone);
  RETURN_IF_ERROR(builder.AddAll(programs));
  return graph;
}

absl::StatusOr<StepGraph> StepGraph::OfRankZero(const Schedule& program, int size, Symmetry symmetry) {
  StepGraph graph;
  Builder builder(graph, size, symmetry);
  RETURN_IF_ERROR(builder.AddAll({&program, 1}));
  return graph;
}

}  // namespace gyre::internal
