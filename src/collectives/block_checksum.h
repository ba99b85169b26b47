// BlockChecksum: of a block's bytes as they go by, in the order in which they go.
#pragma once

#include <xxhash.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "net/bytes.h"

namespace gyre::internal {

// XXH3-64. Nothing is allocated until Start.
class BlockChecksum {
 public:
  using Encoded = std::array<std::byte, 8>;

  // Begins a block.
  void Start() {
    if (state_ == nullptr) state_.reset(XXH3_createState());
    XXH3_64bits_reset(state_.get());
  }

  // REQUIRES: Start was called.
  void Add(Bytes bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }

  // Little-endian.
  Encoded Finish() const {
    Encoded encoded;
    const uint64_t value = XXH3_64bits_digest(state_.get());
    for (size_t i = 0; i < encoded.size(); ++i) encoded[i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
    return encoded;
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

}  // namespace gyre::internal
