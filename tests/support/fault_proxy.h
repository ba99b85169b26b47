// FaultProxy: a TCP proxy on loopback between clients and one target, which does to the bytes what networks do.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "net/endpoint.h"

namespace gyre::support {

enum class Direction { kToTarget, kToClient };

// What happens to one direction of a connection.
struct Fault {
  enum class Kind {
    kNone,
    kDelay,      // every byte comes `delay` later
    kFlip,       // the lowest bit of byte `at` (from 0) is inverted, unless it has passed
    kDrop,       // everything from byte `at` on is swallowed, the end too; the connection stays
    kTruncate,   // after `at` bytes the connection is closed
    kHalfClose,  // after `at` bytes this direction ends in order; the rest is swallowed
    kReset,      // after `at` bytes both sides' connections are reset
  };
  Kind kind = Kind::kNone;
  int64_t at = 0;  // of the direction's bytes since the connection began; fewer than have passed: at once
  std::chrono::milliseconds delay{};
  int connection = kAll;  // in the order in which they came, from 0

  static constexpr int kAll = -1;
};

// Thread-safe. One thread of its own. Bytes it holds back are bounded, so that a full stream stays full.
class FaultProxy {
 public:
  // Fails the test if it cannot listen.
  explicit FaultProxy(const Endpoint& target);
  // Closes all connections.
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  // Where clients are to connect.
  Endpoint endpoint() const;

  // From now on, in place of what that direction had before: for connections that are there and those to come.
  void Set(Direction direction, const Fault& fault);

  // How many connections came so far.
  int connections() const;

  // How many bytes the connection's direction has taken in; 0 if it never was.
  int64_t bytes(int connection, Direction direction) const;

 private:
  class State;

  std::unique_ptr<State> state_;
};

}  // namespace gyre::support
