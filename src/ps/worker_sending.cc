// Worker: what it says to servers, and when.
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "ps/worker.h"

namespace gyre::ps {

void Worker::Reach(int server) {
  Peer& peer = peers_[static_cast<size_t>(server)];
  peer.next_hello = peer.next_resend = time_.Now();
  if (peer.member) peer.next_heartbeat = time_.Now();
  peer.models = 0;
}

// What takes long, or many messages at once, must not look like silence.
void Worker::Beat() {
  const TimePoint now = time_.Now();
  for (int server = 0; server < layout_.servers(); ++server) {
    const Peer& peer = peers_[static_cast<size_t>(server)];
    if (peer.member && now >= peer.next_heartbeat) SendHeartbeat(server);
  }
}

std::vector<uint64_t> Worker::Oldest(int server) const {
  std::vector<uint64_t> oldest;
  for (const int partition : layout_.OfServer(server)) {
    oldest.push_back(parts_[static_cast<size_t>(partition)].outbox.Oldest());
  }
  return oldest;
}

// All servers have said where they stand: where the furthest of them is, this worker begins.
void Worker::Start() {
  joined_ = true;
  clock_ = floor_;
  for (int server = 0; server < layout_.servers(); ++server) SayHello(server);
}

void Worker::SayHello(int server) {
  Peer& peer = peers_[static_cast<size_t>(server)];
  const auto wait = static_cast<uint64_t>(options_.timing.resend.count());
  peer.next_hello = time_.Now() + Duration(static_cast<int64_t>(wait / 2 + random_.Next() % (wait / 2 + 1)));
  Send(server, {.kind = Kind::kHello,
                .layout = layout_.fingerprint(),
                .flag = joined_,
                .member = HasHadValues(server),
                .clock = joined_ ? floor_ : 0,
                .next = Oldest(server)});
}

void Worker::SendHeartbeat(int server) {
  peers_[static_cast<size_t>(server)].next_heartbeat = time_.Now() + options_.timing.heartbeat;
  Send(server, {.kind = Kind::kHeartbeat, .clock = floor_, .next = Oldest(server)});
}

// A server that has it may still wait, for other workers or for the next server, and be asked again and again.
void Worker::SendModel(int server) {
  constexpr int kMostDoublings = 4;
  Peer& peer = peers_[static_cast<size_t>(server)];
  if (!options_.has_first_values || (peer.models > 0 && time_.Now() < peer.next_model)) return;
  peer.next_model = time_.Now() + options_.timing.resend * (1 << std::min(peer.models++, kMostDoublings));
  for (size_t slot = 0; slot < layout_.OfServer(server).size(); ++slot) {
    Send(server, {.kind = Kind::kInit,
                  .slot = static_cast<uint32_t>(slot),
                  .values = std::as_bytes(ValuesOf(Index(server, slot)))});
  }
}

void Worker::AddPush(size_t partition, uint64_t step, std::span<const float> gradient) {
  const int server = layout_.partitions()[partition].server;
  Part& part = parts_[partition];
  const PushCodec::Encoded encoded = codec_.Encode(partition, gradient);
  pushed_bytes_ += static_cast<int64_t>(encoded.bytes.size());
  // Memory that is lent comes in sizes that are asked for again; what differs from step to step is small, and is sent.
  const auto make = [&](size_t count) { return encoded.steady ? options_.make(server, count) : Floats(count); };
  Floats words = make(WordsOf(encoded.bytes.size()));
  const MutableBytes room = std::as_writable_bytes(words.writable());
  std::ranges::fill(std::ranges::copy(encoded.bytes, room.begin()).out, room.end(), std::byte{0});
  part.outbox.Add(step, rate_, std::move(words), encoded.payload ? static_cast<uint32_t>(encoded.bytes.size()) : 0);
}

void Worker::SendPush(int server, int slot, const Outbox::Push& push) {
  Send(server, {.kind = Kind::kPush,
                .slot = static_cast<uint32_t>(slot),
                .from = push.from,
                .sequence = push.sequence,
                .rate = push.rate,
                .packed = push.packed,
                .values = push.gradient.bytes(),
                .keeper = push.gradient});
}

size_t Worker::WindowOf(int server) const {
  if (options_.way(server) != Way::kMemory) return options_.window;
  return std::max(options_.window, peers_[static_cast<size_t>(server)].bytes);
}

void Worker::SendPushes() {
  const size_t most = std::max(options_.window_of_all, static_cast<size_t>(layout_.elements()) * sizeof(float) / 25);
  const auto takes = [this](const Peer& peer) { return peer.ready && IsPresent(peer); };
  const auto by_link = [this](int server) { return options_.way(server) == Way::kLink; };
  size_t all = 0, idle = 0;  // by links: bytes under way with servers that answer; those of them that have none
  bool any_near = false;
  for (int server = 0; server < layout_.servers(); ++server) {
    const Peer& peer = peers_[static_cast<size_t>(server)];
    if (!takes(peer)) continue;
    const bool link = by_link(server);
    any_near |= !link;
    all += link ? peer.pushed : 0;
    idle += link && peer.pushed == 0 ? 1 : 0;
  }
  std::optional<size_t> left;  // the first place with something that has to wait
  bool full = false;
  for (size_t place = next_push_; place < order_.size() && !full; ++place) {
    const Partition& partition = layout_.partitions()[order_[place]];
    Peer& peer = peers_[static_cast<size_t>(partition.server)];
    if (!takes(peer)) continue;  // it gets all when it is there again
    Outbox& outbox = parts_[order_[place]].outbox;
    const bool link = by_link(partition.server);
    while (const Outbox::Push* push = outbox.NextToSend()) {
      const size_t bytes = push->gradient.bytes().size();
      const bool too_much = link && all + bytes > most;
      if (peer.pushed > 0 && (too_much || peer.pushed + bytes > WindowOf(partition.server))) {
        left = left.value_or(place);
        full = too_much && idle == 0 && !any_near;
        break;
      }
      idle -= link && peer.pushed == 0 && bytes > 0 ? 1 : 0;
      peer.pushed += bytes;
      all += link ? bytes : 0;
      outbox.Sent(*push);
      SendPush(partition.server, partition.slot, *push);
    }
  }
  next_push_ = left.value_or(order_.size());
}

void Worker::SendPulls(int server) {
  if (computing_) return;
  Peer& peer = peers_[static_cast<size_t>(server)];
  for (; peer.next_pull < layout_.OfServer(server).size(); ++peer.next_pull) {
    Part& part = PartOf(server, peer.next_pull);
    if (HasValues(part) || part.asked_for == clock_ + 1) continue;
    const size_t bytes = ValuesOf(Index(server, peer.next_pull)).size_bytes();
    if (peer.pulled > 0 && peer.pulled + bytes > WindowOf(server)) return;
    peer.pulled += bytes;
    part.asked_for = clock_ + 1;
    Send(server, {.kind = Kind::kPull, .slot = static_cast<uint32_t>(peer.next_pull), .clock = clock_});
  }
}

void Worker::SendAgain(int server) {
  Peer& peer = peers_[static_cast<size_t>(server)];
  for (size_t slot = 0; slot < layout_.OfServer(server).size(); ++slot) PartOf(server, slot).outbox.SendAgain();
  peer.pushed = next_push_ = 0;
  SendPushes();
  AskAnew(server);
  SendRowsAsked(server);
}

void Worker::AskAnew(int server) {
  Peer& peer = peers_[static_cast<size_t>(server)];
  for (size_t slot = 0; slot < layout_.OfServer(server).size(); ++slot) PartOf(server, slot).asked_for = 0;
  peer.pulled = peer.next_pull = 0;
  SendPulls(server);
}

void Worker::Send(int server, Message message) {
  message.epoch = options_.epoch;
  message.incarnation = options_.incarnation;
  network_.Send(server, message);
}

}  // namespace gyre::ps
