// What random clusters are like.
#include <iterator>

#include "cluster.h"

namespace gyre::ps {

Plan RandomPlan(uint64_t seed) {
  support::Mutator random(seed * 0x9e3779b97f4a7c15 + 1);
  const auto between = [&](uint64_t least, uint64_t most) {
    return static_cast<int64_t>(least + random.Below(most - least + 1));
  };
  Plan plan{.seed = seed};
  const bool crowd = random.OneIn(25);
  plan.workers = static_cast<int>(crowd ? between(100, 130) : between(1, 8));
  plan.servers = static_cast<int>(between(1, crowd ? 2 : 4));
  plan.tensors = static_cast<int>(between(1, crowd ? 3 : 8));
  plan.consistency = {static_cast<Mode>(random.Below(3)), random.Below(5)};
  plan.steps = static_cast<uint64_t>(between(1, crowd ? 8 : 40));
  plan.local_steps = random.Below(4) * 3;
  plan.retain = random.OneIn(4) ? random.Below(4) : 64;
  plan.snapshot_ms = between(50, 1500);
  plan.compute_ms = between(1, 150);
  const uint64_t faults = random.Below(4);
  if (faults > 0) plan.drop = static_cast<uint64_t>(between(20, 200));
  if (faults > 1) plan.duplicate = static_cast<uint64_t>(between(5, 100));
  if (faults > 1) plan.delay = static_cast<uint64_t>(between(10, 100));
  for (int64_t blows = between(0, crowd ? 60 : 12); blows > 0; --blows) {
    Blow blow{.kind = static_cast<Blow::Kind>(random.Below(6)), .server = random.OneIn(3)};
    if (blow.kind == Blow::Kind::kCrash || blow.kind == Blow::Kind::kTear || blow.kind == Blow::Kind::kCut) {
      blow.server = true;
    }
    blow.whom = static_cast<int>(random.Below(static_cast<uint64_t>(blow.server ? plan.servers : plan.workers)));
    blow.worker = static_cast<int>(random.Below(static_cast<uint64_t>(plan.workers)));
    blow.at = between(0, 4000);
    blow.lasts = random.OneIn(3) ? between(1000, 4000) : between(1, 900);
    plan.blows.push_back(blow);
  }
  // The first one stays.
  if (random.OneIn(3) && plan.workers > 1) {
    const auto worker = static_cast<int>(between(1, static_cast<uint64_t>(plan.workers) - 1));
    plan.blows.push_back({.whom = worker, .at = between(50, 1000), .lasts = -1});
  }
  // Half the workers at once, and back.
  if (random.OneIn(6)) {
    for (int worker = 0; worker < plan.workers; worker += 2) {
      plan.blows.push_back({.whom = worker, .at = between(300, 600), .lasts = between(500, 3000)});
    }
  }
  // Half of them with credit for one to three partitions.
  if (random.OneIn(2)) plan.window = static_cast<size_t>(between(1, 3) * plan.workers) * sizeof(float);
  if (random.OneIn(2)) plan.window_of_all = static_cast<size_t>(between(1, 4) * plan.workers) * sizeof(float);
  constexpr Way kWays[] = {Way::kMemory, Way::kHost, Way::kLink, Way::kLink};
  plan.way = kWays[random.Below(std::size(kWays))];
  if (random.OneIn(2)) plan.tables = static_cast<int>(between(1, 2));
  if (random.OneIn(3)) {
    const Compression kinds[] = {Fp16{}, Int8{}, Int4{}, TopK{.sparsity = 0.9}, Dgc{.sparsity = 0.9, .momentum = 0.5f}};
    plan.compression = kinds[random.Below(std::size(kinds))];
  }
  if (random.OneIn(4)) plan.values_as = compression::PayloadKind::kInt8;
  // Half of them with replicas, and disks that are lost.
  if (plan.servers == 1 || random.OneIn(2)) return plan;
  plan.replicas = true;
  if (random.OneIn(2)) plan.retain = 0;
  // A state is some pieces, not so many that messages which are lost keep it from coming over before the end.
  plan.piece_bytes = static_cast<size_t>(between(100, 1000) * plan.workers);
  for (int64_t blows = between(0, 6); blows > 0; --blows) {
    const auto kind = random.OneIn(3) ? Blow::Kind::kSever : Blow::Kind::kLose;
    const auto whom = static_cast<int>(random.Below(static_cast<uint64_t>(plan.servers)));
    plan.blows.push_back({kind, true, whom, 0, between(0, 4000), between(1, 1500)});
  }
  return plan;
}

}  // namespace gyre::ps
