// Negotiation: how ranks that submit named operations in any order agree on one order to carry them out in. Here: what
// they tell each other. `Negotiator` is a rank's part, `Coordinator` the part that rank 0 has besides; both are pure
// state machines: whoever drives them carries messages and collectives, and tells the time.
//
// Modes take turns and are numbered: in even generations ranks report what was submitted and the coordinator decides
// what runs; in odd ones, after enough identical cycles, the order is frozen and nothing is said. A rank that cannot
// follow the frozen order makes another collective call in place of the next one, so that this call fails on every rank
// alike, before any data has changed: that ends the generation everywhere at the same call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/tensor.h"

namespace gyre::internal {

enum class NamedKind : uint8_t {
  kAllReduce = 1,
  kAllGather,
  kBroadcast,
  kRefused,  // what a rank announces in place of one with wrong arguments: it agrees with none
};

// What all ranks must agree on of a named operation; of an allgather, the count excepted.
struct NamedSignature {
  NamedKind kind = NamedKind::kAllReduce;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;  // of allreduce
  int32_t root = 0;              // of broadcast
  int64_t count = 0;             // elements: this rank's input
  double prescale = 1.0;
  double postscale = 1.0;
  uint64_t group = 0;  // of the names of its group, in order; 0: it is in none
  int32_t group_size = 1;
  int32_t group_index = 0;
  bool on_gpu = false;  // where the tensors are; else on the host
};

// Whether two ranks mean the same operation.
bool Agree(const NamedSignature& one, const NamedSignature& other);

// "allreduce(f32, 1000 elements, sum)", with all that could differ.
std::string Describe(const NamedSignature& signature);

// The name in quotes, and its description.
std::string Quoted(const std::string& name, const NamedSignature& signature);

// Identifies a group by its names, in order; never 0.
uint64_t GroupOf(const std::vector<std::string>& names);

// An operation that all ranks have agreed on.
struct NamedCall {
  std::string name{};
  NamedSignature signature{};
  std::vector<int64_t> counts{};  // of allgather: elements by rank
};

// Depends on all of the call, and not on the process.
uint64_t HashOf(const NamedCall& call);

// --- From every rank to the coordinator ---

struct Announcement {
  std::string name{};
  NamedSignature signature{};
  int64_t left_us = 0;  // until its deadline, when it was sent
};

struct Report {
  uint64_t generation = 0;
  std::vector<Announcement> announcements{};
  bool join = false;           // this rank has run out of data
  bool leave = false;          // this rank ends its part for good
  bool goodbye = false;        // the last message of this rank
  bool stalled = false;        // frozen call number `position` has waited for too long, or is not followed
  uint64_t position = 0;       // frozen calls that this rank has carried out in this generation, or the last
  uint64_t frozen_cycles = 0;  // after a thaw: how many cycles the frozen order had served
  std::string deviation{};     // why this rank does not, or did not, follow; or empty
};

std::string Encode(const Report& report);
absl::StatusOr<Report> DecodeReport(std::string_view bytes);  // kDataLoss

// --- From the coordinator to every rank, all of them the same and in the same order ---

enum class DecisionKind : uint8_t {
  kRun = 1,    // carry out name; `ranks` have joined and contribute nothing
  kFail,       // on `ranks`, the operation `name` ends with `code` and `text`
  kJoined,     // all ranks have joined, ranks[0] last
  kFreeze,     // from now on the last cycle repeats; `number` is its hash
  kStall,      // frozen call `number` has waited for too long (no text), or is not followed: `text` says why
  kDeviation,  // `text`: who left the frozen order, and how
  kLeft,       // ranks[0] has left: nothing follows. `text`: how, if it did not report it
};

struct Decision {
  DecisionKind kind = DecisionKind::kRun;
  uint64_t generation = 0;
  std::string name{};
  NamedSignature signature{};
  std::vector<int64_t> counts{};
  std::vector<int32_t> ranks{};
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string text{};
  uint64_t number = 0;
};

std::string Encode(const std::vector<Decision>& decisions);
absl::StatusOr<std::vector<Decision>> DecodeDecisions(std::string_view bytes);  // kDataLoss

}  // namespace gyre::internal
