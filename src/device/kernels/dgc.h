// Deep gradient compression (Lin, Han, Mao, Wang, Dally, ICLR 2018) of many tensors at once, as kernels: what is on the
// GPU, and the pass over gradients and accumulators. select.h has what comes after it.
//
// A step is a row of kernels, which the host queues without looking at anything in between:
//   DrawShare, SetThreshold (sample.h), where thresholds come from samples
//   AccumulateTile   u, v and g are read and u, v written once; what is above a tensor's threshold is moved to a list
//   ChooseKth        finds a list's k-th largest, and the next step's threshold; or that all of it is chosen, which is
//                    above a sample's threshold and no more than 2 k; or that the list is too long for one
//                    block, or will not do (too few, or no place for all), and then
//   CountKeys, NarrowKth   three times: the k-th largest of the list, or of all of v, by all blocks. Otherwise they
//                    return at once.
//   CountKept, PlaceKept, EmitKept   the k largest in the order of positions; the list's others are put back
//
// What is chosen, and every bit of u and v but the payloads of NaNs, is what compression::Selector::SelectLargest
// (or, with a sample, SelectAbove) chooses and leaves on the CPU.
#pragma once

#include <cstdint>

#include "device/kernels/element.h"
#include "device/kernels/team.h"

namespace gyre::device::kernels {

constexpr int kTileThreads = 256;
constexpr int kTilePacks = 2;  // of 4 elements, a thread: of more, not all would stay in registers
constexpr uint32_t kTileElements = kTileThreads * kTilePacks * 4;

enum class DgcCounts : uint32_t { kNothing, kList, kAll };  // what CountKeys counts of a tensor

// What a tensor keeps from step to step, and what the kernels of a step tell each other.
struct DgcState {
  double exponent = 10;  // of the number of elements above a threshold
  double caution = 1;    // how many times more candidates than usual to aim at
  float threshold = 0;
  float previous = 0;    // the last step's k-th value
  uint64_t rescans = 0;  // lists that would not do, ever

  uint32_t k = 0;  // how many are wanted
  DgcCounts counts = DgcCounts::kNothing;
  uint32_t base = 0;  // while counting: the k-th key lies in [base, base + 2^width) ...
  uint32_t width = 0;
  uint32_t rank = 0;      // ... and is the rank-th largest there
  uint32_t kth = 0;       // the key of the k-th largest
  uint32_t ties = 0;      // how many of those equal to it are taken
  uint32_t selected = 0;  // how many were chosen: k, or fewer if fewer are not 0

  // What the blocks of a pass add to: not in the line that they read the threshold from.
  alignas(128) uint64_t non_finite = 0;  // elements of gradients that were NaN or infinite, ever; they count as 0
  uint32_t seen = 0;  // elements above the threshold; more than the list's places where it overflowed
};

// One tensor. Everything it points at is on the GPU; momentum may be null, and then v += scale * g.
struct DgcTensor {
  float* momentum;
  float* velocity;
  void* gradient;
  int64_t count;  // < 2^32

  uint32_t* indices;  // the list: candidates, ascending within a tile
  float* velocities;
  float* momenta;  // null without momentum
  uint32_t capacity;

  uint32_t* selected_indices;  // the outcome, ascending
  float* selected_values;
  float* selected_momenta;  // what u was there; null: nobody asks

  uint32_t first_tile, tiles;
  uint32_t* bins;  // kBins (kth.h), all 0 between steps
  DgcState* state;

  uint32_t* sample;  // keys; null: the threshold is the step before's guess
  uint32_t sample_count, sample_rank;
};

struct DgcTileRef {
  uint32_t tensor;
  uint32_t number;  // within its tensor
};

// A tile's part of the list; then of the outcome.
struct DgcTileList {
  uint32_t base, count;
};
struct DgcTileKept {
  uint32_t above;  // how many are larger than the k-th; then the place of the first that is kept
  uint32_t ties;   // how many are equal to it; then how many of these are kept
};

struct DgcTable {
  const DgcTensor* tensors;
  const DgcTileRef* tiles;
  DgcTileList* lists;
  DgcTileKept* kept;
  uint32_t* counted;  // how many tensors CountKeys has something to do for
  uint32_t tensor_count, tile_count;
  bool momentum;  // whether the tensors have it: all or none
  bool sampled;   // likewise
};

struct DgcStep {
  double sparsity = 0.999;  // the share that is not sent: see compression::KeptCount
  float factor = 0.9f;      // of momentum; finite
  float scale = 1;          // of the gradient; finite
  bool nesterov = false;
  bool masked = true;  // u is cleared where v is chosen
  bool clear = false;  // gradients are set to 0
  bool select = true;  // false: only accumulates
  uint64_t seed = 0;   // of samples
};

// One element: as StepOne of src/compression/accumulate_kernels-inl.h.
template <bool kMomentum>
GYRE_GPU void AccumulateElement(float raw, const DgcStep& step, float& u, float& v, uint32_t& non_finite) {
  const bool finite = (Bits(raw) & kInfinityBits) != kInfinityBits;
  non_finite += finite ? 0 : 1;
  const float g = finite ? raw * step.scale : 0.0f;
  if constexpr (!kMomentum) {
    v = v + g;
  } else if (step.nesterov) {
    u = step.factor * (u + g);
    v = v + u + g;
  } else {
    u = step.factor * u + g;
    v = v + u;
  }
}

struct TileShared {
  uint32_t groups[kTilePacks * kTileThreads / kWarp];  // how many each warp picks out of each row of packs
  uint32_t base;
  uint32_t non_finite;  // of this tile's gradients; 0 between tiles
  bool room;
};

// A thread's packs of a tile.
struct TileLanes {
  Pack<float, 4> u[kTilePacks], v[kTilePacks];
};

template <class Element, bool kMomentum>
GYRE_GPU uint32_t AccumulateLanes(const DgcTensor& tensor, const DgcStep& step, int64_t first, TileLanes& lanes,
                                  uint32_t& non_finite) {
  using Stored = typename Element::Stored;
  auto* const gradient = static_cast<Stored*>(tensor.gradient);
  const bool aligned = IsAligned(gradient, sizeof(Pack<Stored, 4>));
  Pack<Stored, 4> raw[kTilePacks];
  const auto at = [first](int p) { return first + int64_t{p} * (kTileThreads * 4); };
  GYRE_GPU_UNROLL
  for (int p = 0; p < kTilePacks; ++p) {  // all loads before anything is used
    raw[p] = LoadPack<4>(static_cast<const Stored*>(gradient), at(p), tensor.count, aligned);
    lanes.v[p] = LoadPack<4>(static_cast<const float*>(tensor.velocity), at(p), tensor.count, true);
    if constexpr (kMomentum)
      lanes.u[p] = LoadPack<4>(static_cast<const float*>(tensor.momentum), at(p), tensor.count, true);
  }
  // Behind the loads, which so do not wait for it.
  const uint32_t limit = step.select ? Bits(tensor.state->threshold) : 0x7fffffffu;
  uint32_t picked = 0;  // nothing beyond the end, where v stays 0 as factor and scale are finite
  GYRE_GPU_UNROLL
  for (int p = 0; p < kTilePacks; ++p) {
    Pack<float, 4> u_left, v_left;
    GYRE_GPU_UNROLL
    for (int lane = 0; lane < 4; ++lane) {
      float& u = lanes.u[p].at[lane];
      float& v = lanes.v[p].at[lane];
      AccumulateElement<kMomentum>(Element::Load(raw[p].at[lane]), step, u, v, non_finite);
      const bool larger = Key(v) > limit;
      picked |= static_cast<uint32_t>(larger) << (4 * p + lane);
      v_left.at[lane] = larger ? 0.0f : v;
      if constexpr (kMomentum) u_left.at[lane] = larger && step.masked ? 0.0f : u;
    }
    StorePack(v_left, tensor.velocity, at(p), tensor.count, true);
    if constexpr (kMomentum) StorePack(u_left, tensor.momentum, at(p), tensor.count, true);
    if (step.clear) StorePack(Pack<Stored, 4>{}, gradient, at(p), tensor.count, aligned);
  }
  return picked;
}

// The elements that a thread has picked out go to the list from `place(p)` on, for the row p of packs; or back, if
// the list has no room.
template <bool kMomentum, class Place>
GYRE_GPU void PickOut(const DgcTensor& tensor, const TileLanes& lanes, uint32_t picked, int64_t first, bool room,
                      const Place& place) {
  GYRE_GPU_UNROLL
  for (int p = 0; p < kTilePacks; ++p) {
    if ((picked >> (4 * p) & 15u) == 0) continue;
    uint32_t to = place(p);
    GYRE_GPU_UNROLL
    for (int lane = 0; lane < 4; ++lane) {
      if ((picked >> (4 * p + lane) & 1u) == 0) continue;
      const int64_t i = first + int64_t{p} * (kTileThreads * 4) + lane;
      if (room) {
        tensor.indices[to] = static_cast<uint32_t>(i);
        tensor.velocities[to] = lanes.v[p].at[lane];
        if constexpr (kMomentum) tensor.momenta[to] = lanes.u[p].at[lane];
        ++to;
      } else {
        tensor.velocity[i] = lanes.v[p].at[lane];
        if constexpr (kMomentum) tensor.momentum[i] = lanes.u[p].at[lane];
      }
    }
  }
}

// Accumulates tile `number` of the table, and picks out what is above its tensor's threshold. 16 bytes a load.
// A Team of kTileThreads.
template <class Element, bool kMomentum, class Team>
GYRE_GPU void AccumulateTile(Team& team, const DgcTable& table, const DgcStep& step, uint32_t number,
                             TileShared& shared) {
  constexpr int kWarps = kTileThreads / kWarp;
  const DgcTileRef tile = table.tiles[number];
  const DgcTensor tensor = table.tensors[tile.tensor];  // a copy: stores could alias the table
  const int64_t begin = int64_t{tile.number} * kTileElements;
  Local<Team, TileLanes> lanes;
  Local<Team, uint32_t> picked, votes, before, groups;  // before, groups: a byte for each row of packs
  team.Do([&](int thread) {
    uint32_t non_finite = 0;
    picked[thread] = AccumulateLanes<Element, kMomentum>(tensor, step, begin + thread * 4, lanes[thread], non_finite);
    if (non_finite != 0) Team::Add(&shared.non_finite, non_finite);
    before[thread] = groups[thread] = 0;
  });
  if (step.select) {
    GYRE_GPU_UNROLL
    for (int bit = 0; bit < 4 * kTilePacks; ++bit) {
      team.Ballot(votes, [&](int thread) { return (picked[thread] >> bit & 1u) != 0; });
      team.Do([&](int thread) {
        before[thread] += CountBits(votes[thread] & Before(thread)) << (8 * (bit / 4));
        groups[thread] += CountBits(votes[thread]) << (8 * (bit / 4));
      });
    }
  }
  team.Each([&](int thread) {
    if (thread % kWarp != 0) return;
    GYRE_GPU_UNROLL
    for (int p = 0; p < kTilePacks; ++p) {
      shared.groups[p * kWarps + thread / kWarp] = groups[thread] >> (8 * p) & 255u;
    }
  });
  team.Each([&](int thread) {
    if (thread != 0) return;
    if (shared.non_finite != 0) Team::Add(&tensor.state->non_finite, uint64_t{shared.non_finite});
    shared.non_finite = 0;
    if (!step.select) return;
    uint32_t total = 0;
    for (const uint32_t group : shared.groups) total += group;
    shared.base = total == 0 ? 0 : Team::Add(&tensor.state->seen, total);
    shared.room = shared.base <= tensor.capacity && total <= tensor.capacity - shared.base;
    table.lists[number] = {shared.base, shared.room ? total : 0};
  });
  if (!step.select) return;
  team.Each([&](int thread) {
    if (picked[thread] == 0) return;
    const DgcTensor again = table.tensors[tile.tensor];  // where the list is need not lie in registers until here
    PickOut<kMomentum>(again, lanes[thread], picked[thread], begin + thread * 4, shared.room, [&](int p) {
      uint32_t place = shared.base + (before[thread] >> (8 * p) & 255u);
      for (int g = 0; g < p * kWarps + thread / kWarp; ++g) place += shared.groups[g];
      return place;
    });
  });
}

// What block `block` of `blocks` does of the pass.
template <class Element, bool kMomentum, class Team>
GYRE_GPU void AccumulateTiles(Team& team, const DgcTable& table, const DgcStep& step, uint32_t block, uint32_t blocks,
                              TileShared& shared) {
  team.Each([&](int thread) {
    if (thread == 0) shared.non_finite = 0;
  });
  for (uint32_t number = block; number < table.tile_count; number += blocks) {
    AccumulateTile<Element, kMomentum>(team, table, step, number, shared);
  }
}

}  // namespace gyre::device::kernels
