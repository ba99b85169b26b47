// Cluster: servers and workers of one job in one thread, over a network and disks that do what the seed says, with a
// clock of its own: the same plan gives the same run, byte for byte. Checks after every event what must always hold.
//
// Each partition has an element for every worker. A worker's gradient is 1 at its own element, and servers sum: so that
// values show whose pushes they hold, and how many. Where pushes are compressed it is what was decoded that they show.
// Each server's part of a table has a row for every worker, which each step pushes in two pieces, and pulls.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "memory_disk.h"
#include "ps/server.h"
#include "ps/worker.h"
#include "support/mutator.h"

namespace gyre::ps {

// What happens to whom and when. Times in ms.
struct Blow {
  enum class Kind : uint8_t {
    kKill,     // the process ends, and a new one starts after `lasts`
    kCrash,    // of a server: its machine ends, with what was not synced
    kTear,     // of a server: its disk fails in the middle of the next snapshot, and the process ends with it
    kFreeze,   // the process stands still for as long
    kReplace,  // the same, and a new one starts at once: the old one goes on beside it
    kCut,      // nothing comes through between the server and the worker
    kLose,     // of a server: the process ends, and its disk is lost
    kSever,    // nothing comes through between the server and the next one
  };
  Kind kind = Kind::kKill;
  bool server = false;  // otherwise a worker
  int whom = 0;
  int worker = 0;             // of kCut: and who
  int64_t at = 0, lasts = 0;  // less than 0, of a worker that is killed: nobody comes in its place
};

struct Plan {
  uint64_t seed = 0;
  int workers = 2, servers = 1, tensors = 2, tables = 0;
  Consistency consistency{};
  uint64_t steps = 10;  // at most 60
  bool gather = false;  // the first step waits for all workers
  uint64_t local_steps = 0;
  bool replicas = false;  // each server's state is also held by the next one
  size_t piece_bytes = 1000;
  size_t retain = 64;
  size_t window = size_t{1} << 20, window_of_all = size_t{1} << 20;
  Way way = Way::kLink;  // from workers to all servers
  int64_t snapshot_ms = 500;
  int64_t compute_ms = 20;  // at most, of a step
  // Of a message: one in so many; 0: none.
  uint64_t drop = 0, duplicate = 0, delay = 0;
  // Anything else than none: gradients have further elements, all of which change from step to step. It may not send
  // what is not there, as signs do.
  Compression compression = NoCompression{};
  compression::PayloadKind values_as = compression::PayloadKind::kF32;
  std::vector<Blow> blows{};
  Guards guards{};
};

// A random one. Some have over a hundred workers.
Plan RandomPlan(uint64_t seed);

// By partition, by worker: bit s is the push of step s.
using History = std::vector<std::vector<uint64_t>>;

class Cluster {
 public:
  explicit Cluster(Plan plan);
  ~Cluster();

  // Until all workers have made their steps, or time is up. Empty: all that must hold did; otherwise what did not.
  std::string Run();

  uint64_t trace() const { return trace_; }  // of all messages and when they came
  int64_t messages() const { return messages_; }
  TimePoint now() const { return clock_.Now(); }
  const std::vector<float>& final_model() const { return final_model_; }  // of the first worker, after a whole run
  const std::string& last_reason() const { return last_reason_; }         // why a worker waited last
  size_t most_under_way() const { return most_under_way_; }  // pushes of a worker that a server has not acknowledged
  bool ever_local() const { return ever_local_; }            // some step was made without a server
  int recoveries() const { return recoveries_; }             // servers that have got their state from the next one

 private:
  struct Process;
  class Link;
  class Ring;
  struct Event {
    TimePoint when;
    uint64_t number;
    std::function<void()> what;
    bool operator>(const Event& other) const { return std::tie(when, number) > std::tie(other.when, other.number); }
  };
  struct Chance final : Random {
    explicit Chance(uint64_t seed) : random(seed) {}
    uint64_t Next() override { return random(); }
    support::Mutator random;
  };

  void At(TimePoint when, std::function<void()> what);
  void In(int64_t ms, std::function<void()> what) { At(now() + std::chrono::milliseconds(ms), std::move(what)); }
  void StartServer(int server);
  void StartWorker(int worker);
  void Strike(const Blow& blow);
  void Kill(Process& process);
  void Send(Process& from, int to, const Message& message);
  void Deliver(bool to_server, int to, int from, const std::string& bytes);
  void SendInRing(Process& from, Side to, const Message& message);
  void DeliverInRing(int to, Side from, const std::string& bytes);
  int NextOf(int server) const { return (server + 1) % plan_.servers; }
  void Wake(const std::shared_ptr<Process>& process);  // after anything happened to it
  void Tick(const std::shared_ptr<Process>& process);
  void Compute(const std::shared_ptr<Process>& process);
  void EndStep(const std::shared_ptr<Process>& process);
  void AskRows(Process& process);
  std::vector<Floats> RowsOf(int worker) const;  // what a step pushes
  bool Done() const;
  bool HasWholeCopy(int server) const;
  Process* Current(bool server, int number) const;

  // What must hold.
  void Wrong(const std::string& what);
  void CheckApplied(Process& server, const AppliedPush& push);
  void CheckSent(Process& server, int worker, const Message& message);
  void CheckValues(Process& server, int worker, const Message& message);
  void CheckRows(Process& server, const Message& message);
  std::vector<float> ValuesOf(const Process& server, size_t slot) const;  // by worker
  std::vector<float> Expected(const Process& server, size_t slot) const;  // the same, of what was applied
  void CheckRestored(Process& server);
  void CheckExpired(Process& server);
  void CheckTold(Process& server, int worker, size_t slot, uint64_t next);
  void CheckRecovered(Process& server);
  void CheckCopies();
  void NoteEnd(Process& server);
  void CheckEnd();
  void CheckPush(const Process& worker, int server, const Message& message);
  bool IsOfTable(int server, size_t slot) const {
    return layout_[0].partitions()[static_cast<size_t>(layout_[0].OfServer(server)[slot])].table >= 0;
  }
  bool compressed() const { return !std::holds_alternative<NoCompression>(plan_.compression); }
  // What the worker pushed to its own element of the server's partition in that step, or nothing where two of its lives
  // pushed something else.
  std::optional<float> Pushed(int server, size_t slot, size_t worker, uint64_t step) const;
  std::optional<float> SumOf(int server, size_t slot, size_t worker, uint64_t steps) const;
  std::optional<float> MeansOf(int server, size_t slot, const std::vector<uint64_t>& history) const;

  Plan plan_;
  std::vector<Layout> layout_;                          // one
  std::vector<std::vector<std::vector<int64_t>>> ids_;  // by table, server, worker: its row there
  ManualClock clock_;
  support::Mutator random_;
  Chance chance_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t next_event_ = 0;
  std::vector<std::unique_ptr<MemoryDisk>> disks_;
  std::vector<std::vector<std::shared_ptr<Process>>> servers_, workers_;  // by number: its processes, the last counts
  std::vector<std::map<std::string, History, std::less<>>> saved_;        // by server, by snapshot's name
  std::vector<std::vector<std::vector<uint64_t>>> durable_;               // by server, slot, worker: as was told
  std::vector<std::map<uint64_t, uint64_t>> ended_;  // by worker, by incarnation: the steps that it has pushed
  std::set<std::pair<int, int>> cut_;
  // With replicas. By server, slot, worker: what was at the next server, and of that what workers were told is
  // acknowledged, with the steps that were applied of it.
  using Nexts = std::vector<std::vector<uint64_t>>;
  std::vector<Nexts> at_next_, told_;
  std::vector<History> told_history_;
  std::map<std::pair<int, uint64_t>, std::map<uint64_t, History>> histories_;  // by server and life, by change
  std::map<std::pair<int, uint64_t>, std::pair<uint64_t, uint64_t>> given_;  // by who gave it: whose life's, and change
  std::vector<uint64_t> copy_at_end_;  // by server: the next one's life that had a copy when its last life ended, or 0
  std::set<int> severed_;              // servers, from the next one
  std::set<int> doubly_lost_;          // servers that were lost when there was no copy
  std::set<int> lost_disks_;           // servers whose disk was lost at some time
  std::set<int> begun_anew_;           // and no snapshot: from a worker's model
  bool lost_ = false;                  // and workers had its values, too: they are refused, and that is the end
  int recoveries_ = 0;
  std::set<int> gone_;                    // workers, for good
  using Life = std::pair<int, uint64_t>;  // a worker, and its incarnation
  std::map<Life, uint64_t> granted_;      // the furthest floor that a server told it
  std::map<Life, uint64_t> joined_;       // the floor that it began with
  std::set<Life> jumped_;                 // those that went on from another
  struct Sent {
    uint64_t hash = 0;
    float own = 0;
  };
  using Place = std::tuple<int, size_t, size_t, uint64_t>;  // server, slot, worker, step
  std::map<Place, std::map<uint64_t, Sent>> sent_;          // of what is compressed, by incarnation
  std::string wrong_;
  std::string last_reason_;
  std::vector<float> final_model_;
  uint64_t trace_ = 0;
  int64_t messages_ = 0;
  bool ever_local_ = false;
  std::map<std::pair<int, int>, int64_t> under_way_;  // by worker and server: sent less acknowledged, without faults
  size_t most_under_way_ = 0;
};

}  // namespace gyre::ps
