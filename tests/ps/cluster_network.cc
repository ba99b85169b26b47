// Cluster: what becomes of messages.
#include <algorithm>
#include <iterator>

#include "cluster_process.h"
#include "xxhash.h"

namespace gyre::ps {

void Cluster::Send(Process& from, int to, const Message& message) {
  if (from.is_server) CheckSent(from, to, message);
  // Where it joined; a floor further on: it was given up somewhere, and has gone on from where the others were.
  if (message.kind == Kind::kHeartbeat || (message.kind == Kind::kHello && message.flag)) {
    const auto [joined, first] = joined_.try_emplace({from.number, from.incarnation}, message.clock);
    if (!first && joined->second != message.clock) jumped_.insert(joined->first);
  }
  const bool to_server = !from.is_server;
  if (message.kind == Kind::kPush) {
    CheckPush(from, to, message);
    most_under_way_ = std::max(most_under_way_, static_cast<size_t>(++under_way_[{from.number, to}]));
  }
  const auto lost = [this](uint64_t one_in) { return one_in > 0 && random_.OneIn(one_in); };
  if (cut_.contains({to_server ? to : from.number, to_server ? from.number : to}) || lost(plan_.drop)) return;
  const std::string bytes = Encode(message);
  for (int copies = lost(plan_.duplicate) ? 2 : 1; copies > 0; --copies) {
    const auto late = static_cast<int64_t>(lost(plan_.delay) ? random_.Below(1500) : 1);
    In(late, [this, to_server, to, number = from.number, bytes] { Deliver(to_server, to, number, bytes); });
  }
}

void Cluster::Deliver(bool to_server, int to, int from, const std::string& bytes) {
  const auto lives = (to_server ? servers_ : workers_)[static_cast<size_t>(to)];
  for (const auto& process : lives) {
    if (!process->alive) continue;
    if (process->frozen_until > now()) {
      At(process->frozen_until, [this, to_server, to, from, bytes] { Deliver(to_server, to, from, bytes); });
      return;
    }
    ++messages_;
    const int64_t key[] = {now().time_since_epoch().count(), to_server ? 1 : 0, to, from};
    trace_ = XXH3_64bits_withSeed(key, sizeof(key), trace_);
    trace_ = XXH3_64bits_withSeed(bytes.data(), bytes.size(), trace_);
    const auto message = Decode(bytes);
    if (!message.ok()) return Wrong("a message is not understood");
    if (process->is_server) {
      if (message->incarnation >= process->welcomed[from]) process->heard[from] = now();
      process->server->Receive(from, *message);
    } else {
      if (message->kind == Kind::kAck) --under_way_[{to, from}];
      process->worker->Receive(from, *message);
    }
    Wake(process);
  }
}

void Cluster::SendInRing(Process& from, Side to, const Message& message) {
  const int number = from.number;
  const int other = to == kNext ? NextOf(number) : (number + plan_.servers - 1) % plan_.servers;
  if (to == kBefore && message.kind == Kind::kConfirm) {
    const std::span<const Shard> copy = from.server->follower()->shards();
    for (size_t slot = 0; slot < copy.size(); ++slot) {
      for (size_t worker = 0; worker < workers_.size(); ++worker) {
        uint64_t& there = at_next_[static_cast<size_t>(other)][slot][worker];
        there = std::max(there, copy[slot].Next(static_cast<int>(worker)));
      }
    }
  }
  const Follower* const follower = from.server ? from.server->follower() : nullptr;
  if (to == kBefore && message.kind == Kind::kPiece && follower->has_copy()) {
    given_[{number, from.incarnation}] = {follower->life(), follower->position()};
  }
  const auto lost = [this](uint64_t one_in) { return one_in > 0 && random_.OneIn(one_in); };
  if (severed_.contains(to == kNext ? number : other) || lost(plan_.drop)) return;
  const std::string bytes = Encode(message);
  for (int copies = lost(plan_.duplicate) ? 2 : 1; copies > 0; --copies) {
    const auto late = static_cast<int64_t>(lost(plan_.delay) ? random_.Below(1500) : 1);
    In(late, [this, other, side = to == kNext ? kBefore : kNext, bytes] { DeliverInRing(other, side, bytes); });
  }
}

void Cluster::DeliverInRing(int to, Side from, const std::string& bytes) {
  const auto lives = servers_[static_cast<size_t>(to)];
  for (const auto& process : lives) {
    if (!process->alive) continue;
    if (process->frozen_until > now()) {
      At(process->frozen_until, [this, to, from, bytes] { DeliverInRing(to, from, bytes); });
      return;
    }
    ++messages_;
    const int64_t key[] = {now().time_since_epoch().count(), 2, to, from};
    trace_ = XXH3_64bits_withSeed(key, sizeof(key), trace_);
    trace_ = XXH3_64bits_withSeed(bytes.data(), bytes.size(), trace_);
    const auto message = Decode(bytes);
    if (!message.ok()) return Wrong("a message between servers is not understood");
    const bool recovering = process->server->recovering();
    process->server->ReceiveFromServer(from, *message);
    if (recovering && !process->server->recovering()) {
      const auto given = given_.find({NextOf(to), message->incarnation});
      if (process->server->recovered()) {
        ++recoveries_;
        const auto& known = histories_[{to, given->second.first}];
        process->history = std::prev(known.upper_bound(given->second.second))->second;
        histories_[{to, process->incarnation}][0] = process->history;
      }
      CheckRecovered(*process);
    }
    Wake(process);
  }
}

}  // namespace gyre::ps
