// A server's state as bytes: what its snapshots hold, and, where another server is to go on from it, the pushes that
// are held as well. Layouts: docs/wire_format.md. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "ps/roster.h"
#include "ps/shard.h"

namespace gyre::ps {

std::string EncodeRoster(const Roster& roster);

// Into a new roster; members are heard now. kDataLoss: malformed.
absl::Status RestoreRoster(std::string_view bytes, Roster& roster, TimePoint now);

// `roster`: as EncodeRoster has it. `layout`: Layout::fingerprint.
std::string EncodeContent(uint64_t layout, std::string_view roster, std::span<const Shard> shards);

// Into new shards; returns the roster, which is in `bytes`. kDataLoss: it is of another layout, or does not fit.
absl::StatusOr<std::string_view> RestoreContent(std::string_view bytes, uint64_t layout, std::span<Shard> shards);

// The same with the held pushes.
std::string EncodeWhole(uint64_t layout, std::string_view roster, std::span<const Shard> shards);
absl::StatusOr<std::string_view> RestoreWhole(std::string_view bytes, uint64_t layout, std::span<Shard> shards);

}  // namespace gyre::ps
