// StripedStreams: one channel's bytes dealt out to several channels in turn, for links that one TCP connection does not
// fill. Byte b of a direction goes by channel (b / kStripe) modulo their number, so both ends must have as many.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "transport/streams.h"

namespace gyre {

class StripedStreams final : public Streams {
 public:
  // Long enough that a system call moves much, short enough that each connection's buffer holds some: while one is
  // written to, the others send what they hold.
  static constexpr int64_t kStripe = 128 << 10;

  // REQUIRES: `channels` is not empty; all have the same peers.
  explicit StripedStreams(std::vector<std::unique_ptr<Streams>> channels) : channels_(std::move(channels)) {}

  absl::StatusOr<size_t> Write(int peer, std::span<const Bytes> pieces) override;
  absl::StatusOr<size_t> Read(int peer, MutableBytes into) override;
  void AddWaits(int peer, bool to_read, bool to_write, std::vector<pollfd>& waits) const override;

 private:
  // Bytes that have gone each way.
  struct Passed {
    int64_t written = 0;
    int64_t read = 0;
  };

  size_t ChannelOf(int64_t passed) const { return static_cast<size_t>(passed / kStripe) % channels_.size(); }
  static int64_t LeftOf(int64_t passed) { return kStripe - passed % kStripe; }

  const std::vector<std::unique_ptr<Streams>> channels_;
  std::map<int, Passed> passed_;  // by peer
};

}  // namespace gyre
