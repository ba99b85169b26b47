#include "collectives/pricing/closed_form.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>

#include "collectives/schedule/binomial.h"
#include "collectives/schedule/bruck.h"
#include "collectives/schedule/chain.h"
#include "collectives/schedule/circulant.h"
#include "collectives/schedule/dissemination.h"
#include "collectives/schedule/double_tree.h"
#include "collectives/schedule/halving_doubling.h"
#include "collectives/schedule/pairwise.h"
#include "collectives/schedule/recursive_doubling.h"
#include "collectives/schedule/ring.h"

namespace gyre::internal {

namespace {

using std::max;

// The model and a size of blocks, in the letters of docs/algorithms.md; seconds.
struct Terms {
  Terms(int64_t block_bytes, const PriceModel& model) : a(std::chrono::duration<double>(model.link.latency).count()) {
    const int64_t first = std::min(block_bytes, model.grain);
    const int64_t last = first == 0 ? 0 : (block_bytes - 1) % model.grain + 1;
    const auto on_wire = [&](int64_t bytes) { return static_cast<double>(bytes) / model.link.bytes_per_second; };
    const auto reduced = [&](int64_t bytes) { return static_cast<double>(bytes) / model.reduced_bytes_per_second; };
    W = on_wire(block_bytes + model.header_bytes);
    w = on_wire(first + model.header_bytes);
    r = reduced(first);
    e = last == block_bytes ? r : max(reduced(last), r - on_wire(last) + reduced(last));
  }

  double a;      // latency
  double W = 0;  // of a whole block on the wire
  double w = 0;  // of its first piece
  double r = 0;  // to reduce the first piece
  double e = 0;  // to reduce what is left of a block when all of it has arrived
};

int FloorLog2(int size) {
  return std::bit_width(static_cast<unsigned>(size)) - 1;
}
int CeilLog2(int size) {
  return std::bit_width(static_cast<unsigned>(size) - 1);
}
bool IsPower(int size) {
  return std::has_single_bit(static_cast<unsigned>(size));
}

// Waves of blocks: what is sent in one was received in the one before, but in the first. The first block that the next
// wave needs is the one behind `before_needed` others. A wave begins when that is there, or the port free.
struct Wave {
  double blocks = 0;
  double before_needed = 0;
  bool reduces = false;
};
using Waves = std::vector<Wave>;

double Seconds(const Waves& waves, const Terms& t) {
  if (waves.empty()) return 0;
  double seconds = t.a + waves.back().blocks * t.W + (waves.back().reduces ? t.e : 0);
  for (size_t i = 0; i + 1 < waves.size(); ++i) {
    const Wave& wave = waves[i];
    seconds += max(wave.blocks * t.W, t.a + wave.before_needed * t.W + t.w + (wave.reduces ? t.r : 0));
  }
  return seconds;
}

// So many blocks a wave; the next one needs the first.
Waves WavesOf(const std::map<int, int>& blocks_by_wave) {
  Waves waves;
  for (const auto& [wave, blocks] : blocks_by_wave) waves.push_back({.blocks = static_cast<double>(blocks)});
  return waves;
}

Waves Reducing(Waves waves) {
  for (Wave& wave : waves) wave.reduces = true;
  return waves;
}

Waves operator+(Waves first, const Waves& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// A block each.
Waves Rounds(int rounds) {
  return Waves(static_cast<size_t>(rounds), {.blocks = 1});
}

// A block waits as often as blocks of its number came in before it is handed on; in each wave those that are handed on
// next come in last.
Waves CirculantHalving(int p) {
  std::map<int, int> waves;
  std::vector<int> came_in(static_cast<size_t>(p));
  for (int width = p; width > 1; width = (width + 1) / 2) {
    const int distance = (width + 1) / 2;
    for (int block = distance; block < width; ++block) ++waves[came_in[static_cast<size_t>(block)]];
    for (int block = 0; block < width - distance; ++block) ++came_in[static_cast<size_t>(block)];
  }
  Waves result = Reducing(WavesOf(waves));
  for (size_t i = 0; i + 1 < result.size(); ++i) result[i].before_needed = result[i].blocks - result[i + 1].blocks;
  return result;
}

// A block is in the wave of the jumps on its way, each the longest that fits of p halved, rounded up, halved again...
Waves CirculantDoubling(int p) {
  std::map<int, int> waves;
  for (int way = 1; way < p; ++way) {
    int jumps = 0;
    for (int left = way, jump = p; jump > 1;) {
      jump = (jump + 1) / 2;
      if (left < jump) continue;
      left -= jump;
      ++jumps;
    }
    ++waves[jumps];
  }
  return WavesOf(waves);
}

// Halves, quarters, ...: first what is handed on next.
Waves Halving(int p) {
  Waves waves;
  for (int blocks = p / 2; blocks > 0; blocks /= 2) waves.push_back({.blocks = static_cast<double>(blocks)});
  return Reducing(waves);
}

std::optional<double> HalvingDoubling(int p, const Terms& t) {
  if (!IsPower(p)) return std::nullopt;
  return Seconds(Halving(p) + CirculantDoubling(p), t);  // which is the same doubling where p is a power of two
}

std::optional<double> RecursiveDoubling(int p, const Terms& t) {
  if (!IsPower(p)) return std::nullopt;
  return Seconds(Reducing(Rounds(FloorLog2(p))), t);
}

// As long as the port is busy, or the jumps take, or the piece that leaves last in each round.
double Bruck(int p, const Terms& t) {
  std::map<int, int> waves;
  int blocks = 0;
  for (int way = 1; way < p; ++way) {
    for (int jump = 0; jump < std::popcount(static_cast<unsigned>(way)); ++jump, ++blocks) ++waves[jump];
  }
  const int first_round = p / 2;
  const int rounds = CeilLog2(p) - (p > 2 && 4 * p <= 3 << CeilLog2(p) ? 1 : 0);
  return max({Seconds(WavesOf(waves), t), t.a + blocks * t.W, rounds * t.a + (first_round + 2 * rounds - 2) * t.W});
}

// The root's port is busy for all its children; and the way to the last rank is long.
double Binomial(int p, const Terms& t, bool reduces) {
  const int levels = FloorLog2(p);
  const double way = reduces ? (levels - 1) * (t.a + t.r) + t.a + t.e : levels * t.a;
  const double busy = reduces ? t.a + t.e : std::min(levels, 2) * t.a;
  return max(way + CeilLog2(p) * t.w + t.W - t.w, busy + CeilLog2(p) * t.W);
}

double Chain(int p, const Terms& t, bool reduces) {
  return (p - 1) * (t.a + t.w) + t.W - t.w + (reduces ? (p - 2) * t.r + t.e : 0);
}

// Two blocks through each port, and a level costs a piece for either child.
double DoubleTree(int p, const Terms& t, bool reduces) {
  const int levels = CeilLog2(p), pieces = 2 * levels - (IsPower(p) ? 0 : 1);
  return 2 * (t.W - t.w) + levels * (t.a + (reduces ? t.r : 0)) + pieces * t.w;
}

using Formula = std::function<std::optional<double>(int p, const Terms& t)>;

PricedAlgorithm Make(std::string_view operation, std::string_view name,
                     std::function<Schedule(int rank, int size)> make, Formula formula) {
  return {operation, name, std::move(make),
          [formula = std::move(formula)](int size, int64_t bytes, const PriceModel& model) -> std::optional<double> {
            if (size == 1) return 0;
            if (model.reduced_bytes_per_second < model.link.bytes_per_second) return std::nullopt;
            return formula(size, Terms(bytes, model));
          }};
}

using Rooted = Schedule (*)(int rank, int size, int root);

PricedAlgorithm MakeRooted(std::string_view operation, std::string_view name, Rooted make, Formula formula) {
  return Make(
      operation, name, [make](int rank, int size) { return make(rank, size, 0); }, std::move(formula));
}

}  // namespace

int64_t PricedAlgorithm::BlockBytes(int size, int64_t bytes) const {
  if (operation == "barrier") return 0;
  const int64_t parts = operation == "alltoall" ? size : make(0, size).blocks;
  return (bytes + parts - 1) / parts;
}

std::vector<PricedAlgorithm> PricedAlgorithms() {
  const auto none = [](int, const Terms&) { return std::optional<double>(); };
  return {
      Make("allreduce", "ring", RingAllReduce,
           [](int p, const Terms& t) { return Seconds(Reducing(Rounds(p - 1)) + Rounds(p - 1), t); }),
      Make("allreduce", "recursive doubling", RecursiveDoublingAllReduce, RecursiveDoubling),
      Make("allreduce", "halving doubling", HalvingDoublingAllReduce, HalvingDoubling),
      Make("allreduce", "circulant", CirculantAllReduce,
           [](int p, const Terms& t) { return Seconds(CirculantHalving(p) + CirculantDoubling(p), t); }),
      Make("allreduce", "double tree", DoubleTreeAllReduce, none),
      Make("reduce_scatter", "ring", RingReduceScatter,
           [](int p, const Terms& t) { return Seconds(Reducing(Rounds(p - 1)), t); }),
      Make("reduce_scatter", "circulant", CirculantReduceScatter,
           [](int p, const Terms& t) { return Seconds(CirculantHalving(p), t); }),
      Make("allgather", "ring", RingAllGather, [](int p, const Terms& t) { return Seconds(Rounds(p - 1), t); }),
      Make("allgather", "circulant", CirculantAllGather,
           [](int p, const Terms& t) { return Seconds(CirculantDoubling(p), t); }),
      MakeRooted("broadcast", "binomial", BinomialBroadcast,
                 [](int p, const Terms& t) { return Binomial(p, t, false); }),
      MakeRooted("broadcast", "chain", ChainBroadcast, [](int p, const Terms& t) { return Chain(p, t, false); }),
      MakeRooted("broadcast", "double tree", DoubleTreeBroadcast,
                 [](int p, const Terms& t) { return DoubleTree(p, t, false); }),
      MakeRooted("reduce", "binomial", BinomialReduce, [](int p, const Terms& t) { return Binomial(p, t, true); }),
      MakeRooted("reduce", "chain", ChainReduce, [](int p, const Terms& t) { return Chain(p, t, true); }),
      MakeRooted("reduce", "double tree", DoubleTreeReduce,
                 [](int p, const Terms& t) { return DoubleTree(p, t, true); }),
      Make("alltoall", "pairwise", PairwiseAllToAll, [](int p, const Terms& t) { return t.a + (p - 1) * t.W; }),
      Make("alltoall", "Bruck", BruckAllToAll, Bruck),
      Make("barrier", "dissemination", DisseminationBarrier,
           [](int p, const Terms& t) { return CeilLog2(p) * (t.a + t.w); }),
  };
}

}  // namespace gyre::internal
