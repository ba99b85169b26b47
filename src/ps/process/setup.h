// Setup: what the workers of a job tell a server first on every connection: what to hold, and how to update it. All
// say the same, byte for byte. Layout: docs/wire_format.md. Pure.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compression/payload.h"
#include "ps/layout.h"
#include "ps/options.h"
#include "ps/shard.h"

namespace gyre::ps {

struct Setup {
  std::vector<Tensor> tensors{};
  std::vector<Table> tables{};
  int servers = 1;
  int workers = 1;
  Consistency consistency{};
  Rule rule{};
  std::chrono::milliseconds snapshot_interval{2000};
  compression::PayloadKind values_as = compression::PayloadKind::kF32;  // how servers send values (IsForValues)
  int replicas = 0;  // at most 1: each server's state is also held by the next one
};

std::string Encode(const Setup& setup);

// kInvalidArgument: malformed. Whether its values make sense is for Layout::Create and Server::Start to say.
absl::StatusOr<Setup> DecodeSetup(std::string_view payload);

}  // namespace gyre::ps
