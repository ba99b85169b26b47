// ChannelStreams: Streams over an exchange.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "transport/streams.h"
#include "transport/ucx/exchange.h"

namespace gyre::ucx {

class ChannelStreams final : public Streams {
 public:
  ChannelStreams(std::shared_ptr<Exchange> exchange, uint64_t channel, const std::vector<int>& peers);
  ~ChannelStreams() override;

  absl::StatusOr<size_t> Write(int peer, std::span<const Bytes> pieces) override;
  absl::StatusOr<size_t> Read(int peer, MutableBytes into) override;
  void AddWaits(int peer, bool to_read, bool to_write, std::vector<pollfd>& waits) const override;

 private:
  absl::StatusOr<Exchange::Slot*> Find(int peer) const;

  const std::shared_ptr<Exchange> exchange_;
  const uint64_t channel_;
  Bell bell_;
  std::map<int, Exchange::Slot*> slots_;  // by peer
};

}  // namespace gyre::ucx
