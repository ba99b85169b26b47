// Exact selection, after the pass of dgc.h: the k-th largest key among a tensor's candidates (of a short list by one
// block, of a long one by all), or among all of its elements where the list of candidates will not do, and then what is
// kept, in the order of positions. Of equal ones those at lower positions are kept.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "device/kernels/dgc.h"
#include "device/kernels/kth.h"
#include "device/kernels/team.h"

namespace gyre::device::kernels {

// Of one tensor.
GYRE_GPU inline uint32_t KeptCount(double sparsity, int64_t count) {
  const long long kept = llround((1 - sparsity) * static_cast<double>(count));
  const long long least = count < 1 ? count : 1;
  return static_cast<uint32_t>(kept < least ? least : kept > count ? count : kept);
}

// As compression::Selector::Guess: the number of elements above x falls about as a power of x near the k-th value; its
// exponent shows in how many were above the last threshold. And the k-th value moves on as it has just moved, or less.
// After a threshold that was too high the next ones keep more distance.
GYRE_GPU inline void GuessThreshold(DgcState& state) {
  const auto between = [](double x, double low, double high) { return x < low ? low : x > high ? high : x; };
  const float kth = FromBits(state.kth);
  if (state.kth == 0 || state.kth >= kInfinityBits) {
    state.threshold = state.previous = 0;
    return;
  }
  double growth = state.previous > 0 ? between(kth / static_cast<double>(state.previous), 0.5, 2.0) : 1;
  if (growth > 1) growth = 1 + 0.8 * (growth - 1);
  const double wanted = state.k;
  if (state.threshold > 0) {
    const double more = log((state.seen < 1 ? 1.0 : static_cast<double>(state.seen)) / wanted);
    const double farther = log(kth / static_cast<double>(state.threshold));
    if (more * farther > 0) state.exponent += 0.3 * (between(more / farther, 2.0, 100.0) - state.exponent);
    const double caution = state.seen < state.k ? 1.5 * state.caution : 0.98 * state.caution;
    state.caution = between(caution, 1.0, 2.0);
  }
  state.previous = kth;
  const double aim = 1.25 * wanted + 4 * sqrt(wanted) + 4;
  const double guess = kth * growth * pow(wanted / (state.caution * aim), 1 / state.exponent);
  constexpr double kMost = 0x1.fffffep127;
  state.threshold = static_cast<float>(guess < kMost ? guess : kMost);
}

// What is known once the k-th key is: `larger` keys are above it.
GYRE_GPU inline void Settle(DgcState& state, uint32_t kth, uint32_t larger) {
  state.kth = kth;
  state.ties = kth == 0 ? 0 : state.k - larger;  // what is 0 is not chosen
  state.selected = larger + state.ties;
  GuessThreshold(state);
}

// For tensor `number`: whether its list will do, and what of it is chosen, or that CountKeys is to find out. A Team of
// any size from 32 to kBins.
template <class Team>
GYRE_GPU void ChooseKth(Team& team, const DgcTable& table, const DgcStep& step, uint32_t number,
                        SelectShared<Team>& shared) {
  const DgcTensor tensor = table.tensors[number];
  DgcState& state = *tensor.state;
  const uint32_t k = KeptCount(step.sparsity, tensor.count), seen = state.seen;
  const bool sampled = tensor.sample != nullptr;
  const bool few = sampled ? seen <= uint64_t{2} * k : seen < k;  // then all of the list is chosen
  const bool rescan = seen > tensor.capacity || (few && !sampled && state.threshold > 0);
  const bool many = !rescan && !few && seen > kOwnKeys * Team::kThreads;
  team.Each([&](int thread) {
    if (thread != 0) return;
    state.k = k;
    state.counts = rescan ? DgcCounts::kAll : many ? DgcCounts::kList : DgcCounts::kNothing;
    if (rescan) ++state.rescans;
    if (rescan || many) {
      Team::Add(table.counted, 1u);
      state.base = 0;
      state.width = kKeyBits;
      state.rank = k;
    } else if (few) {  // all that is to be chosen is in the list
      state.kth = state.ties = 0;
      state.selected = seen;
      state.threshold = state.previous = 0;
    }
  });
  if (rescan || many || few || k == 0) return;
  uint32_t kth = 0, larger = 0;
  FindKth(team, tensor.velocities, seen, k, kth, larger, shared);
  team.Each([&](int thread) {
    if (thread == 0) Settle(state, kth, larger);
  });
}

// What tile `number` has in the list goes back to where it was. A Team of any size.
template <class Team>
GYRE_GPU void PutBack(Team& team, const DgcTable& table, const DgcTensor& tensor, uint32_t number) {
  const DgcTileList list = table.lists[number];
  team.Each([&](int thread) {
    for (uint32_t i = list.base + static_cast<uint32_t>(thread); i < list.base + list.count; i += Team::kThreads) {
      tensor.velocity[tensor.indices[i]] = tensor.velocities[i];
      if (tensor.momentum != nullptr) tensor.momentum[tensor.indices[i]] = tensor.momenta[i];
    }
  });
}

// Values [begin, end) of an array that is aligned, as is `begin`.
struct KeyRange {
  const float* values;
  int64_t begin, end;
};

// What of a tensor's keys belongs to its tiles [from, to): their elements, or as large a part of the list.
GYRE_GPU inline KeyRange KeysOf(const DgcTensor& tensor, uint32_t from, uint32_t to) {
  if (tensor.state->counts == DgcCounts::kAll) {
    const int64_t end = int64_t{to} * kTileElements;
    return {tensor.velocity, int64_t{from} * kTileElements, end < tensor.count ? end : tensor.count};
  }
  const int64_t seen = tensor.state->seen, tiles = tensor.tiles;  // all had room: the list has no gaps
  return {tensor.velocities, seen * from / tiles / 4 * 4, to == tensor.tiles ? seen : seen * to / tiles / 4 * 4};
}

// Adds the keys of [base, base + 2^width) to the team's bins.
template <class Team>
GYRE_GPU void CountRange(Team& team, const KeyRange& range, uint32_t base, uint32_t width, uint32_t* bins) {
  constexpr int kPacks = 4;
  constexpr int64_t kRow = int64_t{Team::kThreads} * 4;
  const uint32_t shift = ShiftOf(width);
  team.Each([&](int thread) {
    for (int64_t i = range.begin + thread * 4; i < range.end; i += kPacks * kRow) {
      Pack<float, 4> packs[kPacks];
      GYRE_GPU_UNROLL
      for (int p = 0; p < kPacks; ++p) {  // all loads before anything is counted
        packs[p] = LoadPack<4>(range.values, i + p * kRow, range.end, true);
      }
      GYRE_GPU_UNROLL
      for (int p = 0; p < kPacks; ++p) {
        GYRE_GPU_UNROLL
        for (int lane = 0; lane < 4; ++lane) {
          const uint32_t offset = Key(packs[p].at[lane]) - base;
          if (i + p * kRow + lane < range.end && offset >> width == 0) Team::Add(&bins[offset >> shift], 1u);
        }
      }
    }
  });
}

// Counts, for tensors whose k-th key is looked for by all blocks, the keys that are in their interval: what block
// `block` of `blocks` does of it. Round 0 of three puts a list that will not do back first.
template <class Team>
GYRE_GPU void CountKeys(Team& team, const DgcTable& table, int round, uint32_t block, uint32_t blocks,
                        SelectShared<Team>& shared) {
  if (*table.counted == 0) return;
  const auto last = static_cast<uint32_t>(uint64_t{table.tile_count} * (block + 1) / blocks);
  for (auto number = static_cast<uint32_t>(uint64_t{table.tile_count} * block / blocks); number < last;) {
    const DgcTensor tensor = table.tensors[table.tiles[number].tensor];
    const uint32_t end = tensor.first_tile + tensor.tiles < last ? tensor.first_tile + tensor.tiles : last;
    const uint32_t from = number;
    number = end;
    if (tensor.state->counts == DgcCounts::kNothing) continue;
    team.Each([&](int thread) {
      for (auto i = static_cast<uint32_t>(thread); i < kBins; i += Team::kThreads) shared.bins[i] = 0;
    });
    if (round == 0 && tensor.state->counts == DgcCounts::kAll) {
      for (uint32_t tile = from; tile < end; ++tile) PutBack(team, table, tensor, tile);
    }
    const KeyRange range = KeysOf(tensor, from - tensor.first_tile, end - tensor.first_tile);
    CountRange(team, range, tensor.state->base, tensor.state->width, shared.bins);
    team.Each([&](int thread) {
      for (auto i = static_cast<uint32_t>(thread); i < kBins; i += Team::kThreads) {
        if (shared.bins[i] != 0) Team::Add(&tensor.bins[i], shared.bins[i]);
      }
    });
  }
}

// After CountKeys: the interval becomes the bin that the k-th key is in; after the third time it is that key.
template <class Team>
GYRE_GPU void NarrowKth(Team& team, const DgcTable& table, uint32_t number, SelectShared<Team>& shared) {
  const DgcTensor tensor = table.tensors[number];
  DgcState& state = *tensor.state;
  if (state.counts == DgcCounts::kNothing) return;
  PickBin(team, tensor.bins, state.rank, shared);
  team.Each([&](int thread) {
    for (auto i = static_cast<uint32_t>(thread); i < kBins; i += Team::kThreads) tensor.bins[i] = 0;
    if (thread != 0) return;
    const uint32_t shift = ShiftOf(state.width);
    state.base += shared.bin << shift;
    state.rank -= shared.larger;
    if (shift == 0) Settle(state, state.base, state.k - state.rank);
    state.width = shift;
  });
}

// The elements that a tile's outcome is made from: its part of the list or, after a rescan, all of it.
struct TileSource {
  const float* values;
  const uint32_t* indices;  // null: the i-th is element first + i
  const float* momenta;     // likewise; null without momentum
  uint32_t first, count;

  GYRE_GPU TileSource(const DgcTable& table, const DgcTensor& tensor, uint32_t number) {
    if (tensor.state->counts == DgcCounts::kAll) {
      first = table.tiles[number].number * kTileElements;
      const int64_t left = tensor.count - int64_t{first};
      count = left < int64_t{kTileElements} ? static_cast<uint32_t>(left) : kTileElements;
      values = tensor.velocity + first;
      indices = nullptr;
      momenta = nullptr;
    } else {
      const DgcTileList list = table.lists[number];
      first = 0;
      count = list.count;
      values = tensor.velocities + list.base;
      indices = tensor.indices + list.base;
      momenta = tensor.momentum == nullptr ? nullptr : tensor.momenta + list.base;
    }
  }
};

// How many of tile `number` are larger than the k-th, and how many equal to it. A Team of a warp.
template <class Team>
GYRE_GPU void CountKept(Team& team, const DgcTable& table, uint32_t number) {
  static_assert(Team::kThreads == kWarp);
  const DgcTensor tensor = table.tensors[table.tiles[number].tensor];
  const TileSource source(table, tensor, number);
  const uint32_t kth = tensor.state->kth;
  Local<Team, uint32_t> above, ties, votes;
  team.Do([&](int thread) { above[thread] = ties[thread] = 0; });
  for (uint32_t i = 0; i < source.count; i += kWarp) {
    const auto key = [&](int thread) {
      const uint32_t at = i + static_cast<uint32_t>(thread);
      return at < source.count ? Key(source.values[at]) : 0;
    };
    team.Ballot(votes, [&](int thread) { return key(thread) > kth; });
    team.Do([&](int thread) { above[thread] += CountBits(votes[thread]); });
    team.Ballot(votes, [&](int thread) { return key(thread) == kth && kth != 0; });
    team.Do([&](int thread) { ties[thread] += CountBits(votes[thread]); });
  }
  team.Each([&](int thread) {
    if (thread == 0) table.kept[number] = {above[thread], ties[thread]};
  });
}

// What tensor `number`'s tiles keep begins at which place; and makes its counters ready for the next step.
template <class Team>
GYRE_GPU void PlaceKept(Team& team, const DgcTable& table, uint32_t number, SelectShared<Team>& shared) {
  const DgcTensor tensor = table.tensors[number];
  constexpr uint32_t kGroup = 4;  // tiles: a sector of memory
  const uint32_t each = (tensor.tiles + kGroup * Team::kThreads - 1) / (kGroup * Team::kThreads) * kGroup;
  const uint32_t end = tensor.first_tile + tensor.tiles;
  const auto begin_of = [&](int thread) {
    const uint32_t begin = tensor.first_tile + static_cast<uint32_t>(thread) * each;
    return begin < end ? begin : end;
  };
  const auto load = [&](DgcTileKept(&has)[kGroup], uint32_t tile, uint32_t last) {
    GYRE_GPU_UNROLL
    for (uint32_t g = 0; g < kGroup; ++g) has[g] = tile + g < last ? table.kept[tile + g] : DgcTileKept{0, 0};
  };
  Local<Team, uint32_t> above, ties;
  team.Do([&](int thread) {
    above[thread] = ties[thread] = 0;
    const uint32_t last = begin_of(thread + 1);
    for (uint32_t tile = begin_of(thread); tile < last; tile += kGroup) {
      DgcTileKept has[kGroup];
      load(has, tile, last);
      GYRE_GPU_UNROLL
      for (uint32_t g = 0; g < kGroup; ++g) {
        above[thread] += has[g].above;
        ties[thread] += has[g].ties;
      }
    }
  });
  ExclusiveSum(team, above, shared.sum);
  ExclusiveSum(team, ties, shared.sum);
  const uint32_t allowed = tensor.state->ties;
  team.Each([&](int thread) {
    uint32_t larger = above[thread], equal = ties[thread];
    const uint32_t last = begin_of(thread + 1);
    for (uint32_t tile = begin_of(thread); tile < last; tile += kGroup) {
      DgcTileKept has[kGroup];
      load(has, tile, last);
      GYRE_GPU_UNROLL
      for (uint32_t g = 0; g < kGroup; ++g) {
        const uint32_t left = equal < allowed ? allowed - equal : 0;
        const DgcTileKept kept = {larger + (equal < allowed ? equal : allowed),
                                  has[g].ties < left ? has[g].ties : left};
        if (tile + g < last) table.kept[tile + g] = kept;
        larger += has[g].above;
        equal += has[g].ties;
      }
    }
    if (thread == 0) tensor.state->seen = 0;
    if (thread == 0 && number == 0) *table.counted = 0;
  });
}

// Puts what tile `number` keeps into its place of the outcome, clears it in the arrays, and puts the others back. A
// Team of a warp.
template <class Team>
GYRE_GPU void EmitKept(Team& team, const DgcTable& table, const DgcStep& step, uint32_t number) {
  static_assert(Team::kThreads == kWarp);
  const DgcTensor tensor = table.tensors[table.tiles[number].tensor];
  const TileSource source(table, tensor, number);
  const uint32_t kth = tensor.state->kth;
  const DgcTileKept kept = table.kept[number];
  uint32_t place = kept.above, ties = kept.ties;
  Local<Team, uint32_t> tied, keep;
  Local<Team, float> values;
  for (uint32_t i = 0; i < source.count; i += kWarp) {
    team.Do([&](int thread) {
      const uint32_t at = i + static_cast<uint32_t>(thread);
      values[thread] = at < source.count ? source.values[at] : 0;
    });
    team.Ballot(tied, [&](int thread) { return kth != 0 && Key(values[thread]) == kth; });
    team.Ballot(keep, [&](int thread) {
      return Key(values[thread]) > kth ||
             ((tied[thread] >> (thread % kWarp) & 1u) != 0 && CountBits(tied[thread] & Before(thread)) < ties);
    });
    team.Do([&](int thread) {
      const uint32_t at = i + static_cast<uint32_t>(thread);
      if (at >= source.count) return;
      const uint32_t index = source.indices == nullptr ? source.first + at : source.indices[at];
      if ((keep[thread] >> (thread % kWarp) & 1u) != 0) {
        const uint32_t to = place + CountBits(keep[thread] & Before(thread));
        tensor.selected_indices[to] = index;
        tensor.selected_values[to] = values[thread];
        if (tensor.selected_momenta != nullptr) {
          tensor.selected_momenta[to] = source.momenta == nullptr ? tensor.momentum[index] : source.momenta[at];
        }
        if (source.indices != nullptr) return;  // the pass has cleared it
        tensor.velocity[index] = 0;
        if (tensor.momentum != nullptr && step.masked) tensor.momentum[index] = 0;
      } else if (source.indices != nullptr) {
        tensor.velocity[index] = values[thread];
        if (source.momenta != nullptr) tensor.momentum[index] = source.momenta[at];
      }
    });
    const uint32_t found = CountBits(tied[0]);  // of all threads the same
    place += CountBits(keep[0]);
    ties -= found < ties ? found : ties;
  }
}

}  // namespace gyre::device::kernels
