// CountedStreams: other streams, and how many bytes they take to be sent.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/streams.h"

namespace gyre {

class CountedStreams final : public Streams {
 public:
  // Adds what Write takes to `written`, which outlives it and may be read from any thread.
  CountedStreams(std::unique_ptr<Streams> streams, std::atomic<int64_t>& written)
      : streams_(std::move(streams)), written_(written) {}

  absl::StatusOr<size_t> Write(int peer, std::span<const Bytes> pieces) override {
    auto taken = streams_->Write(peer, pieces);
    if (taken.ok()) written_.fetch_add(static_cast<int64_t>(*taken), std::memory_order_relaxed);
    return taken;
  }

  absl::StatusOr<size_t> Read(int peer, MutableBytes into) override { return streams_->Read(peer, into); }

  void AddWaits(int peer, bool to_read, bool to_write, std::vector<pollfd>& waits) const override {
    streams_->AddWaits(peer, to_read, to_write, waits);
  }

 private:
  const std::unique_ptr<Streams> streams_;
  std::atomic<int64_t>& written_;
};

}  // namespace gyre
