// Sparse payloads (docs/wire_format.md, kind 9) written on the GPU: positions as 16-bit blocks or, where that is
// smaller, as a bitmap; a chunk of 2^22 elements a block of threads. Rice's and Elias and Fano's codes, which go bit by
// bit, are left to the CPU. With these codes, compression::EncodeSparse writes the same bytes.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/kernels/element.h"
#include "device/kernels/team.h"

namespace gyre::device::kernels {

constexpr uint32_t kChunkElements = 1u << 22;
constexpr uint32_t kPositionBlock = 65535;                                      // positions that one u16 counts
constexpr uint32_t kSparseHeader = 12;                                          // of the payload, and of each chunk
constexpr uint8_t kRiceCode = 0, kBlocksCode = 1, kBitmapCode = 3, kCodes = 4;  // Rice's: of chunks without entries

// How values stand on the wire, by the numbers there.
enum class SparseValues : uint8_t { kF32 = 0, kF16 = 1, kBF16 = 2 };

// One tensor's chosen elements, all on the GPU.
struct SparseEncoding {
  const uint32_t* indices;   // ascending, < count
  float* values;             // become what receivers do not get of them
  const uint32_t* selected;  // how many
  int64_t count;             // elements of the tensor
  float* residual;           // null, or the tensor where values rounded to 16 bits leave their errors
  std::byte* out;            // the payload
  uint64_t* bytes;           // its size
};

// On the wire nothing is aligned.
template <typename T>
GYRE_GPU T LoadWire(const std::byte* from) {
  T value;
  memcpy(&value, from, sizeof(T));
  return value;
}
template <typename T>
GYRE_GPU void StoreWire(std::byte* to, T value) {
  memcpy(to, &value, sizeof(T));
}

GYRE_GPU inline uint32_t ChunksOf(int64_t count) {
  return static_cast<uint32_t>((count + kChunkElements - 1) / kChunkElements);
}
GYRE_GPU inline uint32_t RangeOf(int64_t count, uint32_t chunk) {
  const int64_t left = count - int64_t{chunk} * kChunkElements;
  return left < int64_t{kChunkElements} ? static_cast<uint32_t>(left) : kChunkElements;
}
GYRE_GPU inline uint32_t BlocksOf(uint32_t range) {
  return (range + kPositionBlock - 1) / kPositionBlock;
}
GYRE_GPU inline uint32_t BlocksBytes(uint32_t range, uint32_t entries) {
  return 2 * (BlocksOf(range) + entries);
}
GYRE_GPU inline uint32_t BitmapBytes(uint32_t range) {
  return (range + 7) / 8;
}
GYRE_GPU inline uint8_t CodeOf(uint32_t range, uint32_t entries) {
  if (entries == 0) return kRiceCode;
  return BitmapBytes(range) < BlocksBytes(range, entries) ? kBitmapCode : kBlocksCode;
}
GYRE_GPU inline uint32_t PositionBytes(uint32_t range, uint32_t entries) {
  if (entries == 0) return 0;
  return CodeOf(range, entries) == kBitmapCode ? BitmapBytes(range) : BlocksBytes(range, entries);
}
GYRE_GPU inline uint32_t ValueBytes(SparseValues values) {
  return values == SparseValues::kF32 ? 4 : 2;
}

// The first of `count` ascending numbers that is not below `least`.
GYRE_GPU inline uint32_t LowerBound(const uint32_t* numbers, uint32_t count, uint64_t least) {
  uint32_t low = 0, high = count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (numbers[middle] < least) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

template <class Team>
struct EncodeShared {
  SumShared<Team> sum;
  uint32_t largest;  // magnitude of a chunk's finite values, as a key
};

// BFloat16's conversion, which unlike BrainElement's lets large numbers become infinite.
GYRE_GPU inline uint16_t RoundToBrain(float value) {
  const uint32_t bits = Bits(value);
  if ((bits & 0x7fffffffu) > kInfinityBits) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// The power of two by which the largest value lies in [2^14, 2^15): no half becomes infinite by rounding.
GYRE_GPU inline int ScaleExponent(SparseValues values, uint32_t largest) {
  if (values != SparseValues::kF16 || largest == 0) return 0;
  const int exponent =
      (largest >> 23 != 0 ? static_cast<int>(largest >> 23) - 127 : static_cast<int>(std::bit_width(largest)) - 150) -
      14;
  return exponent < -128 ? -128 : exponent;
}

// Writes a value; returns what receivers do not get of it.
GYRE_GPU inline float EncodeValue(SparseValues values, float value, int exponent, std::byte* to) {
  if (values == SparseValues::kF32) {
    StoreWire(to, value);
    return 0;
  }
  float error;
  if (values == SparseValues::kF16) {
    const uint16_t half = HalfElement::Store(ldexpf(value, -exponent));
    StoreWire(to, half);
    error = value - HalfElement::Load(half) * ldexpf(1.0f, exponent);
  } else {
    const uint16_t brain = RoundToBrain(value);
    StoreWire(to, brain);
    error = value - BrainElement::Load(brain);
  }
  return (Bits(error) & kInfinityBits) == kInfinityBits ? 0.0f : error;
}

// Positions `indices`, of a chunk that begins at element `base`, in 16-bit blocks.
template <class Team>
GYRE_GPU void WriteBlocks(Team& team, const uint32_t* indices, uint32_t entries, uint64_t base, uint32_t range,
                          std::byte* out) {
  const uint32_t blocks = BlocksOf(range);
  team.Each([&](int thread) {
    for (auto b = static_cast<uint32_t>(thread); b < blocks; b += Team::kThreads) {
      const uint32_t begin = LowerBound(indices, entries, base + uint64_t{b} * kPositionBlock);
      const uint32_t end = LowerBound(indices, entries, base + uint64_t{b + 1} * kPositionBlock);
      StoreWire(out + uint64_t{b} * 2, static_cast<uint16_t>(end - begin));
    }
    for (auto i = static_cast<uint32_t>(thread); i < entries; i += Team::kThreads) {
      const auto position = static_cast<uint32_t>(indices[i] - base);
      StoreWire(out + (uint64_t{blocks} + i) * 2, static_cast<uint16_t>(position % kPositionBlock));
    }
  });
}

// The same as a bitmap. Each thread has bytes of its own.
template <class Team>
GYRE_GPU void WriteBitmap(Team& team, const uint32_t* indices, uint32_t entries, uint64_t base, uint32_t range,
                          std::byte* out) {
  const uint32_t bytes = BitmapBytes(range), each = (bytes + Team::kThreads - 1) / Team::kThreads;
  team.Each([&](int thread) {
    const uint32_t begin = static_cast<uint32_t>(thread) * each;
    const uint32_t end = begin + each < bytes ? begin + each : bytes;
    if (begin >= end) return;
    uint32_t i = LowerBound(indices, entries, base + uint64_t{begin} * 8);
    for (uint32_t byte = begin; byte < end; ++byte) {
      uint32_t bits = 0;
      for (; i < entries && (indices[i] - base) / 8 == byte; ++i) bits |= 1u << ((indices[i] - base) % 8);
      out[byte] = static_cast<std::byte>(bits);
    }
  });
}

GYRE_GPU inline void StoreChunkHeader(std::byte* to, uint32_t entries, uint32_t index_bytes, uint8_t code,
                                      int exponent) {
  StoreWire(to, entries);
  StoreWire(to + 4, index_bytes);
  StoreWire(to + 8, code);
  StoreWire(to + 9, uint8_t{0});
  StoreWire(to + 10, static_cast<int8_t>(exponent));
  StoreWire(to + 11, uint8_t{0});
}

// Chunk `chunk` of a payload, and with chunk 0 its header; with the last one its size. A tensor without elements has
// one chunk for that.
template <class Team>
GYRE_GPU void EncodeChunk(Team& team, const SparseEncoding& e, SparseValues values, uint32_t chunk,
                          EncodeShared<Team>& shared) {
  const uint32_t chunks = ChunksOf(e.count);
  if (chunk >= chunks && chunk != 0) return;
  const uint32_t selected = *e.selected;
  const auto bound = [&](uint32_t c) { return LowerBound(e.indices, selected, uint64_t{c} * kChunkElements); };
  Local<Team, uint32_t> sizes;
  team.Do([&](int thread) {
    sizes[thread] = 0;
    for (auto c = static_cast<uint32_t>(thread); c < chunk; c += Team::kThreads) {
      const uint32_t entries = bound(c + 1) - bound(c);
      sizes[thread] += kSparseHeader + PositionBytes(RangeOf(e.count, c), entries) + entries * ValueBytes(values);
    }
  });
  const uint64_t at = kSparseHeader + uint64_t{ExclusiveSum(team, sizes, shared.sum)};
  const uint32_t begin = bound(chunk), entries = bound(chunk + 1) - begin;
  const uint64_t base = uint64_t{chunk} * kChunkElements;
  const uint32_t range = chunks == 0 ? 0 : RangeOf(e.count, chunk);
  const uint32_t index_bytes = PositionBytes(range, entries);
  team.Each([&](int thread) {
    if (thread == 0) shared.largest = 0;
  });
  team.Each([&](int thread) {
    uint32_t largest = 0;
    for (auto i = static_cast<uint32_t>(thread); i < entries; i += Team::kThreads) {
      const uint32_t key = Key(e.values[begin + i]);
      largest = key < kInfinityBits && key > largest ? key : largest;
    }
    Team::RaiseTo(&shared.largest, largest);
  });
  const int exponent = ScaleExponent(values, shared.largest);
  std::byte* const positions = e.out + at + kSparseHeader;
  team.Each([&](int thread) {
    std::byte* const to = positions + index_bytes;
    for (auto i = static_cast<uint32_t>(thread); i < entries; i += Team::kThreads) {
      const uint32_t place = begin + i;
      const float error = EncodeValue(values, e.values[place], exponent, to + uint64_t{i} * ValueBytes(values));
      e.values[place] = error;
      if (e.residual != nullptr && values != SparseValues::kF32) e.residual[e.indices[place]] = error;
    }
    if (thread != 0) return;
    if (chunk == 0) {
      StoreWire(e.out, uint8_t{9});
      StoreWire(e.out + 1, values);
      StoreWire(e.out + 2, uint16_t{0});
      StoreWire(e.out + 4, e.count);
    }
    if (chunks != 0) StoreChunkHeader(e.out + at, entries, index_bytes, CodeOf(range, entries), exponent);
    if (chunk + 1 >= chunks) {
      *e.bytes = chunks == 0 ? at : at + kSparseHeader + index_bytes + uint64_t{entries} * ValueBytes(values);
    }
  });
  if (entries == 0) return;
  if (CodeOf(range, entries) == kBitmapCode) {
    WriteBitmap(team, e.indices + begin, entries, base, range, positions);
  } else {
    WriteBlocks(team, e.indices + begin, entries, base, range, positions);
  }
}

}  // namespace gyre::device::kernels
