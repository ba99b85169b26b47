#include "collectives/schedule/cost.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

constexpr int kNone = -1;

// A step among the steps of all ranks, with the steps that wait for it.
struct Node {
  int next_on_block = kNone;
  int next_in_stream = kNone;
  int receive = kNone;  // of a send
  int round = 0;        // the messages on the longest chain up to here
  int8_t waits_for = 0;
};

// The steps that two ranks do on the stream from one to the other, as lists through next_in_stream.
struct Stream {
  struct List {
    int first = kNone;
    int last = kNone;
  };
  List sends;
  List receives;
};

// Steps and the order in which schedule.h has them happen, as a graph.
class Graph {
 public:
  static absl::StatusOr<Graph> Make(std::span<const Schedule> programs, std::span<const int64_t> block_bytes);

  // Works out all rounds and returns the last.
  absl::StatusOr<int> LastRound();

 private:
  absl::Status Add(int rank, const Schedule& schedule);
  absl::Status MatchStreams();
  void Follow(int after, int before_round);

  int64_t ranks_ = 0;
  std::vector<Node> nodes_;
  std::unordered_map<int64_t, Stream> streams_;  // by sender * ranks_ + receiver
  std::vector<int> ready_;                       // nodes that wait for nothing and were not looked at
};

absl::Status CheckStep(int rank, const Step& step, int64_t ranks, int blocks) {
  if (step.peer < 0 || step.peer >= ranks || step.peer == rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: rank ", rank, " of ", ranks, " has a step with rank ", step.peer));
  }
  if (step.block >= 0 && step.block < blocks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("schedule: rank ", rank, " has a step on block ", step.block, " of ", blocks));
}

absl::Status Graph::Add(int rank, const Schedule& schedule) {
  std::vector<int> last_on_block(static_cast<size_t>(schedule.blocks), kNone);
  for (const Step& step : schedule.steps) {
    RETURN_IF_ERROR(CheckStep(rank, step, ranks_, schedule.blocks));
    const int node = static_cast<int>(nodes_.size());
    nodes_.emplace_back();

    int& on_block = last_on_block[static_cast<size_t>(step.block)];
    if (on_block != kNone) {
      nodes_[static_cast<size_t>(on_block)].next_on_block = node;
      ++nodes_.back().waits_for;
    }
    on_block = node;

    const bool sends = step.kind == Step::Kind::kSend;
    Stream& stream = streams_[sends ? rank * ranks_ + step.peer : step.peer * ranks_ + rank];
    Stream::List& list = sends ? stream.sends : stream.receives;
    if (list.first == kNone) {
      list.first = node;
    } else {
      nodes_[static_cast<size_t>(list.last)].next_in_stream = node;
      ++nodes_.back().waits_for;
    }
    list.last = node;
  }
  return absl::OkStatus();
}

absl::Status Graph::MatchStreams() {
  for (const auto& [key, stream] : streams_) {
    int send = stream.sends.first, receive = stream.receives.first;
    for (; send != kNone && receive != kNone; receive = nodes_[static_cast<size_t>(receive)].next_in_stream) {
      nodes_[static_cast<size_t>(send)].receive = receive;
      ++nodes_[static_cast<size_t>(receive)].waits_for;
      send = nodes_[static_cast<size_t>(send)].next_in_stream;
    }
    if (send != receive) {
      return absl::InvalidArgumentError(absl::StrCat("schedule: rank ", key / ranks_, " sends ",
                                                     send == kNone ? "fewer" : "more", " messages to rank ",
                                                     key % ranks_, " than that receives"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Graph> Graph::Make(std::span<const Schedule> programs, std::span<const int64_t> block_bytes) {
  Graph graph;
  graph.ranks_ = static_cast<int64_t>(programs.size());
  size_t steps = 0;
  for (const Schedule& schedule : programs) {
    steps += schedule.steps.size();
    if (schedule.blocks == static_cast<int>(block_bytes.size())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: ", schedule.blocks, " blocks, but sizes of ", block_bytes.size()));
  }
  if (steps > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return absl::InvalidArgumentError("schedule: too many steps to count");
  }
  graph.nodes_.reserve(steps);
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    RETURN_IF_ERROR(graph.Add(static_cast<int>(rank), programs[rank]));
  }
  RETURN_IF_ERROR(graph.MatchStreams());
  return graph;
}

// One of the steps that `after` waits for is done, in that round.
void Graph::Follow(int after, int before_round) {
  if (after == kNone) return;
  Node& node = nodes_[static_cast<size_t>(after)];
  node.round = std::max(node.round, before_round);
  if (--node.waits_for == 0) ready_.push_back(after);
}

absl::StatusOr<int> Graph::LastRound() {
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].waits_for == 0) ready_.push_back(static_cast<int>(node));
  }
  int last = 0;
  size_t done = 0;
  for (; !ready_.empty(); ++done) {
    const Node node = nodes_[static_cast<size_t>(ready_.back())];
    ready_.pop_back();
    last = std::max(last, node.round);
    Follow(node.next_on_block, node.round);
    Follow(node.next_in_stream, node.round);
    Follow(node.receive, node.round + 1);
  }
  if (done == nodes_.size()) return last;
  return absl::InvalidArgumentError(
      absl::StrCat("schedule: ", nodes_.size() - done, " of ", nodes_.size(), " steps wait for each other"));
}

}  // namespace

absl::StatusOr<Cost> CountCost(std::span<const Schedule> programs, std::span<const int64_t> block_bytes) {
  ASSIGN_OR_RETURN(Graph graph, Graph::Make(programs, block_bytes));
  Cost cost{.rounds = 0,
            .messages = 0,
            .sent = std::vector<int64_t>(programs.size()),
            .received = std::vector<int64_t>(programs.size())};
  ASSIGN_OR_RETURN(cost.rounds, graph.LastRound());
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
