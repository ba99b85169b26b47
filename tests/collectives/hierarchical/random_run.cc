// RunRandomCall: a random call over a random network with faults.
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "collectives/hierarchical/random_call.h"
#include "collectives/hierarchical/sim_world.h"

namespace gyre {

namespace {

using Operations = std::vector<std::shared_ptr<internal::HierarchicalOperation>>;

sim::NetworkOptions RandomNetwork(std::mt19937_64& random, bool faults, int max_ranks) {
  sim::NetworkOptions options{.ranks = 2 + static_cast<int>(random() % static_cast<uint64_t>(max_ranks - 1)),
                              .seed = random()};
  options.link.bytes_per_second = 1e6 * std::pow(10, static_cast<double>(random() % 4));
  options.window = 1 << (10 + random() % 10);
  options.packet_bytes = 1 << (6 + random() % 10);
  if (!faults) return options;
  const auto perhaps = [&](double most) {
    return random() % 2 == 0 ? 0.0 : most * static_cast<double>(random() % 100) / 100;
  };
  options.faults = {.drop = perhaps(0.2),
                    .duplicate = perhaps(0.2),
                    .delay = perhaps(0.5),
                    .damage = perhaps(0.01),
                    .reset = perhaps(0.01)};
  return options;
}

// What is wrong with how a rank's call has ended; empty if nothing. `unchecked`: its data may be damaged.
std::string WrongEnd(const RandomCall& call, int rank, const absl::Status& status, bool faults, bool unchecked) {
  if (const std::string refusal = call.refusal(); !refusal.empty()) {
    const bool refused = absl::IsInvalidArgument(status) && status.message().find(refusal) != std::string::npos;
    return refused ? "" : absl::StrCat("rank ", rank, " was not refused but ended in ", status.ToString());
  }
  if (status.ok()) return unchecked ? "" : call.Wrong(rank);
  const bool tells = faults && status.message().find("rank ") != std::string::npos;
  return tells ? "" : absl::StrCat("rank ", rank, " ended in ", status.ToString());
}

}  // namespace

std::string RunRandomCall(uint64_t seed, bool faults, int max_ranks, std::string* trace) {
  std::mt19937_64 random(seed);
  sim::NetworkOptions options = RandomNetwork(random, faults, max_ranks);
  options.keep_trace = trace != nullptr;
  const bool checksum = random() % 2 == 0;
  SimWorld world(options, checksum);
  RandomCall call(random, options.ranks);
  const bool kills = faults && random() % 4 == 0, cuts = faults && random() % 4 == 0;
  const int victim = static_cast<int>(random() % static_cast<uint64_t>(options.ranks));
  Operations operations(static_cast<size_t>(options.ranks));
  for (int r = 0; r < options.ranks; ++r) {
    if (call.TakesPart(r) && !(kills && r == victim)) operations[static_cast<size_t>(r)] = world.Make(r, call.Of(r));
  }
  if (kills) world.network().Kill(victim);
  if (cuts) world.network().Cut(victim, (victim + 1) % options.ranks);
  const bool ended = world.Run(operations, std::chrono::seconds(30));
  if (trace != nullptr) *trace = world.network().trace();
  if (!ended) return absl::StrCat("seed ", seed, ": a rank has not ended long after its deadline");
  std::string problem;
  for (int r = 0; r < options.ranks; ++r) {
    const auto& operation = operations[static_cast<size_t>(r)];
    if (operation == nullptr) continue;
    if (trace != nullptr) absl::StrAppend(trace, operation->status().ToString(), "\n");
    const bool unchecked = options.faults.damage > 0 && !checksum;
    std::string wrong = WrongEnd(call, r, operation->status(), faults, unchecked);
    if (problem.empty() && !wrong.empty()) problem = absl::StrCat("seed ", seed, ": ", wrong);
  }
  return problem;
}

std::string RunTwice(uint64_t seed, bool faults, int max_ranks) {
  std::string first, second;
  std::string problem = RunRandomCall(seed, faults, max_ranks, &first);
  if (!problem.empty()) return problem;
  problem = RunRandomCall(seed, faults, max_ranks, &second);
  return first == second ? problem : absl::StrCat("seed ", seed, ": the second run differs from the first");
}

}  // namespace gyre
