#include "collectives/pricing/price.h"

#include <algorithm>
#include <chrono>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/schedule/step_graph.h"
#include "collectives/schedule/symmetry.h"

namespace gyre::internal {

namespace {

constexpr int kNone = StepGraph::kNone;

// Steps of all ranks that fit into some GiB.
constexpr int64_t kMostSteps = 40'000'000;

// Of shorter blocks nothing is said about longer ones: a pipeline has to fill first.
constexpr int64_t kFewestPieces = 128;

// What can happen to a piece of a step. The events of one rank at one time come in this order, and then in that of its
// program: by no number of a rank, so that one rank can stand for all.
enum class Happening : uint8_t {
  kSent,     // of a send: its piece has left the port
  kHead,     // of a receive, as what follows: the piece reaches the port
  kArrived,  // all of it has
  kReduced,
};

struct Event {
  double when;
  Happening what;
  int step;
  bool operator>(const Event& other) const {
    return std::tie(when, what, step) > std::tie(other.when, other.what, other.step);
  }
};

struct State {
  int64_t bytes = 0;
  int pieces = 1;       // of an empty block too
  int heads = 0;        // that have reached the port
  int arrived = 0;      // that lie behind it
  int taken = 0;        // sent, or put where they belong, or about to be reduced
  int done = 0;         // and are through
  bool is_due = false;  // the steps before it on its stream have ended
};

struct Rank {
  double sending_until = 0;
  double receiving_until = 0;
  double reducing_until = 0;
  double ended = 0;
};

class Pricer {
 public:
  Pricer(const StepGraph& graph, size_t ranks, const PriceModel& model, LinkFunction links)
      : nodes_(graph.nodes()), states_(nodes_.size()), ranks_(ranks), model_(model), links_(std::move(links)) {}

  absl::StatusOr<Price> Run(std::span<const int64_t> block_bytes);

 private:
  absl::Status Load(std::span<const int64_t> block_bytes);
  void Handle(const Event& event);
  void TrySend(int step);
  void TryTake(int step);
  void Follow(int step);
  void EndPiece(int step);
  bool Precedes(const StepGraph::Node& node, const State& state) const;
  int64_t PieceBytes(const State& state, int piece) const;
  double WireSeconds(const State& state, int piece, const sim::LinkModel& link) const;
  sim::LinkModel LinkOf(int from, int to) const { return links_ ? links_(from, to) : model_.link; }

  const StepGraph::Node& NodeOf(int step) const { return nodes_[static_cast<size_t>(step)]; }
  State& StateOf(int step) { return states_[static_cast<size_t>(step)]; }
  Rank& RankOf(const StepGraph::Node& node) { return ranks_[static_cast<size_t>(node.rank)]; }

  const std::span<const StepGraph::Node> nodes_;
  std::vector<State> states_;
  std::vector<Rank> ranks_;
  const PriceModel& model_;
  const LinkFunction links_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0;
  int64_t pieces_ = 0;
};

absl::Status Pricer::Load(std::span<const int64_t> block_bytes) {
  for (size_t step = 0; step < nodes_.size(); ++step) {
    State& state = states_[step];
    state.bytes = block_bytes[static_cast<size_t>(nodes_[step].block)];
    state.is_due = nodes_[step].previous_in_stream == kNone;
    const int64_t pieces = (state.bytes + model_.grain - 1) / model_.grain;
    if (pieces > std::numeric_limits<int>::max()) return absl::InvalidArgumentError("price: too many pieces to count");
    state.pieces = std::max(1, static_cast<int>(pieces));
  }
  for (size_t step = 0; step < nodes_.size(); ++step) {
    const StepGraph::Node& node = nodes_[step];
    if (node.kind != Step::Kind::kSend || StateOf(node.receive).bytes == states_[step].bytes) continue;
    return absl::InvalidArgumentError(absl::StrCat("price: rank ", node.rank, " sends ", states_[step].bytes,
                                                   " bytes to rank ", node.peer, ", which expects ",
                                                   StateOf(node.receive).bytes));
  }
  return absl::OkStatus();
}

int64_t Pricer::PieceBytes(const State& state, int piece) const {
  return std::min(model_.grain, state.bytes - piece * model_.grain);
}

double Pricer::WireSeconds(const State& state, int piece, const sim::LinkModel& link) const {
  const int64_t bytes = PieceBytes(state, piece) + (piece == 0 ? model_.header_bytes : 0);
  return static_cast<double>(bytes) / link.bytes_per_second;
}

// Whether the step before it on its block is through with the next piece.
bool Pricer::Precedes(const StepGraph::Node& node, const State& state) const {
  return node.previous_on_block == kNone || states_[static_cast<size_t>(node.previous_on_block)].done > state.taken;
}

// Puts the next piece on the port: it goes once those have gone that could go before it.
void Pricer::TrySend(int step) {
  const StepGraph::Node& node = NodeOf(step);
  State& state = StateOf(step);
  const bool under_way = state.taken > state.done;
  if (!state.is_due || under_way || state.taken == state.pieces || !Precedes(node, state)) return;
  Rank& rank = RankOf(node);
  const sim::LinkModel link = LinkOf(node.rank, node.peer);
  const double begin = std::max(now_, rank.sending_until);
  rank.sending_until = begin + WireSeconds(state, state.taken, link);
  events_.push({rank.sending_until, Happening::kSent, step});
  events_.push({begin + std::chrono::duration<double>(link.latency).count(), Happening::kHead, node.receive});
  ++state.taken;
  ++pieces_;
}

// Puts what has arrived where it belongs, as far as the steps before it are through with what is there.
void Pricer::TryTake(int step) {
  const StepGraph::Node& node = NodeOf(step);
  State& state = StateOf(step);
  while (state.taken < state.arrived && Precedes(node, state)) {
    const auto bytes = static_cast<double>(PieceBytes(state, state.taken++));
    const double seconds = node.kind == Step::Kind::kReceiveReduce ? bytes / model_.reduced_bytes_per_second : 0;
    if (seconds == 0) {
      EndPiece(step);
      continue;
    }
    Rank& rank = RankOf(node);
    rank.reducing_until = std::max(now_, rank.reducing_until) + seconds;
    events_.push({rank.reducing_until, Happening::kReduced, step});
  }
}

void Pricer::Follow(int step) {
  if (step == kNone) return;
  NodeOf(step).kind == Step::Kind::kSend ? TrySend(step) : TryTake(step);
}

void Pricer::EndPiece(int step) {
  const StepGraph::Node& node = NodeOf(step);
  ++StateOf(step).done;
  RankOf(node).ended = now_;
  Follow(node.next_on_block);
}

void Pricer::Handle(const Event& event) {
  const StepGraph::Node& node = NodeOf(event.step);
  State& state = StateOf(event.step);
  switch (event.what) {
    case Happening::kSent:
      EndPiece(event.step);
      if (state.done < state.pieces) return TrySend(event.step);
      if (node.next_in_stream == kNone) return;
      StateOf(node.next_in_stream).is_due = true;
      return TrySend(node.next_in_stream);
    case Happening::kHead: {
      double& until = RankOf(node).receiving_until;
      until = std::max(now_, until) + WireSeconds(state, state.heads++, LinkOf(node.peer, node.rank));
      return events_.push({until, Happening::kArrived, event.step});
    }
    case Happening::kArrived: ++state.arrived; return TryTake(event.step);
    case Happening::kReduced: return EndPiece(event.step);
  }
}

absl::StatusOr<Price> Pricer::Run(std::span<const int64_t> block_bytes) {
  RETURN_IF_ERROR(Load(block_bytes));
  for (size_t step = 0; step < nodes_.size(); ++step) {
    if (nodes_[step].kind == Step::Kind::kSend) TrySend(static_cast<int>(step));
  }
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.when;
    Handle(event);
  }
  const auto stuck = std::ranges::count_if(states_, [](const State& state) { return state.done < state.pieces; });
  if (stuck > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: ", stuck, " of ", nodes_.size(), " steps wait for each other"));
  }
  Price price;
  price.pieces = pieces_;
  for (const Rank& rank : ranks_) {
    price.seconds = std::max(price.seconds, rank.ended);
    price.ended.push_back(rank.ended);
  }
  return price;
}

absl::Status CheckModel(const PriceModel& model) {
  const bool link = model.link.latency > std::chrono::nanoseconds(0) && model.link.bytes_per_second > 0;
  if (link && model.reduced_bytes_per_second > 0 && model.grain > 0 && model.header_bytes >= 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("price: latency, speeds and grain must be positive");
}

absl::Status CheckBlocks(const Schedule& schedule, size_t blocks) {
  if (schedule.blocks == static_cast<int>(blocks)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("schedule: ", schedule.blocks, " blocks, but sizes of ", blocks));
}

absl::StatusOr<std::vector<Schedule>> ProgramsOf(const std::function<Schedule(int rank)>& make, int size) {
  std::vector<Schedule> programs;
  int64_t steps = 0;
  for (int rank = 0; rank < size; ++rank) {
    programs.push_back(make(rank));
    steps += static_cast<int64_t>(programs.back().steps.size());
    if (steps > kMostSteps) {
      return absl::InvalidArgumentError(absl::StrCat("price: no rank stands for all ", size, ", which have more than ",
                                                     kMostSteps, " steps together"));
    }
  }
  return programs;
}

int64_t SendsOf(const std::vector<Schedule>& programs) {
  int64_t sends = 0;
  for (const Schedule& schedule : programs) {
    sends += std::ranges::count(schedule.steps, Step::Kind::kSend, &Step::kind);
  }
  return sends;
}

}  // namespace

absl::StatusOr<Price> PriceOf(std::span<const Schedule> programs, std::span<const int64_t> block_bytes,
                              const PriceModel& model, const LinkFunction& links) {
  RETURN_IF_ERROR(CheckModel(model));
  for (const Schedule& schedule : programs) RETURN_IF_ERROR(CheckBlocks(schedule, block_bytes.size()));
  ASSIGN_OR_RETURN(const StepGraph graph, StepGraph::Of(programs));
  return Pricer(graph, programs.size(), model, links).Run(block_bytes);
}

absl::StatusOr<Price> PriceOfAlike(const std::function<Schedule(int rank)>& make, int size, int64_t block_bytes,
                                   const PriceModel& model, int64_t most_pieces) {
  RETURN_IF_ERROR(CheckModel(model));
  const Symmetry symmetry = SymmetryOf(make, size);
  if (symmetry != Symmetry::kNone) {
    const Schedule zero = make(0);
    ASSIGN_OR_RETURN(const StepGraph graph, StepGraph::OfRankZero(zero, size, symmetry));
    return Pricer(graph, 1, model, {}).Run(std::vector(static_cast<size_t>(zero.blocks), block_bytes));
  }
  ASSIGN_OR_RETURN(const std::vector<Schedule> programs, ProgramsOf(make, size));
  const auto price = [&](int64_t bytes) {
    return PriceOf(programs, std::vector(static_cast<size_t>(programs[0].blocks), bytes), model);
  };
  const int64_t pieces = (block_bytes + model.grain - 1) / model.grain;
  const int64_t longer = std::max(kFewestPieces, most_pieces / std::max<int64_t>(1, SendsOf(programs)));
  if (pieces <= longer) return price(block_bytes);
  const int64_t cut = (pieces - longer) * model.grain, most = longer * 3 / 4 * model.grain;
  ASSIGN_OR_RETURN(const Price before, price(block_bytes - cut - most));
  ASSIGN_OR_RETURN(Price result, price(block_bytes - cut));
  const double times = static_cast<double>(cut) / static_cast<double>(most);
  result.extrapolated = true;
  result.seconds += (result.seconds - before.seconds) * times;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    result.ended[rank] += (result.ended[rank] - before.ended[rank]) * times;
  }
  return result;
}

}  // namespace gyre::internal
