// What the link between two hosts does, measured in a few milliseconds by the two ranks at its ends.
#pragma once

#include <optional>
#include <span>

#include "base/clock.h"
#include "transport/streams.h"

namespace gyre::internal {

struct LinkFit {
  double latency = 0;           // seconds, one way: half of the shortest of some round trips
  double bytes_per_second = 0;  // one way, by the fastest of some transfers behind the first MiB
};

// Both ranks call it, for a pair of streams that nothing else uses; one of them `leads`, and is given the result. A
// round trip is of eight bytes, a transfer of 64 KiB, or of 512 KiB where those take no longer than a few ms.
// Blocks, about 60 ms at most on a link that works (or the time of 128 KiB, where that is longer), and never beyond
// `deadline`. Empty: the stream ended, the peer did not keep to this, or the time was up: whoever needs the link will
// find out.
std::optional<LinkFit> LeadLinkFit(Streams& streams, int peer, TimePoint deadline);
void FollowLinkFit(Streams& streams, int peer, TimePoint deadline);

// All of the ranks call it, each for the others, over streams that nothing else uses: eight bytes go each way. The
// first peer that was not reached or has not been heard of by `deadline`; empty: none. Blocks.
std::optional<int> FindUnreached(Streams& streams, std::span<const int> peers, TimePoint deadline);

// Bytes a second that one rank reduces of what arrives, by the fastest of a few times; about a millisecond.
double MeasureReduction();

}  // namespace gyre::internal
