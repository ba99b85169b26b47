// The frames that hubs exchange. Layout: docs/wire_format.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/framing.h"
#include "transport/signature.h"

namespace gyre::tcp {

inline constexpr uint32_t kMaxControlPayload = 4096;
inline constexpr size_t kMaxTextBytes = 2048;  // of a message; what is longer is cut

enum class FrameType : uint16_t {
  kPurpose = 1,       // the first on every connection, from the side that connected
  kHeartbeat = 2,     // empty
  kAnnouncement = 3,  // Announcement
  kLoss = 4,          // Loss
  kGoodbye = 5,       // empty; nothing follows
  kCall = 6,          // CallNotice
};

// What a connection is for.
struct Purpose {
  bool control = false;
  uint64_t channel = 0;  // of a data connection

  friend bool operator==(const Purpose&, const Purpose&) = default;
};

inline constexpr size_t kPurposePayload = 16;
inline constexpr size_t kPurposeFrameBytes = kFrameHeaderBytes + kPurposePayload;

// "This communicator is broken, because".
struct Announcement {
  uint64_t communicator = 0;
  absl::StatusCode code = absl::StatusCode::kUnknown;  // not kOk
  int rank = -1;                                       // who is to blame, or -1
  std::string text;

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

// "`rank` is lost": to the others, and to itself, should it still be there.
struct Loss {
  int rank = -1;
  int reporter = -1;  // who found out
  std::string text;

  friend bool operator==(const Loss&, const Loss&) = default;
};

// "This rank waits in this call": the hearer compares it with its own of the same number.
struct CallNotice {
  uint64_t communicator = 0;
  uint64_t number = 0;  // of the call in the communicator
  Signature signature{};

  friend bool operator==(const CallNotice&, const CallNotice&) = default;
};

// The whole frame, as the first on its connection.
std::string EncodePurpose(uint64_t epoch, const Purpose& purpose);

// Payloads.
std::string Encode(const Announcement& announcement);
std::string Encode(const Loss& loss);
std::string Encode(const CallNotice& notice);

// Their inverses: kDataLoss says what does not fit. The type of the frame is the caller's to look at.
absl::StatusOr<Purpose> DecodePurpose(std::string_view payload);
absl::StatusOr<Announcement> DecodeAnnouncement(std::string_view payload);
absl::StatusOr<Loss> DecodeLoss(std::string_view payload);
absl::StatusOr<CallNotice> DecodeCallNotice(std::string_view payload);

// Whether a frame's epoch and place in its stream are those expected; kDataLoss if not.
absl::Status CheckHeader(const FrameHeader& header, uint64_t epoch, uint32_t sequence);

}  // namespace gyre::tcp
