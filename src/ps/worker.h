// Worker: a training process's side of the parameter server, as a state machine. Whoever runs it hands it what arrives,
// and time; the program computes a gradient between Begin and End:
//
//   if (!worker.WhyWaiting()) {
//     ASSIGN_OR_RETURN(const uint64_t step, worker.Begin());
//     ... gradient of worker.model() ...
//     RETURN_IF_ERROR(worker.End(gradient));
//   }
//
// docs/parameter_server.md says what it promises. Not thread-safe; nothing blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/interfaces.h"
#include "ps/layout.h"
#include "ps/options.h"
#include "ps/outbox.h"
#include "ps/push_codec.h"
#include "ps/rows.h"
#include "ps/shard.h"

namespace gyre::ps {

// How pushes come to a server.
enum class Way : uint8_t {
  kLink,   // over a link between hosts, whose rate all that goes there shares
  kHost,   // by a connection within the host
  kMemory  // not at all: it reads them where they are
};

struct WorkerOptions {
  int worker = 0;
  uint64_t epoch = 0;        // the job's
  uint64_t incarnation = 1;  // how often this worker was started, from 1
  Rule rule = Sgd{};         // the servers': what a step without a server applies
  Timing timing{};
  // While a server is away, steps go on with this worker's own updates of its part: at most so many in a row, and none
  // begins later than so long after the first.
  uint64_t local_steps = 0;
  Duration local_time = std::chrono::seconds(30);
  // Acknowledged pushes that are kept, a partition, until the server's snapshot has them: memory for as many gradients.
  // As many as steps are made between snapshots, and a server that dies loses nothing while its workers live.
  size_t retain = 16;
  // Of a table's, so many bytes at each server: how many rows a step has, is the program's choice.
  size_t retain_row_bytes = size_t{16} << 20;
  // Credit: of pushes that a server has not acknowledged, and of values that it was asked for and has not sent, so many
  // bytes each are under way with it, or one partition. The rest follows as these arrive. By memory nothing is under
  // way that could be in the way of anything: there it is as much as a step has, if that is more. With no bound at all,
  // a server that acknowledges nothing, for want of the next one, would be pushed one step after the other.
  size_t window = size_t{32} << 20;
  // And of pushes by links so many with all servers together, or a 25th of the model, but one partition with each:
  // links share unevenly what is given to all of them at once, and the last partition to arrive is waited for.
  size_t window_of_all = size_t{4} << 20;
  bool has_first_values = true;   // its first model may become the servers': true of one worker at least
  PushCompression compression{};  // of pushes
  Guards guards{};
  // Memory for a push to that server.
  std::function<Floats(int server, size_t count)> make = [](int, size_t count) { return Floats(count); };
  // How they come to that server, as of now.
  std::function<Way(int server)> way = [](int) { return Way::kLink; };
};

// Why a step cannot begin.
struct Waiting {
  enum class Reason : uint8_t { kJoining, kServerAway, kOthers };
  Reason reason = Reason::kJoining;
  int server = -1;  // which has not answered
  int worker = -1;  // kOthers: whom that server waits for, if it said so
  std::string text;
};

class Worker {
 public:
  // `model`: its first values, taken by servers that have none. What is given by reference outlives the worker.
  // kInvalidArgument: the model's size is not the layout's; or see Optimizer::Create and PushCodec::Create.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(const WorkerOptions& options, const Layout& layout,
                                                        std::vector<float> model, const Clock& clock, Network& network,
                                                        Random& random);

  // The same for weights that stay the program's, one span a tensor of the layout: the model is there. They may be
  // written from the end of a step to the beginning of the next, and are whole at that.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(const WorkerOptions& options, const Layout& layout,
                                                        std::span<const std::span<float>> weights, const Clock& clock,
                                                        Network& network, Random& random);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Receive(int server, const Message& message);

  // A way to the server has opened: what is to be said to it is said at once.
  void Reach(int server);

  // Bytes have come from the server's process of that incarnation.
  void Hear(int server, uint64_t incarnation);

  // To be called when NextTick() has come; earlier does no harm. Between two calls all that has arrived is to be
  // received: which server is silent is judged here, and by how long this worker has listened.
  void Tick();
  TimePoint NextTick() const;

  // Not OK once a server has refused this worker: another process has taken its place (kAborted), or it was set up
  // differently (kFailedPrecondition). It sends nothing any more.
  const absl::Status& status() const { return status_; }

  // Nothing: a step may begin.
  std::optional<Waiting> WhyWaiting() const;

  // Begins a step and returns its number. The model stands still until End. kUnavailable, with the reason, where
  // WhyWaiting says so; kFailedPrecondition in the middle of a step.
  absl::StatusOr<uint64_t> Begin();

  // Pushes the step's gradient. Where the others have gone on without this worker meanwhile, the gradient is of the
  // past and is dropped: the next step is one of theirs. kFailedPrecondition: no step has begun, or the compression
  // refuses the gradient, and the step has not ended; kInvalidArgument: the gradient's size is not the model's.
  // `rows`: for each table, what PackRows gave, one for each server; or nothing for all of them.
  absl::Status End(std::span<const float> gradient, std::span<const Floats> rows = {});

  // Between Begin and End: asks the servers for rows of a table, as they are for this step. What was asked for before,
  // and has not come, does not come any more. kFailedPrecondition: no step has begun; others: see RowRequest::Create.
  absl::Status AskRows(int table, std::span<const int64_t> ids);
  // The first server whose rows have not come.
  std::optional<int> MissingRows() const;
  // All that were asked for in this step have come.
  bool has_rows() const { return rows_ && !MissingRows(); }
  // Fills them in. REQUIRES: has_rows(), a place for each
  void SpreadRows(std::span<float> values) const { rows_->request.Spread(rows_->answers, values); }

  // For the steps that end from now on. REQUIRES: finite, 0 or more
  void SetLearningRate(float rate) { rate_ = rate; }
  float learning_rate() const { return rate_; }

  // All pushes have been acknowledged.
  bool delivered() const { return !Undelivered(); }
  // The first server that has not acknowledged all of them.
  std::optional<int> Undelivered() const;

  // Of all steps so far: what pushes have become, each counted once, and values that were taken, as they came.
  int64_t pushed_bytes() const { return pushed_bytes_; }
  int64_t pulled_bytes() const { return pulled_bytes_; }

  // REQUIRES: made with a model of its own
  std::span<const float> model() const { return model_; }
  uint64_t clock() const { return clock_; }              // the next step
  uint64_t local_steps() const { return local_steps_; }  // in a row, up to now

 private:
  struct Peer {
    uint64_t incarnation = 0;  // of the server; 0: never heard
    uint64_t welcomed = 0;     // the incarnation that the outboxes know of
    bool answered = false;     // has said where it stands
    bool member = false;       // has taken this worker
    bool ready = false;        // takes pushes
    int slowest = -1;
    int models = 0;                 // how often the first values were sent, on this way to this process
    size_t bytes = 0;               // of the weights that it holds
    size_t pushed = 0, pulled = 0;  // bytes under way
    size_t next_pull = 0;           // by slot: before it, there is nothing to be asked for
    TimePoint heard{}, next_hello{}, next_heartbeat{}, next_resend{}, next_model{};
  };
  struct Part {
    Outbox outbox;
    uint64_t asked_for = 0;                // one more than the step whose values are under way, or 0
    uint64_t values_for = 0;               // one more than the step that its values are for; 0: none yet
    std::optional<Optimizer> optimizer{};  // for steps without its server
  };
  struct RowsAsked {
    int table = 0;
    uint64_t clock = 0, question = 0;
    RowRequest request;
    std::vector<Floats> answers;  // by server; empty: none yet
  };

  Worker(const WorkerOptions& options, const Layout& layout, PushCodec codec, const Clock& clock, Network& network,
         Random& random);
  static absl::StatusOr<std::unique_ptr<Worker>> Make(const WorkerOptions& options, const Layout& layout,
                                                      const Clock& clock, Network& network, Random& random);

  bool Notice(int server, const Message& message);  // false: of the past, or for another
  void Welcomed(int server, const Message& message);
  void TakeStanding(int server, const Message& message);
  void Start();
  void Jump(uint64_t clock);
  void TakeValues(int server, const Message& message);
  void Refused(int server, const Message& message);

  void SayHello(int server);
  void SendHeartbeat(int server);
  void SendModel(int server);
  void AddPush(size_t partition, uint64_t step, std::span<const float> gradient);
  void SendPush(int server, int slot, const Outbox::Push& push);
  // As far as the windows allow: what the next forward pass needs first goes first.
  void SendPushes();
  void SendPulls(int server);
  void SendAgain(int server);  // what may be lost
  void AskAnew(int server);    // for the values of this step
  void SendRowsAsked(int server);
  void TakeRows(int server, const Message& message);
  void AddRows(size_t partition, uint64_t step, std::span<const Floats> rows);
  void AddMarks();
  void Trim(int server, size_t slot);
  void Acknowledge(int server, size_t slot, uint64_t next);
  void Send(int server, Message message);
  size_t WindowOf(int server) const;
  std::vector<uint64_t> Oldest(int server) const;

  void Attend();
  void Beat();
  bool IsPresent(const Peer& peer) const;
  bool HasValues(const Part& part) const { return part.values_for > clock_; }
  bool HasHadValues(int server) const;
  std::optional<Waiting> WhyNotLocal(int server) const;
  void UpdateLocally(size_t partition);  // with its last push
  Part& PartOf(int server, size_t slot) { return parts_[Index(server, slot)]; }
  size_t Index(int server, size_t slot) const { return static_cast<size_t>(layout_.OfServer(server)[slot]); }
  std::span<float> ValuesOf(size_t partition) { return values_[partition]; }

  const WorkerOptions options_;
  const Layout& layout_;
  const Clock& time_;
  Network& network_;
  Random& random_;
  PushCodec codec_;
  PushDecoder decoder_;  // of its own pushes
  int64_t pushed_bytes_ = 0, pulled_bytes_ = 0;
  absl::Status status_;
  float rate_;
  std::vector<float> model_;              // where it has one of its own
  std::vector<std::span<float>> values_;  // by partition; of tables: their marks
  std::vector<float> marks_;              // of each server's part of a table: what its values are (Shard::OfTable)
  std::vector<Peer> peers_;               // by server
  std::vector<Part> parts_;               // by partition
  std::vector<size_t> order_;             // of pushes: partitions, by slot, each worker beginning with another server
  size_t next_push_ = 0;                  // in order_: before it, there is nothing to be sent to servers that are there
  bool joined_ = false;
  uint64_t clock_ = 0;
  uint64_t floor_ = 0;                   // where it joined, or has jumped to
  std::optional<uint64_t> computing_{};  // between Begin and End
  std::optional<RowsAsked> rows_{};      // in this step
  uint64_t questions_ = 0;
  uint64_t local_steps_ = 0;
  TimePoint local_since_{};
  TimePoint attended_{};  // when Tick was called last
};

}  // namespace gyre::ps
