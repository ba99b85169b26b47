// Worker: rows of tables.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ps/worker.h"

namespace gyre::ps {

void Worker::AddMarks() {
  marks_.resize(layout_.partitions().size() - values_.size());
  for (float& mark : marks_) values_.emplace_back(&mark, 1);
}

void Worker::AddRows(size_t partition, uint64_t step, std::span<const Floats> rows) {
  const Partition& part = layout_.partitions()[partition];
  const auto servers = static_cast<size_t>(layout_.servers());
  const size_t place = static_cast<size_t>(part.table) * servers + static_cast<size_t>(part.server);
  Floats pushed = place < rows.size() && rows[place] ? rows[place] : NoRows();
  pushed_bytes_ += static_cast<int64_t>(pushed.bytes().size());
  parts_[partition].outbox.Add(step, rate_, std::move(pushed), 0);
}

void Worker::Trim(int server, size_t slot) {
  const bool of_table = layout_.partitions()[Index(server, slot)].table >= 0;
  PartOf(server, slot)
      .outbox.Trim(of_table ? SIZE_MAX : options_.retain, of_table ? options_.retain_row_bytes : SIZE_MAX);
}

absl::Status Worker::AskRows(int table, std::span<const int64_t> ids) {
  rows_.reset();
  if (!computing_) return absl::FailedPreconditionError("rows are asked for, but no step has begun");
  if (table < 0 || table >= std::ssize(layout_.tables())) {
    return absl::InvalidArgumentError(absl::StrCat("there is no table ", table, " of ", layout_.tables().size()));
  }
  ASSIGN_OR_RETURN(RowRequest request,
                   RowRequest::Create(layout_.tables()[static_cast<size_t>(table)], layout_.servers(), ids));
  rows_ = {.table = table,
           .clock = *computing_,
           .question = questions_++,
           .request = std::move(request),
           .answers = std::vector<Floats>(static_cast<size_t>(layout_.servers()))};
  for (int server = 0; server < layout_.servers(); ++server) {
    const Peer& peer = peers_[static_cast<size_t>(server)];
    if (peer.member && peer.ready) SendRowsAsked(server);
  }
  return absl::OkStatus();
}

std::optional<int> Worker::MissingRows() const {
  for (int server = 0; rows_ && server < layout_.servers(); ++server) {
    if (rows_->request.FloatsFrom(server) > 0 && !rows_->answers[static_cast<size_t>(server)]) return server;
  }
  return std::nullopt;
}

void Worker::SendRowsAsked(int server) {
  if (!rows_ || rows_->request.FloatsFrom(server) == 0 || rows_->answers[static_cast<size_t>(server)]) return;
  const Floats& ids = rows_->request.ids(server);
  Send(server, {.kind = Kind::kPullRows,
                .slot = static_cast<uint32_t>(layout_.SlotOf(rows_->table, server)),
                .sequence = rows_->question,
                .clock = rows_->clock,
                .values = ids.bytes(),
                .keeper = ids});
}

void Worker::TakeRows(int server, const Message& message) {
  if (!rows_ || message.sequence != rows_->question || message.clock != rows_->clock) return;
  if (message.slot != static_cast<uint32_t>(layout_.SlotOf(rows_->table, server))) return;
  Floats& answer = rows_->answers[static_cast<size_t>(server)];
  if (answer || message.values.size() != rows_->request.FloatsFrom(server) * sizeof(float)) return;
  answer = message.keeper ? message.keeper : Floats::CopyOf(message.values);
  pulled_bytes_ += static_cast<int64_t>(message.values.size());
  Peer& peer = peers_[static_cast<size_t>(server)];
  peer.next_resend = time_.Now() + options_.timing.resend;
}

}  // namespace gyre::ps
