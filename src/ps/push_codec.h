// Pushes as payloads (compression/codec.h): what a worker makes of its gradients, and what a server reads in them.
//
// Each partition has a codec of its own, which keeps what it does not send and adds it to the next gradient: that is
// the worker's, and lost with it. A payload is made once, when its step ends, and kept as it is until no server needs
// it: what is pushed again is the same, to the byte. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compression/codec.h"
#include "compression/dgc.h"
#include "gyre/compression.h"
#include "net/bytes.h"
#include "ps/floats.h"
#include "ps/layout.h"

namespace gyre::ps {

// Payloads travel in whole floats, with zeros behind them.
constexpr size_t WordsOf(size_t payload_bytes) {
  return (payload_bytes + sizeof(float) - 1) / sizeof(float);
}

struct PushCompression {
  Compression compression = NoCompression{};
  int workers = 1;  // for Dgc::clip
  // By tensor, those that it is not for: they go as they are (with a Dgc, with momentum applied). Empty: it is for all.
  std::vector<bool> dense{};
};

class PushCodec {
 public:
  // `worker`: its number, from which lots are drawn. kInvalidArgument: see MakeCodec; PowerSgd is one of those.
  static absl::StatusOr<PushCodec> Create(const PushCompression& options, const Layout& layout, int worker);

  // Step `step`, of which `gradient` is the whole, is about to be encoded. kFailedPrecondition, with nothing changed:
  // it has what is not finite, and the Dgc says kRefuse.
  absl::Status BeginStep(uint64_t step, std::span<const float> gradient);

  // A partition's push: a payload, or floats where these would not be larger.
  struct Encoded {
    Bytes bytes{};         // until the next Encode, or as long as the gradient
    bool payload = false;  // otherwise floats
    bool steady = false;   // as large in every step
  };
  // Each partition once a step.
  Encoded Encode(size_t partition, std::span<const float> gradient);

 private:
  struct Entry {
    bool dense = false;
    std::unique_ptr<compression::Codec> codec;  // none: the gradient as it is
    compression::DgcTensor* dgc = nullptr;      // the same, of a Dgc
  };
  PushCodec(std::optional<Dgc> dgc, int workers) : dgc_(std::move(dgc)), workers_(workers) {}

  std::optional<Dgc> dgc_;
  int workers_;
  std::vector<Entry> entries_;  // by partition
  int64_t step_ = 0;
  std::vector<std::byte> payload_;
  std::vector<float> floats_;
  compression::Decoder decoder_;
};

class PushDecoder {
 public:
  // The gradient of `count` elements that a payload stands for, or nothing if it is none of these. Memory that nobody
  // holds any more is used again.
  Floats Decode(Bytes payload, size_t count);

 private:
  Floats Make(size_t count);

  compression::Decoder decoder_;
  std::vector<Floats> made_;  // the last ones
  size_t next_ = 0;           // of these, to be replaced
};

}  // namespace gyre::ps
