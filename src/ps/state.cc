#include "ps/state.h"

#include "base/status.h"
#include "net/bytes.h"

namespace gyre::ps {

namespace {

constexpr size_t kRosterEntry = 13;  // bytes

}  // namespace

std::string EncodeRoster(const Roster& roster) {
  return Written([&](WireWriter& writer) {
    writer.U32(static_cast<uint32_t>(roster.entries().size()));
    for (const auto& [worker, entry] : roster.entries()) {
      writer.I32(worker);
      writer.U64(entry.incarnation);
      writer.U8(entry.member ? 1 : 0);
    }
  });
}

absl::Status RestoreRoster(std::string_view bytes, Roster& roster, TimePoint now) {
  WireReader reader(bytes);
  const uint32_t workers = reader.U32();
  for (uint32_t i = 0; i < workers && reader.ok(); ++i) {
    const int worker = reader.I32();
    const uint64_t incarnation = reader.U64();
    const bool member = reader.U8() != 0;
    if (!reader.ok()) break;
    roster.Know(worker, incarnation);
    if (member) roster.Join(worker, now);
  }
  return reader.AtEnd() ? absl::OkStatus() : absl::DataLossError("a list of workers does not fit");
}

std::string EncodeContent(uint64_t layout, std::string_view roster, std::span<const Shard> shards) {
  return Written([&](WireWriter& writer) {
    writer.U64(layout);
    writer.Raw(roster);
    for (const Shard& shard : shards) {
      const std::string bytes = shard.Save();
      writer.U64(bytes.size());
      writer.Raw(bytes);
    }
  });
}

absl::StatusOr<std::string_view> RestoreContent(std::string_view bytes, uint64_t layout, std::span<Shard> shards) {
  WireReader reader(bytes);
  if (reader.U64() != layout) return absl::DataLossError("the snapshot is of another layout");
  const uint32_t workers = reader.U32();
  reader.Raw(workers * kRosterEntry);
  if (!reader.ok()) return absl::DataLossError("the snapshot is cut short");
  const std::string_view roster = bytes.substr(sizeof(uint64_t), sizeof(uint32_t) + workers * kRosterEntry);
  for (Shard& shard : shards) {
    const std::string_view own = reader.Raw(reader.U64());
    if (!reader.ok()) return absl::DataLossError("the snapshot is cut short");
    RETURN_IF_ERROR(shard.Restore(own));
  }
  if (!reader.AtEnd()) return absl::DataLossError("the snapshot is too long");
  return roster;
}

std::string EncodeWhole(uint64_t layout, std::string_view roster, std::span<const Shard> shards) {
  return Written([&](WireWriter& writer) {
    const std::string content = EncodeContent(layout, roster, shards);
    writer.U64(content.size());
    writer.Raw(content);
    for (const Shard& shard : shards) {
      const std::string held = shard.SaveHeld();
      writer.U64(held.size());
      writer.Raw(held);
    }
  });
}

absl::StatusOr<std::string_view> RestoreWhole(std::string_view bytes, uint64_t layout, std::span<Shard> shards) {
  WireReader reader(bytes);
  const std::string_view content = reader.Raw(reader.U64());
  ASSIGN_OR_RETURN(const std::string_view roster, RestoreContent(content, layout, shards));
  for (Shard& shard : shards) {
    const std::string_view held = reader.Raw(reader.U64());
    if (!reader.ok()) return absl::DataLossError("the state is cut short");
    RETURN_IF_ERROR(shard.RestoreHeld(held));
  }
  if (!reader.AtEnd()) return absl::DataLossError("the state is too long");
  return roster;
}

}  // namespace gyre::ps
