// The store's messages: payloads of frames (net/framing.h). docs/wire_format.md has the layouts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gyre {

inline constexpr size_t kMaxStoreKeyBytes = 1 << 10;
inline constexpr size_t kMaxStoreValueBytes = 1 << 20;
inline constexpr uint32_t kMaxStoreRequestBytes = kMaxStoreKeyBytes + kMaxStoreValueBytes + 64;
inline constexpr uint32_t kMaxStoreReplyBytes = 16 << 20;
inline constexpr size_t kMaxStoredBytes = 256 << 20;

// A frame's type.
enum class StoreMessage : uint16_t { kJoin = 1, kSet = 2, kGet = 3, kAdd = 4, kGather = 5, kReply = 6 };

// A reply's frame has its request's sequence number, the absl::StatusCode in `flags`, and as payload the result or the
// error's message.

// One struct for all requests: each uses the fields its kind needs.
struct StoreRequest {
  StoreMessage kind = StoreMessage::kJoin;
  std::string_view key{};    // Set, Get, Add, Gather (the name)
  std::string_view value{};  // Set, Gather
  int64_t amount = 0;        // Add
  uint32_t timeout_ms = 0;   // Get, Gather: how long the client waits
  uint32_t size = 0;         // Join: ranks of the job, as the client believes
  uint32_t process = 0;      // Join: process id
  uint64_t life = 1;         // Join: the how manieth process of the rank this is
};

std::string EncodeRequest(const StoreRequest& request);

// The views point into `payload`. kInvalidArgument: malformed, beyond the bounds, or not a request.
absl::StatusOr<StoreRequest> DecodeRequest(uint16_t type, std::string_view payload);

absl::Status CheckKey(std::string_view key);
absl::Status CheckValue(std::string_view value);

// The result of a Gather.
std::string EncodeValues(const std::vector<std::string>& values);
absl::StatusOr<std::vector<std::string>> DecodeValues(std::string_view payload);

}  // namespace gyre
