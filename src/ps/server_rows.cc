// Server: rows of tables that workers ask for. Their pushes are those of partitions.
#include <utility>

#include "ps/server.h"

namespace gyre::ps {

// One question of a worker's a table: a newer one takes the place of what it does not wait for any more.
void Server::PullRows(int worker, const Message& message) {
  const RowTable* const table = shards_[message.slot].rows();
  if (!ready_ || table == nullptr || !table->FloatsFor(message.values)) return;
  RowsAsked& asked = rows_asked_[message.slot][worker];
  if (asked.incarnation == message.incarnation && message.sequence < asked.question) return;  // was overtaken
  Floats ids = message.keeper ? message.keeper : Floats::CopyOf(message.values);
  asked = {message.incarnation, message.clock, message.sequence, std::move(ids)};
  MovedIn(static_cast<int>(message.slot));
}

// As values of partitions: not before its worker may have them.
void Server::AnswerRows(int slot, std::optional<uint64_t> least) {
  const Shard& shard = shards_[static_cast<size_t>(slot)];
  std::map<int, RowsAsked>& asked = rows_asked_[static_cast<size_t>(slot)];
  for (auto next = asked.begin(); next != asked.end();) {
    const int worker = next->first;
    // A later life of the worker has questions of its own, by the same numbers.
    const bool member = roster_.IsMember(worker) && roster_.incarnation(worker) == next->second.incarnation;
    if (member && !shard.Serves(worker, next->second.clock, least)) {
      ++next;
      continue;
    }
    const RowsAsked question = std::move(next->second);
    next = asked.erase(next);
    if (!member) continue;
    Floats rows(shard.rows()->FloatsFor(question.ids.bytes()).value_or(0));
    shard.rows()->Read(question.ids.bytes(), rows.writable());
    Send(worker, {.kind = Kind::kRows,
                  .slot = static_cast<uint32_t>(slot),
                  .sequence = question.question,
                  .clock = question.clock,
                  .values = rows.bytes(),
                  .keeper = rows});
  }
}

}  // namespace gyre::ps
