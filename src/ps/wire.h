// The messages between workers and servers: payloads of frames (net/framing.h). docs/wire_format.md has the layouts,
// docs/parameter_server.md what they are for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "net/bytes.h"
#include "ps/floats.h"

namespace gyre::ps {

enum class Kind : uint8_t {
  kHello = 1,      // worker: here I am; `join`, or only asks where the server stands
  kWelcome = 2,    // server: where each partition stands
  kRefuse = 3,     // server: not you, because
  kInit = 4,       // worker: a partition's first values
  kPush = 5,       // worker: a gradient
  kAck = 6,        // server: what is awaited next
  kPull = 7,       // worker: asks for values, for step `clock`
  kValues = 8,     // server: they
  kHeartbeat = 9,  // worker
  kPulse = 10,     // server
  kUnknown = 11,   // server: say hello first
  kPullRows = 20,  // worker: asks for rows of a table, for step `clock`
  kRows = 21,      // server: they
  // Between servers (ps/replica.h):
  kFetch = 22,    // asks for a piece of a state
  kPiece = 23,    // it
  kForward = 24,  // to the next one: a change of the state
  kConfirm = 25,  // from the next one: it has all changes up to there
};

// Sequences and clocks are steps, from 0, below this.
inline constexpr uint64_t kMostSteps = uint64_t{1} << 62;

// What has changed in a server's state.
enum class Entry : uint8_t {
  kNone = 0,     // nothing: here I am
  kPush = 1,     // a worker's push was taken
  kSettled = 2,  // a worker's push was settled without its gradient
  kAdvance = 3,  // the steps before one were applied
  kRoster = 4,   // workers have come or gone
};

// One struct for all; each kind uses the fields it needs. Views point at what the message was made of, or decoded from.
struct Message {
  Kind kind = Kind::kHello;
  uint64_t epoch = 0;        // the job's
  uint64_t incarnation = 0;  // the sender's: how often its process was started, from 1
  uint64_t to = 0;           // from servers: the incarnation of whom it is for; 0, between servers: whoever is there
  uint64_t layout = 0;       // Hello: Layout::fingerprint
  bool flag = false;         // Hello: joins. Welcome: pushes are taken. Refuse: another process has its place
  bool member = false;       // Welcome: the worker belongs. Hello: it has had values of this server, in any life
  uint32_t slot = 0;         // Init, Push, Ack, Pull, Values: which of the server's partitions
  uint64_t from = 0;         // Push: the sender's steps from here up to `sequence` had no push
  uint64_t sequence = 0;     // Push: of which step. Ack: which is awaited next. PullRows, Rows: which question
  uint64_t clock = 0;   // Pull, Values, PullRows, Rows: for which step. Hello, Heartbeat: not awaited before this one
  int32_t worker = -1;  // Pulse: whom the clock waits for, or -1
  float rate = 0;       // Push: the learning rate of its step; servers without a rule do not look at it
  uint32_t packed = 0;  // Push, Values: of `values` so many bytes are a payload; 0: they are float32
  // Init, Push, Values, Rows: float32, or a payload (compression/codec.h) in whole floats. Of a table: as ps/rows.h
  // says. PullRows: ids
  Bytes values{};
  Floats keeper{};          // what `values` are in, where they may be kept without a copy; empty: copy them
  std::string_view text{};  // Refuse, Piece, Forward
  // Between servers, besides `flag` (Piece: there is such a state), `last` (of a state's pieces), `clock` (Fetch,
  // Piece: bytes of the state before the piece; Confirm: the request by which it came), `worker` (Forward: whose
  // push) and `values` (Forward: its gradient, never a payload). `sequence` is of Fetch and Piece the request's
  // number, of Confirm the last change's; `from` is a change's number, or the last one that the state has.
  bool last = false;
  Entry entry = Entry::kNone;
  // By slot, all of the same length:
  std::vector<uint64_t> next{};     // Hello, Heartbeat: the first that is still held. Welcome, Pulse: awaited next
  std::vector<uint64_t> durable{};  // Welcome, Pulse: all before is in the server's snapshot
  std::vector<uint64_t> floors{};   // Welcome: the step that the server has come to, or awaits the worker from
};

std::string Encode(const Message& message);

// Views point into `payload`; memory for at most what the bytes hold. kInvalidArgument: malformed.
absl::StatusOr<Message> Decode(std::string_view payload);

}  // namespace gyre::ps
