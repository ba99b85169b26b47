// Values as payloads (compression/payload.h): rounded by the server for the way, and read by workers. What is rounded
// is a copy: the server's own values stay what they are, so that rounding adds nothing up, and nothing is kept. Pure;
// one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/payload.h"
#include "net/bytes.h"
#include "ps/floats.h"

namespace gyre::ps {

// Whether values may be sent as such payloads: kF32 (as they are), kF16, kBF16 or kInt8.
bool IsForValues(compression::PayloadKind kind);

// Of one partition, at its server. Workers that ask for the same values get the same payload, made once.
class ValueEncoder {
 public:
  struct Encoded {
    Floats words;      // with zeros behind the payload
    size_t bytes = 0;  // of the payload; 0: it would not be smaller, and there is none
  };
  // `version`: differs where values do. REQUIRES: IsForValues(kind), and not kF32
  const Encoded& Encode(compression::PayloadKind kind, std::span<const float> values, uint64_t version,
                        const MakeFloats& make);

 private:
  bool any_ = false;
  uint64_t version_ = 0;
  Encoded encoded_;
  std::vector<std::byte> payload_;
};

// Replaces `values` by those of a payload. False, and nothing is changed, if the bytes are not a payload of as many
// values.
bool DecodeValues(Bytes payload, std::span<float> values);

}  // namespace gyre::ps
