// SimNetwork: a network in memory with a clock of its own, for tests and for predicting. Everything happens on one
// thread and follows from the seed: the same calls give the same bytes at the same times.
//
// Every rank has a link of limited speed each way; packets take their turns on it. Streams are reliable as TCP's are:
// a dropped packet comes again after a time-out, a duplicate is discarded, one that was overtaken is waited for; what
// the faults cost is time, unless a stream is reset or its bytes are damaged.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "transport/link_model.h"
#include "transport/streams.h"

namespace gyre::sim {

// Probabilities are per packet.
struct FaultModel {
  double drop = 0;       // it comes again after `timeout`, doubled each time
  double duplicate = 0;  // it comes twice
  double delay = 0;      // by up to `max_delay`: others overtake it
  double damage = 0;     // one bit is flipped
  double reset = 0;      // both directions of its stream end
  std::chrono::nanoseconds timeout{10'000'000};
  std::chrono::nanoseconds max_delay{5'000'000};
};

struct NetworkOptions {
  int ranks = 2;
  uint64_t seed = 0;
  LinkModel link{};
  std::function<LinkModel(int from, int to)> links{};  // instead, where they differ
  FaultModel faults{};
  int64_t window = 256 << 10;       // most bytes of a stream that are sent and not yet read
  int64_t packet_bytes = 16 << 10;  // most bytes of a packet
  bool keep_trace = false;          // costs memory for every byte that arrives
};

// Not thread-safe.
class SimNetwork {
 public:
  explicit SimNetwork(const NetworkOptions& options);
  ~SimNetwork();

  // The virtual time. Stands still but for Advance.
  TimePoint now() const { return now_; }

  // Goes on to the next arrival, but not beyond `limit`. False: nothing arrives until then; now() is `limit`.
  bool Advance(TimePoint limit);

  // This rank's end of a channel. The network must outlive it.
  std::unique_ptr<Streams> Open(int rank, uint64_t channel);

  // The rank's process ends: its streams do, after what was sent before has arrived.
  void Kill(int rank);

  // Packets between the two are lost from now on, until Heal.
  void Cut(int a, int b);
  void Heal(int a, int b);

  // Counts of what was sent by a rank's link: what a capture would show.
  int64_t bytes_sent(int rank) const { return links_[static_cast<size_t>(rank)].sent; }

  // All that has arrived, when and where: equal for equal runs. Empty without keep_trace.
  const std::string& trace() const { return trace_; }

 private:
  class End;
  struct Stream;
  struct Packet;
  struct Link {
    TimePoint out_free{};  // when the link has room for one more packet
    TimePoint in_free{};
    int64_t sent = 0;
  };
  using StreamKey = std::tuple<int, int, uint64_t>;  // from, to, channel

  Stream& StreamOf(int from, int to, uint64_t channel);
  size_t Send(int from, int to, uint64_t channel, std::span<const Bytes> pieces);
  void Schedule(const StreamKey& key, std::shared_ptr<Packet> packet, int attempt);
  void Arrive(const StreamKey& key, Packet& packet, int attempt);
  void Record(const StreamKey& key, uint64_t sequence, Bytes bytes);
  void EndStream(const StreamKey& key, const std::string& why);
  LinkModel LinkOf(int from, int to) const { return options_.links ? options_.links(from, to) : options_.link; }
  bool Happens(double probability);
  Duration UpTo(Duration most);

  struct Event {
    TimePoint when;
    uint64_t number;  // in the order of making: ties are decided alike every time
    StreamKey key;
    std::shared_ptr<Packet> packet;
    int attempt;
    bool operator>(const Event& other) const { return std::tie(when, number) > std::tie(other.when, other.number); }
  };

  const NetworkOptions options_;
  TimePoint now_{};
  std::mt19937_64 random_;
  std::vector<Link> links_;
  std::map<StreamKey, std::unique_ptr<Stream>> streams_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t next_event_ = 0;
  std::set<int> dead_;
  std::set<std::pair<int, int>> cut_;
  std::string trace_;
};

}  // namespace gyre::sim
