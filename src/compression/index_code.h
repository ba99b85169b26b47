// Sets of positions as bytes: which elements of a chunk a sparse payload carries. Formats: docs/wire_format.md.
//
// Pure functions; any thread may call them; nothing blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace gyre::compression {

// The numbers stand on the wire.
enum class IndexCode : uint8_t {
  kRice = 0,       // gaps, Golomb-Rice coded (Rice and Plaunt 1971): the smallest
  kBlocks16 = 1,   // 16 bits each, counted by blocks: the quickest to decode
  kEliasFano = 2,  // Elias 1974, Fano 1971: upper bits in unary, lower bits plain
  kBitmap = 3,     // a bit an element
};
inline constexpr int kIndexCodeCount = 4;

std::string_view IndexCodeName(IndexCode code);  // "rice", "blocks16", "elias-fano", "bitmap"

// The most elements that a chunk has, and so that positions are counted in.
inline constexpr uint32_t kMaxRange = uint32_t{1} << 22;

// The code's parameter for `count` positions among `range`: of Rice and Elias-Fano how many low bits stand plain; of
// the others 0.
int IndexParameter(IndexCode code, int64_t count, uint32_t range);

// Appends the positions to `out`. REQUIRES: they ascend strictly and are < range <= kMaxRange; `parameter` is what
// IndexParameter gives.
void EncodeIndices(IndexCode code, int parameter, std::span<const uint32_t> indices, uint32_t range,
                   std::vector<std::byte>& out);

// Reads as many positions as `indices` has room for; they are what was encoded. False if the bytes are anything but
// the encoding of as many ascending positions < range, to the last bit; `indices` is then undefined.
bool DecodeIndices(IndexCode code, int parameter, std::span<const std::byte> bytes, uint32_t range,
                   std::span<uint32_t> indices);

// Bytes that the code takes for `count` positions spread evenly; exact for all but kRice.
int64_t ExpectedBytes(IndexCode code, int64_t count, uint32_t range);

// The code with which `count` positions are soonest in the hands of a receiver: time on the wire at
// `link_bytes_per_second` (infinite for shared memory) and time to decode.
IndexCode ChooseIndexCode(int64_t count, uint32_t range, double link_bytes_per_second);

}  // namespace gyre::compression
