// Group: ranks of one host that communicate through shared memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/lane.h"
#include "collectives/shm/grid.h"
#include "transport/shm/meeting.h"
#include "transport/shm/node.h"

namespace gyre::internal {

// A meeting with what belongs to it. The operations of a channel are matched by their order; different channels are
// independent of each other.
struct Channel {
  Channel(shm::Meeting meeting_of_members, int64_t payload_bytes)
      : meeting(std::move(meeting_of_members)), capacity(payload_bytes) {}

  shm::Meeting meeting;
  std::vector<int> members;                // by member of the meeting: its number in the group
  const int64_t capacity;                  // most bytes of a payload
  std::vector<std::byte*> results;         // collective channel: by member, its two result areas of `capacity` bytes
  std::vector<const void*> sources;        // scratch of the operation in course, one a member
  std::vector<void*> destinations;         // likewise
  std::vector<const void*> stage_sources;  // the same for a part of it that not all members have a part in
  std::vector<void*> stage_destinations;
  int64_t calls = 0;  // operations begun, for messages
  Lane lane;

  // Area `parity` of a member.
  std::byte* result(int member, uint64_t parity) const {
    return results[static_cast<size_t>(member)] + static_cast<int64_t>(parity & 1) * capacity;
  }
};

// How a group lays out its part of every member's control segment. Equal on all members.
struct GroupLayout {
  int size = 1;
  int64_t capacity = 256 << 10;         // bytes of a chunk of a collective
  int64_t message_capacity = 64 << 10;  // bytes of a chunk of a message
  bool crowded = false;                 // the host's ranks outnumber its CPUs: every meeting costs a change of tasks
  int grid_size = 32;                   // from so many members on, work between arenas is done in two levels,
  int placed_grid_size = 17;            // and from so many where rows are the members of one cache or NUMA node

  // What a receiver's slots hold beside the header: why it refused its own call.
  static constexpr int64_t kWordsCapacity = 512;

  int64_t slots() const { return 4096; }  // after the region's head
  int64_t results() const { return slots() + 2 * shm::Meeting::SlotBytes(capacity); }
  int64_t outgoing(int to) const {
    return results() + 2 * capacity + 2 * to * shm::Meeting::SlotBytes(message_capacity);
  }
  int64_t incoming(int from) const { return outgoing(size) + 2 * from * shm::Meeting::SlotBytes(kWordsCapacity); }
  int64_t bytes() const { return incoming(size); }
};

// Thread-safe. Operations hold it; the memory outlives them.
class Group {
 public:
  // `ranks`: the members' numbers in the job, in the group's order; all on this host, this one among them.
  // `regions`: by member, where its region begins in its control segment: it reserved layout.bytes() there.
  // `numbers`: by member, its rank in the communicator, for messages; empty where that is the member's number.
  // `domains`: by member, where it runs, alike on all of them; empty where that is not known.
  static absl::StatusOr<std::shared_ptr<Group>> Create(std::shared_ptr<shm::Node> node, std::vector<int> ranks,
                                                       std::span<const int64_t> regions, const GroupLayout& layout,
                                                       std::vector<int> numbers = {},
                                                       std::span<const Domain> domains = {});

  int rank() const { return self_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }  // by member: its number in the job
  shm::Node& node() const { return *node_; }
  const std::shared_ptr<shm::Node>& shared_node() const { return node_; }
  const GroupLayout& layout() const { return layout_; }

  // The members in rows and columns; null in groups that are too small for that.
  const Grid* grid() const { return grid_ ? &*grid_ : nullptr; }

  const shm::ControlBlock& block(int member) const { return *blocks_[static_cast<size_t>(member)]; }

  Channel& collective() { return *collective_; }
  Channel& outgoing(int to) { return *outgoing_[static_cast<size_t>(to)]; }      // REQUIRES: to != rank()
  Channel& incoming(int from) { return *incoming_[static_cast<size_t>(from)]; }  // REQUIRES: from != rank()

  // "rank 2", or "rank 2 (5 in the job)" where the numbers differ.
  std::string RankName(int member) const;

  // --- Failure: the first cause makes the group unusable, here and on every member ---

  // Whether a member has broken the group: cheap, for every call.
  bool usable() const {
    if (broken_.load(std::memory_order_acquire)) return false;
    for (const RegionHead* head : heads_) {
      if (head->last_words.written()) return false;
    }
    return true;
  }

  // OK, or why this rank has broken the group.
  absl::Status status() const;

  // `words`: what the other members find, with the job's rank that was lost, or -1. Whoever breaks the group because
  // another did passes that one's words on as they are, so that all name the same cause. False: it was broken already.
  bool Break(const absl::Status& status, const shm::LastWords::Content& words);

  // What this rank left, and what another did, when it broke the group; empty if it did not.
  std::optional<shm::LastWords::Content> OwnLastWords() const { return head(self_).last_words.Read(); }
  std::optional<shm::LastWords::Content> FindLastWords() const;

  // --- Several hosts: a member shows which rank of another host it waits for, so that members that wait for it can
  // name that rank ---

  // This member waits for rank `number` of the communicator, `job_rank` of the job. number -1: for none.
  void ShowAwaited(int number, int job_rank) const;

  // The name of the rank that a member waits for. Empty if it shows none.
  std::string AwaitedBy(int member) const;

  // How often other members have opened memory of the member's GPU that it shares with them, and not closed it again.
  std::atomic<int32_t>& gpu_areas_open(int member) const { return head(member).gpu_areas_open; }

 private:
  // At the start of each member's region.
  struct RegionHead {
    shm::LastWords last_words;
    std::atomic<int32_t> gpu_areas_open;
    std::atomic<uint64_t> awaited;  // 0: none; else the number + 1, and in the upper half the rank in the job
  };

  Group(std::shared_ptr<shm::Node> node, std::vector<int> ranks, int self, const GroupLayout& layout,
        std::vector<int> numbers);
  std::byte* region(int member) const { return regions_[static_cast<size_t>(member)]; }
  RegionHead& head(int member) const { return *heads_[static_cast<size_t>(member)]; }
  static std::unique_ptr<Channel> MakeChannel(std::vector<shm::Meeting::Member> places, std::vector<int> members,
                                              int self, int64_t capacity);
  void MakeChannels();
  static std::optional<Grid> GridFor(const GroupLayout& layout, std::span<const Domain> domains, int self);
  void MakeMessageChannels(int peer);

  const std::shared_ptr<shm::Node> node_;
  const std::vector<int> ranks_;
  const int self_;
  const GroupLayout layout_;
  const std::vector<int> numbers_;
  std::vector<std::byte*> regions_;
  std::vector<RegionHead*> heads_;
  std::vector<const shm::ControlBlock*> blocks_;
  std::optional<Grid> grid_;
  std::unique_ptr<Channel> collective_;
  std::vector<std::unique_ptr<Channel>> outgoing_;
  std::vector<std::unique_ptr<Channel>> incoming_;

  std::atomic<bool> broken_{false};
  mutable std::mutex mutex_;
  absl::Status status_;  // guarded by mutex_
};

}  // namespace gyre::internal
