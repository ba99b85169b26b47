// Worker: what it says to servers, and when.
#include <algorithm>
#include <span>

#include "ps/worker.h"

namespace gyre::ps {

void Worker::SayHello(int server) {
  Peer& peer = peers_[static_cast<size_t>(server)];
  const auto wait = static_cast<uint64_t>(options_.timing.resend.count());
  peer.next_hello = time_.Now() + Duration(static_cast<int64_t>(wait / 2 + random_.Next() % (wait / 2 + 1)));
  Send(server, {.kind = Kind::kHello,
                .layout = layout_.fingerprint(),
                .flag = joined_,
                .clock = joined_ ? floor_ : 0,
                .next = Oldest(server)});
}

void Worker::SendHeartbeat(int server) {
  peers_[static_cast<size_t>(server)].next_heartbeat = time_.Now() + options_.timing.heartbeat;
  Send(server, {.kind = Kind::kHeartbeat, .clock = floor_, .next = Oldest(server)});
}

void Worker::SendModel(int server) {
  if (!options_.has_first_values) return;
  for (size_t slot = 0; slot < layout_.OfServer(server).size(); ++slot) {
    Send(server, {.kind = Kind::kInit,
                  .slot = static_cast<uint32_t>(slot),
                  .values = std::as_bytes(ValuesOf(Index(server, slot)))});
  }
}

void Worker::SendPush(int server, int slot, const Outbox::Push& push) {
  Send(server, {.kind = Kind::kPush,
                .slot = static_cast<uint32_t>(slot),
                .from = push.from,
                .sequence = push.sequence,
                .rate = push.rate,
                .values = push.gradient.bytes(),
                .keeper = push.gradient});
}

void Worker::SendPushes(int server) {
  Peer& peer = peers_[static_cast<size_t>(server)];
  for (; peer.next_push < layout_.OfServer(server).size(); ++peer.next_push) {
    Outbox& outbox = PartOf(server, peer.next_push).outbox;
    while (const Outbox::Push* push = outbox.NextToSend()) {
      const size_t bytes = push->gradient.bytes().size();
      if (peer.pushed > 0 && peer.pushed + bytes > options_.window) return;
      peer.pushed += bytes;
      outbox.Sent(*push);
      SendPush(server, static_cast<int>(peer.next_push), *push);
    }
  }
}

void Worker::SendPulls(int server) {
  if (computing_) return;
  Peer& peer = peers_[static_cast<size_t>(server)];
  for (; peer.next_pull < layout_.OfServer(server).size(); ++peer.next_pull) {
    Part& part = PartOf(server, peer.next_pull);
    if (HasValues(part) || part.asked_for == clock_ + 1) continue;
    const size_t bytes = ValuesOf(Index(server, peer.next_pull)).size_bytes();
    if (peer.pulled > 0 && peer.pulled + bytes > options_.window) return;
    peer.pulled += bytes;
    part.asked_for = clock_ + 1;
    Send(server, {.kind = Kind::kPull, .slot = static_cast<uint32_t>(peer.next_pull), .clock = clock_});
  }
}

void Worker::SendAgain(int server) {
  Peer& peer = peers_[static_cast<size_t>(server)];
  for (size_t slot = 0; slot < layout_.OfServer(server).size(); ++slot) PartOf(server, slot).outbox.SendAgain();
  peer.pushed = peer.next_push = 0;
  SendPushes(server);
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
