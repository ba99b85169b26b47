// What a collective costs in time, on a network that has no clock but this: its schedules, event by event. The ranks'
// schedules are those that the executor runs; no data move, so that there may be many ranks.
//
// Every rank has one port that sends and one that receives, at the same time; each carries one piece after the other,
// in the order in which they could go. A block goes in pieces of `grain` bytes, and a piece is sent on as soon as it is
// there, as the executor does; streams to several peers take turns piece by piece. A piece is on its way for the
// latency, and takes both ports for its bytes' time: B bytes on an idle link take latency + B / bytes_per_second. One
// core of each rank reduces, beside that. Streams hold whatever is sent, and the wires between the ports suffice for
// all: of a network that is not congested, this is the price; of one that is, the least.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/schedule/schedule.h"
#include "transport/link_model.h"

namespace gyre::internal {

struct PriceModel {
  sim::LinkModel link{};                                                      // the latency must be positive
  double reduced_bytes_per_second = std::numeric_limits<double>::infinity();  // of what arrives
  int64_t header_bytes = 64;                                                  // before each block: kStepHeaderBytes
  int64_t grain = 64 << 10;  // bytes of a block that are sent at once: kGrainBytes
};

struct Price {
  double seconds = 0;         // until the last rank has ended
  std::vector<double> ended;  // by rank; by symmetry, of the one for all
  bool extrapolated = false;  // to longer blocks than were gone through
  int64_t pieces = 0;         // what was gone through: those of all ranks, or of the one for all
};

using LinkFunction = std::function<sim::LinkModel(int from, int to)>;

// `programs`: every rank's schedule. `block_bytes`: the sizes of their blocks, the same for all ranks. `links`: instead
// of the model's, where they differ. Pure; time and memory grow with the pieces of all ranks: a million take a second.
// kInvalidArgument: the model makes no sense, or the schedules fit neither each other nor the sizes, or wait for each
// other in a circle.
absl::StatusOr<Price> PriceOf(std::span<const Schedule> programs, std::span<const int64_t> block_bytes,
                              const PriceModel& model, const LinkFunction& links = {});

// The same to the bit, of schedules that one rank's stands for (symmetry.h), with blocks of one size: goes through
// rank 0's steps alone. Without symmetry, goes through those of all ranks; where that were more than `most_pieces`, it
// takes shorter blocks of two lengths, and what more bytes cost from there on, which is right to 5 %.
// kInvalidArgument: as above; or all ranks would be needed, and their steps are too many.
absl::StatusOr<Price> PriceOfAlike(const std::function<Schedule(int rank)>& make, int size, int64_t block_bytes,
                                   const PriceModel& model, int64_t most_pieces = 4'000'000);

}  // namespace gyre::internal
