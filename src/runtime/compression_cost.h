// What it takes to sum a part of the gradients over hosts, dense and compressed: what the compressor chooses by. Pure.
#pragma once

#include <cstdint>

#include "gyre/compression.h"

namespace gyre::internal {

// Seconds for one gradient element on one core.
struct CodecSpeed {
  double encode = 0;
  double decode = 0;
};

// More ranks than these add up sparse payloads by regions, each its own, rather than all of all: then what a rank
// receives does not grow with their number.
inline constexpr int kMostGathered = 32;

struct NetworkShape {
  int hosts = 1;
  int ranks = 1;
  int most_local = 1;  // ranks of the largest host, which share its port
  int most_gathered = kMostGathered;
  int encoders = 1;                  // ranks that encode a gradient together, each its piece
  double latency = 20e-6;            // seconds, one way
  double bytes_per_second = 1.25e9;  // of a host's port, each way
};

// Whether the codec sends few elements whole.
bool IsSparse(const Compression& compression);

// A payload's bytes over those of floats: of PowerSgd, of a matrix of that shape.
double PayloadShare(const Compression& compression, int64_t rows, int64_t columns);

// Of a part with `covered` elements that the codec takes, `share` of whose bytes are left, and `plain` that go along.
double CompressedSeconds(const Compression& compression, int64_t covered, int64_t plain, double share,
                         const CodecSpeed& speed, const NetworkShape& network);

// Whether what goes compressed now, or dense, is to be compressed from now on: a tenth is no reason for a change.
bool StaysOrTurnsCompressed(bool compressed_now, double compressed_seconds, double dense_seconds);

// What this machine takes, on noise of some 2^17 elements: a few milliseconds.
CodecSpeed MeasureSpeed(const Compression& compression);

}  // namespace gyre::internal
