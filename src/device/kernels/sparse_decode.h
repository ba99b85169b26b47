// Sparse payloads read on the GPU: sparse.h. What compression::SparseDecoder refuses is refused here as well, before
// anything is added.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernels/sparse.h"

namespace gyre::device::kernels {

enum SparseFault : uint32_t {
  kNoFault = 0,
  kUnread = 1,   // positions in a code that is left to the CPU
  kDamaged = 2,  // no such payload
};

// sum += scale * the payload's tensor, unless there is a fault.
struct SparseDecoding {
  const std::byte* from;
  uint64_t bytes;
  int64_t count;
  float* sum;
  uint32_t* fault;  // a SparseFault, kNoFault at first
  float scale;
};

constexpr uint8_t kMostParameter = 23;  // of codes that have one
constexpr uint32_t kMostBlocks = (kChunkElements + kPositionBlock - 1) / kPositionBlock;

template <class Team>
struct DecodeShared {
  SumShared<Team> sum;
  uint32_t places[kMostBlocks + 1];  // where each block's positions begin, among the chunk's
  uint64_t at;                       // where a chunk's positions begin in the payload
  uint32_t entries, index_bytes;
  uint8_t code;
  int8_t exponent;
  uint32_t fault;
};

GYRE_GPU inline float DecodeValue(SparseValues values, const std::byte* from, int exponent) {
  if (values == SparseValues::kF32) return LoadWire<float>(from);
  if (values == SparseValues::kBF16) return BrainElement::Load(LoadWire<uint16_t>(from));
  return HalfElement::Load(LoadWire<uint16_t>(from)) * ldexpf(1.0f, exponent);
}

// Finds chunk `chunk`: by one thread, from header to header. Leaves in `shared` where and what it is, and the fault
// that was found on the way.
template <class Team>
GYRE_GPU void FindChunk(const SparseDecoding& d, uint32_t chunk, DecodeShared<Team>& shared) {
  shared.fault = kDamaged;
  if (d.bytes < kSparseHeader) return;
  const auto values = LoadWire<uint8_t>(d.from + 1);
  if (LoadWire<uint8_t>(d.from) != 9 || values > 2 || LoadWire<uint16_t>(d.from + 2) != 0) return;
  if (LoadWire<int64_t>(d.from + 4) != d.count) return;
  const uint32_t chunks = ChunksOf(d.count), value_bytes = ValueBytes(static_cast<SparseValues>(values));
  uint64_t at = kSparseHeader;
  for (uint32_t c = 0; c < chunks && c <= chunk; ++c) {
    if (d.bytes - at < kSparseHeader) return;
    const std::byte* const header = d.from + at;
    at += kSparseHeader;
    shared.entries = LoadWire<uint32_t>(header);
    shared.index_bytes = LoadWire<uint32_t>(header + 4);
    shared.code = LoadWire<uint8_t>(header + 8);
    shared.exponent = LoadWire<int8_t>(header + 10);
    if (shared.code >= kCodes || LoadWire<uint8_t>(header + 11) != 0) return;
    if (shared.exponent != 0 && values != static_cast<uint8_t>(SparseValues::kF16)) return;
    if (shared.entries > RangeOf(d.count, c)) return;
    if (d.bytes - at < shared.index_bytes + uint64_t{shared.entries} * value_bytes) return;
    shared.at = at;
    at += shared.index_bytes + uint64_t{shared.entries} * value_bytes;
    const bool plain = shared.code == kBlocksCode || shared.code == kBitmapCode;
    if (LoadWire<uint8_t>(header + 9) > (plain ? 0 : kMostParameter)) return;
    if (shared.code == kRiceCode && shared.entries == 0 && shared.index_bytes != 0) return;
  }
  if (chunk + 1 >= chunks && at != d.bytes) return;
  const bool empty = chunks == 0 || (shared.code == kRiceCode && shared.entries == 0);
  const bool read = empty || shared.code == kBlocksCode || shared.code == kBitmapCode;
  shared.fault = read ? kNoFault : kUnread;
}

// Calls body(i, position, whether it is its block's first) for each position of a chunk in 16-bit blocks, whose counts
// are in shared.places.
template <class Team, class Body>
GYRE_GPU void EachOfBlocks(Team& team, const std::byte* from, uint32_t blocks, DecodeShared<Team>& shared,
                           const Body& body) {
  team.Each([&](int thread) {
    for (auto i = static_cast<uint32_t>(thread); i < shared.entries; i += Team::kThreads) {
      const uint32_t block = LowerBound(shared.places, blocks + 1, uint64_t{i} + 1) - 1;  // the last that begins by i
      const auto offset = LoadWire<uint16_t>(from + (uint64_t{blocks} + i) * 2);
      body(i, block * kPositionBlock + offset, i == shared.places[block]);
    }
  });
}

// Where each block's positions begin; the last number: how many they are.
template <class Team>
GYRE_GPU void ReadCounts(Team& team, const std::byte* from, uint32_t blocks, DecodeShared<Team>& shared) {
  team.Each([&](int thread) {
    if (thread != 0) return;
    uint32_t sum = 0;
    for (uint32_t b = 0; b < blocks; ++b) {
      shared.places[b] = sum;
      sum += LoadWire<uint16_t>(from + uint64_t{b} * 2);
    }
    shared.places[blocks] = sum;
  });
}

// Calls body(i, position) for each position of a bitmap. Returns how many they are; bits from `range` on count, too.
template <class Team, class Body>
GYRE_GPU uint32_t EachOfBitmap(Team& team, const std::byte* from, uint32_t range, DecodeShared<Team>& shared,
                               const Body& body) {
  const uint32_t bytes = BitmapBytes(range), each = (bytes + Team::kThreads - 1) / Team::kThreads;
  const auto end_of = [&](int thread) {
    const uint32_t end = (static_cast<uint32_t>(thread) + 1) * each;
    return end < bytes ? end : bytes;
  };
  Local<Team, uint32_t> ranks;
  team.Do([&](int thread) {
    ranks[thread] = 0;
    for (uint32_t b = static_cast<uint32_t>(thread) * each; b < end_of(thread); ++b) {
      ranks[thread] += CountBits(static_cast<uint32_t>(from[b]));
    }
  });
  const uint32_t total = ExclusiveSum(team, ranks, shared.sum);
  team.Each([&](int thread) {
    uint32_t rank = ranks[thread];
    for (uint32_t b = static_cast<uint32_t>(thread) * each; b < end_of(thread); ++b) {
      for (uint32_t bit = 0; bit < 8; ++bit) {
        if ((static_cast<uint32_t>(from[b]) >> bit & 1u) != 0) body(rank++, b * 8 + bit);
      }
    }
  });
  return total;
}

// Raises the payload's fault by what is wrong with chunk `chunk`. Of a tensor without elements chunk 0 is checked, too.
template <class Team>
GYRE_GPU void CheckChunk(Team& team, const SparseDecoding& d, uint32_t chunk, DecodeShared<Team>& shared) {
  const uint32_t chunks = ChunksOf(d.count);
  if (chunk >= chunks && chunk != 0) return;
  team.Each([&](int thread) {
    if (thread == 0) FindChunk(d, chunk, shared);
  });
  if (shared.fault != kNoFault || chunks == 0 || shared.code == kRiceCode) {
    team.Each([&](int thread) {
      if (thread == 0) Team::RaiseTo(d.fault, shared.fault);
    });
    return;
  }
  const std::byte* const from = d.from + shared.at;
  const uint32_t range = RangeOf(d.count, chunk), entries = shared.entries, blocks = BlocksOf(range);
  if (shared.code == kBitmapCode) {
    bool good = shared.index_bytes == BitmapBytes(range);
    if (good) {
      const auto beyond = [&](uint32_t /*i*/, uint32_t position) {
        if (position >= range) Team::RaiseTo(d.fault, uint32_t{kDamaged});
      };
      good = EachOfBitmap(team, from, range, shared, beyond) == entries;
    }
    team.Each([&](int thread) {
      if (thread == 0 && !good) Team::RaiseTo(d.fault, uint32_t{kDamaged});
    });
    return;
  }
  bool good = shared.index_bytes == BlocksBytes(range, entries);
  if (good) {
    ReadCounts(team, from, blocks, shared);
    good = shared.places[blocks] == entries;
  }
  if (good) {
    EachOfBlocks(team, from, blocks, shared, [&](uint32_t i, uint32_t position, bool first) {
      const std::byte* const own = from + (uint64_t{blocks} + i) * 2;
      const bool ascends = first || LoadWire<uint16_t>(own - 2) < LoadWire<uint16_t>(own);
      if (!ascends || LoadWire<uint16_t>(own) >= kPositionBlock || position >= range) {
        Team::RaiseTo(d.fault, uint32_t{kDamaged});
      }
    });
  }
  team.Each([&](int thread) {
    if (thread == 0 && !good) Team::RaiseTo(d.fault, uint32_t{kDamaged});
  });
}

// Adds chunk `chunk`, after all were checked.
template <class Team>
GYRE_GPU void AddChunk(Team& team, const SparseDecoding& d, uint32_t chunk, DecodeShared<Team>& shared) {
  if (*d.fault != kNoFault || chunk >= ChunksOf(d.count)) return;
  team.Each([&](int thread) {
    if (thread == 0) FindChunk(d, chunk, shared);
  });
  const auto values = static_cast<SparseValues>(LoadWire<uint8_t>(d.from + 1));
  const std::byte* const from = d.from + shared.at;
  const std::byte* const coded = from + shared.index_bytes;
  const int exponent = shared.exponent;
  const uint32_t range = RangeOf(d.count, chunk);
  const auto add = [&](uint32_t i, uint32_t position) {
    float& sum = d.sum[int64_t{chunk} * kChunkElements + position];
    sum += d.scale * DecodeValue(values, coded + uint64_t{i} * ValueBytes(values), exponent);
  };
  if (shared.code == kBitmapCode) {
    EachOfBitmap(team, from, range, shared, add);
  } else if (shared.code == kBlocksCode) {
    ReadCounts(team, from, BlocksOf(range), shared);
    EachOfBlocks(team, from, BlocksOf(range), shared,
                 [&](uint32_t i, uint32_t position, bool /*first*/) { add(i, position); });
  }
}

}  // namespace gyre::device::kernels
