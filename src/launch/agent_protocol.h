// What launcher and agent say to each other over the remote shell's standard input and output, as frames
// (net/framing.h). docs/gyrerun.md has the order of things.
//
// The remote shell authenticates the channel and may encrypt it; so the job's secret and the environment go this way.
// Decoding trusts nothing: kDataLoss for whatever is malformed.
//
// Where a message names a rank, that may be a parameter server: server K of a job of N ranks is number N + K.
//
// Times are of the agent's steady clock, in microseconds, taken when the message is made; launch/host_clock.h makes of
// them what they are here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "launch/connect_back.h"
#include "launch/host_facts.h"
#include "launch/root_cause.h"

namespace gyre::launch {

// What the agent writes before its first frame. Whatever a login shell prints comes before it.
inline constexpr std::string_view kAgentMagic = "== gyrerun agent ==\n";

inline constexpr uint32_t kMaxToLauncher = uint32_t{256} << 10;  // payload of a frame
inline constexpr uint32_t kMaxToAgent = uint32_t{16} << 20;
inline constexpr size_t kOutputChunk = size_t{32} << 10;
inline constexpr size_t kOutputWindow = size_t{1} << 20;  // output of a host that the launcher has not yet acknowledged
inline constexpr size_t kInputWindow = size_t{64} << 10;  // standard input that the agent has not yet acknowledged

enum class AgentMessage : uint16_t {
  // From the agent
  kHello = 1,       // Hello
  kReady = 2,       // Ready
  kFailed = 3,      // Failure: it cannot do its part; it ends its ranks
  kStarted = 4,     // u32 rank, u32 process id; again for a rank that is started again
  kOutput = 5,      // u32 rank, u8 stream (1 output, 2 error), the bytes
  kOutputEnd = 6,   // u32 rank, u8 stream
  kRankEnded = 7,   // RankEnd
  kRankState = 8,   // u32 rank, u32 signal that stopped it, or 0: it goes on
  kInputTaken = 9,  // u32 bytes
  kDone = 10,       // nothing of the job is left on the host, and all output was sent

  kReport = 11,   // RankReport
  kUsage = 12,    // when, and RankUsage of some ranks
  kNote = 13,     // text of whole lines, for people
  kReached = 14,  // WayToStore: it has reached the store

  // From the launcher
  kJob = 32,       // AgentJob
  kStart = 33,     // JobStart
  kSignal = 34,    // u32 signal, to all ranks; SIGKILL to servers, too
  kCredit = 35,    // u32 bytes of output that were passed on
  kInput = 36,     // bytes for rank 0's standard input
  kInputEnd = 37,  // it has ended
  kFinish = 38,    // all ranks of the job have ended: end what they left behind, say kDone, exit
  kSettings = 39,  // WatchSettings; before kJob
  kStacks = 40,    // take the stacks of all ranks
  kReach = 41,     // text: the store's endpoint, which to reach; once all are ready, before kStart

  kBeat = 48,  // both ways, every 250 ms: alive; from the agent with the time
};

struct Hello {
  std::string version;  // gyrerun's
  std::string host;     // what the machine calls itself
};
std::string EncodeHello(const Hello& hello);
absl::StatusOr<Hello> DecodeHello(std::string_view payload);

struct Ready {
  TimePoint when{};
  std::string store;  // its endpoint, from the agent that serves it
  HostFacts facts{};
  std::vector<std::string> servers{};  // the endpoints of this host's parameter servers, by number
};
std::string EncodeReady(const Ready& ready);
absl::StatusOr<Ready> DecodeReady(std::string_view payload);

std::string EncodeWay(const WayToStore& way);
absl::StatusOr<WayToStore> DecodeWay(std::string_view payload);

struct AgentJob {
  std::string version;
  std::string job_id;
  std::string secret;
  uint64_t epoch = 0;                    // how often the job was restarted
  uint32_t size = 0;                     // ranks of the job
  std::vector<uint32_t> ranks_on_hosts;  // of each host that has some; they add up to size
  uint32_t first_rank = 0;               // of those here
  uint32_t ranks = 0;                    // how many are here; 0: servers alone
  std::vector<std::string> command;      // PROGRAM and its arguments
  std::string directory;                 // where they run
  std::vector<std::string> environment;  // "VAR=VALUE", to set on top of the agent's
  bool input = false;                    // rank 0's standard input will come
  bool serve_store = false;
  bool loopback = false;      // the store may be at a loopback address: no other host needs it
  std::string host;           // this host, as the others call it
  std::string interface;      // --interface, or empty
  std::string shared_volume;  // --shared-volume, or empty
  std::chrono::milliseconds grace{};
  uint32_t first_server = 0;  // of the parameter servers here
  uint32_t servers = 0;       // how many are here
  uint32_t restart_rank = 0;  // --restart-rank
};
std::string EncodeJob(const AgentJob& job);
absl::StatusOr<AgentJob> DecodeJob(std::string_view payload);

struct JobStart {
  std::string store;                 // its endpoint
  std::vector<std::string> servers;  // the endpoints of all parameter servers, by number
};
std::string EncodeStart(const JobStart& start);
absl::StatusOr<JobStart> DecodeStart(std::string_view payload);

struct Failure {
  int exit_code = 0;
  std::string stage;    // "working directory", "store"
  std::string message;  // ends with what to try
};
std::string EncodeFailure(const Failure& failure);
absl::StatusOr<Failure> DecodeFailure(std::string_view payload);

// `when` is of the agent's clock on both sides.
std::string EncodeRankEnd(const RankEnd& end);
absl::StatusOr<RankEnd> DecodeRankEnd(std::string_view payload);

// The agent's kBeat.
std::string EncodeTime(TimePoint when);
absl::StatusOr<TimePoint> DecodeTime(std::string_view payload);

struct OutputPiece {
  int rank = 0;
  int stream = 1;  // 1 or 2
  std::string_view bytes;
};
std::string EncodeOutput(const OutputPiece& piece);
absl::StatusOr<OutputPiece> DecodeOutput(std::string_view payload);

// kStarted and kRankState; kSignal, kCredit and kInputTaken.
std::string EncodePair(uint32_t a, uint32_t b);
absl::StatusOr<std::pair<uint32_t, uint32_t>> DecodePair(std::string_view payload);
std::string EncodeNumber(uint32_t number);
absl::StatusOr<uint32_t> DecodeNumber(std::string_view payload);

// Finds the magic in what comes from a remote shell. Not thread-safe.
class Preamble {
 public:
  static constexpr size_t kLongest = size_t{64} << 10;

  // Consumes from the front of `bytes` up to and with the magic; true once it was seen. kDataLoss: 64 KiB without it.
  absl::StatusOr<bool> Feed(std::string_view& bytes);

  const std::string& skipped() const { return skipped_; }  // what came before it

 private:
  std::string skipped_;
};

}  // namespace gyre::launch
