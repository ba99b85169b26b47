#include "compression/index_code.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace gyre::compression {

namespace {

// A count of a block's positions fits in 16 bits only if a full block has one less than 2^16.
constexpr uint32_t kBlock = 65535;

constexpr int64_t BytesOf(int64_t bits) {
  return (bits + 7) / 8;
}

constexpr uint32_t BlocksOf(uint32_t range) {
  return (range + kBlock - 1) / kBlock;
}

// Up to 8 bytes from `at`, what lies beyond the end as zeros.
uint64_t LoadWord(std::span<const std::byte> bytes, size_t at) {
  uint64_t word = 0;
  if (at + 8 <= bytes.size()) [[likely]] {
    std::memcpy(&word, bytes.data() + at, 8);
  } else if (at < bytes.size()) {
    std::memcpy(&word, bytes.data() + at, bytes.size() - at);
  }
  return word;
}

// Writes bits, lowest first, without branches. The memory must reach 8 bytes beyond the last bit.
class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : begin_(out), at_(out) {}

  // The lowest `length` bits of `bits`, the others being 0. REQUIRES: length <= 56
  void Put(uint64_t bits, uint32_t length) {
    pending_ |= bits << used_;
    used_ += length;
    std::memcpy(at_, &pending_, 8);
    at_ += used_ >> 3;
    pending_ >>= used_ & 56;
    used_ &= 7;
  }

  int64_t bytes() const { return (at_ - begin_) + (used_ != 0 ? 1 : 0); }

 private:
  std::byte* begin_;
  std::byte* at_;
  uint64_t pending_ = 0;
  uint32_t used_ = 0;  // < 8 between calls
};

// Expected quotient of gaps that are geometrically distributed, as those of positions spread evenly are.
double MeanQuotient(int low_bits, double mean_gap) {
  return 1 / std::expm1(std::ldexp(1.0, low_bits) / mean_gap);
}

int RiceParameter(int64_t count, uint32_t range) {
  const double mean_gap = static_cast<double>(range) / static_cast<double>(std::max<int64_t>(count, 1));
  int best = 0;
  for (int low = 1; (uint32_t{1} << low) <= range; ++low) {
    if (low + MeanQuotient(low, mean_gap) < best + MeanQuotient(best, mean_gap)) best = low;
  }
  return best;
}

// A gap's code is its quotient in unary (zeros, then a one) and then its low bits.
int64_t EncodeRice(std::span<const uint32_t> indices, int low_bits, std::byte* out) {
  constexpr uint32_t kLongRun = 24;
  const auto low = static_cast<uint32_t>(low_bits);
  const uint32_t mask = (uint32_t{1} << low) - 1;
  BitWriter writer(out);
  uint32_t next = 0;
  for (const uint32_t index : indices) {
    const uint32_t gap = index - next;
    next = index + 1;
    uint32_t quotient = gap >> low;
    while (quotient > kLongRun) [[unlikely]] {
        writer.Put(0, kLongRun);
        quotient -= kLongRun;
      }
    writer.Put((uint64_t{gap & mask} << 1 | 1) << quotient, quotient + 1 + low);
  }
  return writer.bytes();
}

// Adds the zeros up to the next one to `quotient` and moves `position` there. False at the end of the bytes.
bool SkipZeros(std::span<const std::byte> bytes, uint64_t& position, uint64_t& quotient) {
  while (position < bytes.size() * 8) {
    const uint64_t word = LoadWord(bytes, position >> 3) >> (position & 7);
    const auto zeros = static_cast<uint64_t>(std::countr_zero(word));
    if (word != 0) {
      quotient += zeros;
      position += zeros;
      return true;
    }
    const uint64_t seen = 64 - (position & 7);
    quotient += seen;
    position += seen;
  }
  return false;
}

bool DecodeRice(std::span<const std::byte> bytes, int low_bits, uint32_t range, std::span<uint32_t> indices) {
  constexpr uint64_t kQuick = uint64_t{1} << 32;  // the one of a short quotient lies below
  const auto low = static_cast<uint64_t>(low_bits);
  const uint64_t mask = (uint64_t{1} << low) - 1;
  uint64_t position = 0, next = 0;
  for (uint32_t& index : indices) {
    uint64_t word = LoadWord(bytes, position >> 3) >> (position & 7);
    auto quotient = static_cast<uint64_t>(std::countr_zero(word | kQuick));
    if ((word & (kQuick - 1)) == 0) [[unlikely]] {
      quotient = 0;
      if (!SkipZeros(bytes, position, quotient)) return false;
      word = LoadWord(bytes, position >> 3) >> (position & 7);
      position += 1 + low;
      next += quotient << low | (word >> 1 & mask);
    } else {
      position += quotient + 1 + low;
      next += quotient << low | (word >> (quotient + 1) & mask);
    }
    if (next >= range) return false;
    index = static_cast<uint32_t>(next++);
  }
  return bytes.size() == (position + 7) / 8 &&
         (position % 8 == 0 || LoadWord(bytes, position / 8) >> (position % 8) == 0);
}

void EncodeBlocks(std::span<const uint32_t> indices, uint32_t range, std::byte* out) {
  std::byte* to = out + BlocksOf(range) * sizeof(uint16_t);
  auto at = indices.begin();
  for (uint32_t block = 0; block < BlocksOf(range); ++block) {
    const auto begin = at;
    const uint32_t base = block * kBlock;
    for (; at != indices.end() && *at - base < kBlock; ++at, to += sizeof(uint16_t)) {
      const auto offset = static_cast<uint16_t>(*at - base);
      std::memcpy(to, &offset, sizeof(offset));
    }
    const auto count = static_cast<uint16_t>(at - begin);
    std::memcpy(out + block * sizeof(count), &count, sizeof(count));
  }
}

bool DecodeBlocks(std::span<const std::byte> bytes, uint32_t range, std::span<uint32_t> indices) {
  if (bytes.size() != BlocksOf(range) * sizeof(uint16_t) + indices.size() * sizeof(uint16_t)) return false;
  const std::byte* from = bytes.data() + BlocksOf(range) * sizeof(uint16_t);
  size_t done = 0;
  for (uint32_t block = 0; block < BlocksOf(range); ++block) {
    uint16_t count;
    std::memcpy(&count, bytes.data() + block * sizeof(count), sizeof(count));
    if (count > indices.size() - done) return false;
    const uint32_t base = block * kBlock, end = std::min(base + kBlock, range);
    bool ascending = true;
    for (size_t i = 0; i < count; ++i) {
      uint16_t offset;
      std::memcpy(&offset, from + (done + i) * sizeof(offset), sizeof(offset));
      indices[done + i] = base + offset;
    }
    for (size_t i = 1; i < count; ++i) ascending &= indices[done + i - 1] < indices[done + i];
    if (!ascending || (count > 0 && indices[done + count - 1] >= end)) return false;
    done += count;
  }
  return done == indices.size();
}

// Of Elias-Fano: bytes of the lower part and of the upper.
struct Parts {
  int64_t low, high;
};
Parts EliasFanoParts(int64_t count, int low_bits, uint32_t range) {
  return {BytesOf(count * low_bits), BytesOf(count + (range >> low_bits) + 1)};
}

void EncodeEliasFano(std::span<const uint32_t> indices, int low_bits, uint32_t range, std::byte* out) {
  const Parts parts = EliasFanoParts(static_cast<int64_t>(indices.size()), low_bits, range);
  const uint32_t mask = (uint32_t{1} << low_bits) - 1;
  BitWriter writer(out);
  for (const uint32_t index : indices) writer.Put(index & mask, static_cast<uint32_t>(low_bits));
  std::byte* const high = out + parts.low;
  std::memset(high, 0, static_cast<size_t>(parts.high));  // the writer reaches beyond its end
  for (size_t i = 0; i < indices.size(); ++i) {
    const size_t bit = (indices[i] >> low_bits) + i;
    high[bit / 8] |= std::byte{1} << (bit % 8);
  }
}

bool DecodeEliasFano(std::span<const std::byte> bytes, int low_bits, uint32_t range, std::span<uint32_t> indices) {
  const Parts parts = EliasFanoParts(static_cast<int64_t>(indices.size()), low_bits, range);
  if (static_cast<int64_t>(bytes.size()) != parts.low + parts.high) return false;
  const auto low = bytes.first(static_cast<size_t>(parts.low)), high = bytes.subspan(static_cast<size_t>(parts.low));
  const auto width = static_cast<uint64_t>(low_bits);
  const uint64_t mask = (uint64_t{1} << width) - 1;
  size_t done = 0;
  uint64_t position = 0, least = 0;
  for (size_t at = 0; at < high.size(); at += 8) {
    for (uint64_t word = LoadWord(high, at); word != 0; word &= word - 1) {
      if (done == indices.size()) return false;
      const uint64_t upper = at * 8 + static_cast<uint64_t>(std::countr_zero(word)) - done;
      const uint64_t index = upper << width | (LoadWord(low, position >> 3) >> (position & 7) & mask);
      position += width;
      if (index < least || index >= range) return false;
      least = index + 1;
      indices[done++] = static_cast<uint32_t>(index);
    }
  }
  const bool clean = position % 8 == 0 || LoadWord(low, position / 8) >> (position % 8) == 0;
  return clean && done == indices.size();
}

bool DecodeBitmap(std::span<const std::byte> bytes, uint32_t range, std::span<uint32_t> indices) {
  if (static_cast<int64_t>(bytes.size()) != BytesOf(range)) return false;
  size_t done = 0;
  for (size_t at = 0; at < bytes.size(); at += 8) {
    for (uint64_t word = LoadWord(bytes, at); word != 0; word &= word - 1) {
      const auto index = static_cast<uint32_t>(at * 8) + static_cast<uint32_t>(std::countr_zero(word));
      if (done == indices.size() || index >= range) return false;
      indices[done++] = index;
    }
  }
  return done == indices.size();
}

// Nanoseconds to decode on one core, a position each; measured by `gyre-bench compression --methods index-codes`.
double DecodeNanoseconds(IndexCode code, int64_t count, uint32_t range) {
  const auto positions = static_cast<double>(count);
  switch (code) {
    case IndexCode::kRice: return 2.4 * positions;
    case IndexCode::kBlocks16: return 0.5 * positions;
    case IndexCode::kEliasFano: return 1.6 * positions;
    case IndexCode::kBitmap: return 1.0 * positions + 0.01 * range;
  }
  return 0;
}

}  // namespace

std::string_view IndexCodeName(IndexCode code) {
  constexpr std::string_view kNames[kIndexCodeCount] = {"rice", "blocks16", "elias-fano", "bitmap"};
  return kNames[static_cast<int>(code)];
}

int IndexParameter(IndexCode code, int64_t count, uint32_t range) {
  if (code == IndexCode::kRice) return RiceParameter(count, range);
  if (code != IndexCode::kEliasFano || count == 0) return 0;
  return std::bit_width(static_cast<uint64_t>(range / count) | 1) - 1;
}

void EncodeIndices(IndexCode code, int parameter, std::span<const uint32_t> indices, uint32_t range,
                   std::vector<std::byte>& out) {
  constexpr size_t kSlack = 8;  // BitWriter stores words
  const auto count = static_cast<int64_t>(indices.size());
  const size_t begin = out.size();
  if (code == IndexCode::kRice) {
    const int64_t most = BytesOf(count * (parameter + 1) + (range >> parameter));
    out.resize(begin + static_cast<size_t>(most) + kSlack);
    const int64_t bytes = EncodeRice(indices, parameter, out.data() + begin);
    return out.resize(begin + static_cast<size_t>(bytes));
  }
  const size_t bytes = static_cast<size_t>(ExpectedBytes(code, count, range));
  out.resize(begin + bytes + kSlack);
  if (code == IndexCode::kBlocks16) EncodeBlocks(indices, range, out.data() + begin);
  if (code == IndexCode::kEliasFano) EncodeEliasFano(indices, parameter, range, out.data() + begin);
  if (code == IndexCode::kBitmap) {
    for (const uint32_t index : indices) out[begin + index / 8] |= std::byte{1} << (index % 8);
  }
  out.resize(begin + bytes);
}

bool DecodeIndices(IndexCode code, int parameter, std::span<const std::byte> bytes, uint32_t range,
                   std::span<uint32_t> indices) {
  if (range > kMaxRange || indices.size() > range) return false;
  constexpr int kMaxParameter = std::bit_width(kMaxRange);
  const bool parametric = code == IndexCode::kRice || code == IndexCode::kEliasFano;
  if (parameter < 0 || parameter > (parametric ? kMaxParameter : 0)) return false;
  switch (code) {
    case IndexCode::kRice: return DecodeRice(bytes, parameter, range, indices);
    case IndexCode::kBlocks16: return DecodeBlocks(bytes, range, indices);
    case IndexCode::kEliasFano: return DecodeEliasFano(bytes, parameter, range, indices);
    case IndexCode::kBitmap: return DecodeBitmap(bytes, range, indices);
  }
  return false;
}

int64_t ExpectedBytes(IndexCode code, int64_t count, uint32_t range) {
  switch (code) {
    case IndexCode::kRice: {
      if (count == 0) return 0;
      const int low = RiceParameter(count, range);
      const double mean_gap = static_cast<double>(range) / static_cast<double>(count);
      return BytesOf(std::llround(static_cast<double>(count) * (1 + low + MeanQuotient(low, mean_gap))));
    }
    case IndexCode::kBlocks16: return (BlocksOf(range) + count) * 2;
    case IndexCode::kEliasFano: {
      const Parts parts = EliasFanoParts(count, IndexParameter(code, count, range), range);
      return parts.low + parts.high;
    }
    case IndexCode::kBitmap: return BytesOf(range);
  }
  return 0;
}

IndexCode ChooseIndexCode(int64_t count, uint32_t range, double link_bytes_per_second) {
  auto best = IndexCode::kRice;
  double least = INFINITY;
  for (int i = 0; i < kIndexCodeCount; ++i) {
    const auto code = static_cast<IndexCode>(i);
    const double wire = static_cast<double>(ExpectedBytes(code, count, range)) / link_bytes_per_second;
    // One payload is decoded while the next arrives: the slower of the two counts, and the other where they meet.
    const double decoding = DecodeNanoseconds(code, count, range) * 1e-9;
    const double time = std::max(wire, decoding) + 0.1 * std::min(wire, decoding);
    if (time < least) {
      least = time;
      best = code;
    }
  }
  return best;
}

}  // namespace gyre::compression
