// Team: the ranks of a communicator that spans several hosts: who shares memory with whom, and the streams between
// hosts. Between hosts only rails run: rail k joins rank number k of every host, for as many k as the smallest host has
// ranks; ranks beyond that take part through their host's memory.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/lane.h"
#include "collectives/schedule/schedule.h"
#include "collectives/selection/algorithms.h"
#include "collectives/selection/refiner.h"
#include "collectives/selection/selector.h"
#include "collectives/shm/group.h"
#include "net/bytes.h"
#include "transport/signature.h"
#include "transport/streams.h"

namespace gyre::internal {

class Executor;

// Where a rank of a communicator is.
struct Place {
  int rank = 0;   // in the job
  int host = 0;   // among the communicator's hosts, which are numbered in the order of their first ranks
  int local = 0;  // among the communicator's ranks on its host, in their order
};

// The places of `ranks` (of the job, in the communicator's order), of which hosts[rank of the job] tells the host.
std::vector<Place> PlacesOf(std::span<const int> ranks, std::span<const int> hosts);

// What a team needs of the network.
struct TeamLinks {
  // Streams of one channel with these ranks of the job.
  std::function<std::unique_ptr<Streams>(uint64_t channel, std::vector<int> peers)> open;

  // Whether data carry checksums.
  bool checksum = false;

  // Tells the peers on other hosts that the communicator with this id is broken.
  std::function<void(uint64_t id, const shm::LastWords::Content& words)> announce;

  // Tells the peers on other hosts which call of this communicator this rank waits in; empty: nobody is told.
  std::function<void(uint64_t id, uint64_t number, const Signature& signature)> tell_call = {};

  // Chooses algorithms between hosts; alike on all ranks of the job.
  std::shared_ptr<Selector> selector;

  // By which transfers are timed; empty: the steady clock.
  std::function<TimePoint()> now = {};
};

// Thread-safe but where a method says otherwise. Operations hold it.
class Team {
 public:
  // `local`: the group of those of `places` that are on this host. `self`: this rank in the communicator. `id`: the
  // communicator's, unique in the job.
  Team(std::shared_ptr<Group> local, std::vector<Place> places, int self, uint64_t id, TeamLinks links);
  ~Team();

  int rank() const { return self_; }
  int size() const { return static_cast<int>(places_.size()); }
  uint64_t id() const { return id_; }
  bool checksum() const { return links_.checksum; }
  Group& local() const { return *local_; }

  const Place& place(int rank) const { return places_[static_cast<size_t>(rank)]; }
  int host() const { return place(self_).host; }  // this rank's
  int local_rank() const { return place(self_).local; }
  int local_size() const { return local_->size(); }
  int hosts() const { return static_cast<int>(by_host_.size()); }
  int rails() const { return rails_; }
  int most_local() const { return most_local_; }  // ranks of the largest host
  const std::vector<int>& on_host(int host) const { return by_host_[static_cast<size_t>(host)]; }  // by local number

  // By host: its rank, in the communicator.
  const std::vector<int>& Rail(int number) const { return by_rail_[static_cast<size_t>(number)]; }

  // The other ranks on this one's rail, as ranks of the job; empty where it is on none.
  std::vector<int> Counterparts() const;

  // How to carry out an operation between the hosts, of so many bytes on each, by way of so many rails: by what was
  // measured at the start.
  Selection SelectAtStart(Collective operation, int64_t bytes, int rails) const {
    return links_.selector->Select({operation, bytes, hosts(), rails, most_local_});
  }

  // "rank 2", or "rank 2 (5 in the job)".
  const std::string& RankName(int rank) const { return names_[static_cast<size_t>(rank)]; }

  // --- Collectives: for whoever drives lane() ---

  Lane& lane() { return local_->collective().lane; }

  // As SelectAtStart, but by what calls have taught since. Alike on all ranks in the course of the same call, not
  // before.
  Selection Select(Collective operation, int64_t bytes, int rails) const {
    return refiner_.selector().Select({operation, bytes, hosts(), rails, most_local_});
  }
  Refiner& refiner() { return refiner_; }
  TimePoint Now() const { return links_.now ? links_.now() : std::chrono::steady_clock::now(); }
  Streams& streams() { return *streams_; }
  uint64_t NextCall(const Signature& signature);
  uint64_t NextToLearn() { return ++learning_calls_; }  // numbers those calls that Refiner::Due is asked for

  // What calls take again, so that calls like those before allocate nothing: the schedule between hosts of an operation
  // without a root, room for lists of blocks, and an executor that is done (null: there is none).
  const Schedule& ScheduleOf(Collective operation, Algorithm algorithm);
  struct Blocks {
    std::vector<MutableBytes> blocks;
    std::vector<Bytes> sources;
  };
  Blocks& blocks() { return blocks_; }
  std::unique_ptr<Executor> TakeExecutor();
  void GiveExecutor(std::unique_ptr<Executor> executor);

  // --- Messages between hosts: each direction of each pair has a lane and a stream of its own ---

  struct MessageLane {
    uint64_t channel;
    std::unique_ptr<Streams> streams;
    uint64_t calls = 0;
    Lane lane;
  };
  MessageLane& outgoing(int to);
  MessageLane& incoming(int from);

  // --- Calls that differ, where the schedules alone do not find it: nobody may send to whom is waited for ---

  // This rank has waited for other hosts for a while, in this call.
  void TellCall(uint64_t number, const Signature& signature);

  // Another one (by its rank in the job) waits in this call. If this rank's own of that number, one of the last
  // kRememberedCalls, was another, the communicator is broken.
  void HeardOfCall(int job_rank, uint64_t number, const Signature& signature);

  // --- Failure ---

  // Whether a call of this rank has ended because the communicator was broken: later ones only say that it is.
  bool told() const { return told_.load(); }
  void MarkTold() { told_.store(true); }

  // Makes the communicator unusable here, on this host, and, by way of the others, everywhere. Only the first cause
  // counts.
  void Break(const absl::Status& status, const shm::LastWords::Content& words);

  // As a part of a call has ended in an error, which this host's ranks made among themselves: the other hosts learn it.
  // Returns what the call is to end with.
  absl::Status BreakLike(const absl::Status& within_host);

  // If a rank of this host has broken the communicator, the other hosts learn it, whether or not this rank is in a
  // call.
  void PassOnBreak();

 private:
  static constexpr size_t kRememberedCalls = 64;
  struct Called {
    uint64_t number = 0;
    Signature signature{};
  };

  MessageLane& LaneOf(int from, int to);

  const std::shared_ptr<Group> local_;
  const std::vector<Place> places_;
  const int self_;
  const uint64_t id_;
  const TeamLinks links_;
  std::vector<std::vector<int>> by_host_;
  std::vector<std::vector<int>> by_rail_;
  std::vector<std::string> names_;  // by rank
  int rails_ = 0;
  int most_local_ = 0;
  std::unique_ptr<Streams> streams_;
  Refiner refiner_;
  uint64_t calls_ = 0, learning_calls_ = 0;
  std::map<std::pair<Collective, Algorithm>, Schedule> schedules_;
  Blocks blocks_;
  std::unique_ptr<Executor> spare_executor_;
  std::atomic<bool> announced_{false};
  std::atomic<bool> told_{false};

  std::mutex mutex_;
  std::array<Called, kRememberedCalls> called_{};                              // by number, modulo how many; guarded
  std::map<std::pair<int, int>, std::unique_ptr<MessageLane>> message_lanes_;  // by sender and receiver; guarded
};

}  // namespace gyre::internal
