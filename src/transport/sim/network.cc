#include "transport/sim/network.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace gyre::sim {

struct SimNetwork::Packet {
  uint64_t sequence;
  std::vector<std::byte> bytes;  // none: the end of the stream
  std::string end;               // why it ends
};

// One direction between two ranks in one channel.
struct SimNetwork::Stream {
  int64_t outstanding = 0;  // bytes sent and not yet read
  uint64_t next_sent = 0;
  uint64_t next_due = 0;
  std::map<uint64_t, std::vector<std::byte>> early;  // arrived before those they follow
  std::deque<std::byte> readable;
  std::map<uint64_t, std::string> ends;  // an end that has arrived, by its sequence
  std::string ended;                     // no more comes, because
  bool closed = false;                   // by the sender: nothing more is sent
};

class SimNetwork::End final : public Streams {
 public:
  End(SimNetwork& network, int rank, uint64_t channel) : network_(network), rank_(rank), channel_(channel) {}

  absl::StatusOr<size_t> Write(int peer, std::span<const Bytes> pieces) override {
    const Stream& back = network_.StreamOf(peer, rank_, channel_);
    if (!back.ended.empty()) return absl::UnavailableError(back.ended);
    return network_.Send(rank_, peer, channel_, pieces);
  }

  absl::StatusOr<size_t> Read(int peer, MutableBytes into) override {
    Stream& stream = network_.StreamOf(peer, rank_, channel_);
    if (stream.readable.empty() && !stream.ended.empty()) return absl::UnavailableError(stream.ended);
    const size_t size = std::min(into.size(), stream.readable.size());
    std::copy_n(stream.readable.begin(), size, into.begin());
    stream.readable.erase(stream.readable.begin(), stream.readable.begin() + static_cast<int64_t>(size));
    stream.outstanding -= static_cast<int64_t>(size);
    return size;
  }

  void AddWaits(int, bool, bool, std::vector<pollfd>&) const override {}

 private:
  SimNetwork& network_;
  const int rank_;
  const uint64_t channel_;
};

SimNetwork::SimNetwork(const NetworkOptions& options)
    : options_(options), random_(options.seed), links_(static_cast<size_t>(options.ranks)) {}

SimNetwork::~SimNetwork() = default;

std::unique_ptr<Streams> SimNetwork::Open(int rank, uint64_t channel) {
  return std::make_unique<End>(*this, rank, channel);
}

SimNetwork::Stream& SimNetwork::StreamOf(int from, int to, uint64_t channel) {
  auto& stream = streams_[{from, to, channel}];
  if (stream == nullptr) stream = std::make_unique<Stream>();
  return *stream;
}

bool SimNetwork::Happens(double probability) {
  return probability > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

Duration SimNetwork::UpTo(Duration most) {
  return Duration(std::uniform_int_distribution<Duration::rep>(0, most.count())(random_));
}

size_t SimNetwork::Send(int from, int to, uint64_t channel, std::span<const Bytes> pieces) {
  Stream& stream = StreamOf(from, to, channel);
  if (stream.closed) return 0;
  size_t taken = 0;
  Packet packet{};
  const auto flush = [&] {
    if (packet.bytes.empty()) return;
    packet.sequence = stream.next_sent++;
    Schedule({from, to, channel}, std::make_shared<Packet>(std::move(packet)), 0);
    packet = {};
  };
  for (Bytes piece : pieces) {
    while (!piece.empty() && stream.outstanding < options_.window) {
      const int64_t room = std::min(options_.window - stream.outstanding,
                                    options_.packet_bytes - static_cast<int64_t>(packet.bytes.size()));
      const size_t size = std::min(piece.size(), static_cast<size_t>(room));
      packet.bytes.insert(packet.bytes.end(), piece.begin(), piece.begin() + static_cast<int64_t>(size));
      piece = piece.subspan(size);
      stream.outstanding += static_cast<int64_t>(size);
      taken += size;
      if (static_cast<int64_t>(packet.bytes.size()) == options_.packet_bytes) flush();
    }
  }
  flush();
  return taken;
}

// Puts the packet on the sender's link, and then on the receiver's.
void SimNetwork::Schedule(const StreamKey& key, std::shared_ptr<Packet> packet, int attempt) {
  const auto [from, to, channel] = key;
  Link& out = links_[static_cast<size_t>(from)];
  Link& in = links_[static_cast<size_t>(to)];
  const LinkModel link = LinkOf(from, to);
  const auto size = static_cast<int64_t>(packet->bytes.size());
  const auto on_wire = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(static_cast<double>(size) / link.bytes_per_second));
  out.out_free = std::max(now_, out.out_free) + on_wire;
  out.sent += size;
  TimePoint arrival = out.out_free + link.latency;
  if (Happens(options_.faults.delay)) arrival += UpTo(options_.faults.max_delay);
  in.in_free = std::max(arrival, in.in_free + on_wire);
  arrival = in.in_free;
  events_.push({arrival, next_event_++, key, packet, attempt});
  if (Happens(options_.faults.duplicate)) {
    events_.push({arrival + UpTo(options_.faults.max_delay), next_event_++, key, std::move(packet), attempt});
  }
}

bool SimNetwork::Advance(TimePoint limit) {
  if (events_.empty() || events_.top().when > limit) {
    now_ = std::max(now_, limit);
    return false;
  }
  const Event event = events_.top();
  events_.pop();
  now_ = std::max(now_, event.when);
  Arrive(event.key, *event.packet, event.attempt);
  return true;
}

void SimNetwork::Arrive(const StreamKey& key, Packet& packet, int attempt) {
  const auto [from, to, channel] = key;
  Stream& stream = StreamOf(from, to, channel);
  if (packet.sequence < stream.next_due || stream.early.contains(packet.sequence)) return;  // a duplicate
  if (cut_.contains(std::minmax(from, to)) || Happens(options_.faults.drop)) {
    if (dead_.contains(from)) return;  // nobody sends it again
    const Duration pause = options_.faults.timeout * (1 << std::min(attempt, 6));
    events_.push({now_ + pause, next_event_++, key, std::make_shared<Packet>(packet), attempt + 1});
    return;
  }
  if (!packet.bytes.empty() && Happens(options_.faults.damage)) {
    const size_t bit = std::uniform_int_distribution<size_t>(0, packet.bytes.size() * 8 - 1)(random_);
    packet.bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
  if (Happens(options_.faults.reset)) {
    EndStream({from, to, channel}, absl::StrCat("the connection with rank ", from, " was reset"));
    EndStream({to, from, channel}, absl::StrCat("the connection with rank ", to, " was reset"));
    return;
  }
  if (packet.bytes.empty()) stream.ends[packet.sequence] = packet.end;
  stream.early[packet.sequence] = packet.bytes;
  for (auto next = stream.early.begin(); next != stream.early.end() && next->first == stream.next_due;) {
    if (stream.ends.contains(next->first)) stream.ended = stream.ends[next->first];
    stream.readable.insert(stream.readable.end(), next->second.begin(), next->second.end());
    if (options_.keep_trace) Record(key, next->first, next->second);
    ++stream.next_due;
    next = stream.early.erase(next);
  }
}

void SimNetwork::Record(const StreamKey& key, uint64_t sequence, Bytes bytes) {
  const auto [from, to, channel] = key;
  WireWriter writer(trace_);
  writer.I32(from);
  writer.I32(to);
  writer.U64(channel);
  writer.U64(sequence);
  writer.U64(static_cast<uint64_t>(now_.time_since_epoch().count()));
  writer.Text(AsText(bytes));
}

void SimNetwork::EndStream(const StreamKey& key, const std::string& why) {
  const auto [from, to, channel] = key;
  Stream& stream = StreamOf(from, to, channel);
  stream.closed = true;
  if (stream.ended.empty()) stream.ended = why;
}

void SimNetwork::Kill(int rank) {
  dead_.insert(rank);
  std::vector<StreamKey> keys;
  for (int peer = 0; peer < options_.ranks; ++peer) {
    for (const auto& [key, stream] : streams_) {
      if (std::get<0>(key) == peer && std::get<1>(key) == rank) keys.push_back({rank, peer, std::get<2>(key)});
      if (std::get<0>(key) == rank && std::get<1>(key) == peer) keys.push_back(key);
    }
  }
  std::ranges::sort(keys);
  keys.erase(std::ranges::unique(keys).begin(), keys.end());
  for (const StreamKey& key : keys) {
    Stream& stream = StreamOf(std::get<0>(key), std::get<1>(key), std::get<2>(key));
    if (std::exchange(stream.closed, true)) continue;
    auto end = std::make_shared<Packet>();
    end->sequence = stream.next_sent++;
    end->end = absl::StrCat("rank ", rank, " closed the connection");
    Schedule(key, std::move(end), 0);
  }
}

void SimNetwork::Cut(int a, int b) {
  cut_.insert(std::minmax(a, b));
}

void SimNetwork::Heal(int a, int b) {
  cut_.erase(std::minmax(a, b));
}

}  // namespace gyre::sim
