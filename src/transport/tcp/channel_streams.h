// ChannelStreams: Streams over a TCP connection with each peer. Bytes go straight between the caller's memory and the
// socket, on the caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "transport/streams.h"
#include "transport/tcp/switchboard.h"

namespace gyre::tcp {

class ChannelStreams final : public Streams {
 public:
  // `want(peer)`: called once a peer, before its connection is first looked for; `forget()`: at the end. Both on the
  // caller's thread. `board` must outlive the streams.
  ChannelStreams(Switchboard& board, uint64_t channel, const std::vector<int>& peers, std::function<void(int)> want,
                 std::function<void()> forget);
  ~ChannelStreams() override;

  absl::StatusOr<size_t> Write(int peer, std::span<const Bytes> pieces) override;
  absl::StatusOr<size_t> Read(int peer, MutableBytes into) override;
  void AddWaits(int peer, bool to_read, bool to_write, std::vector<pollfd>& waits) const override;

 private:
  struct End {
    TimePoint seen;
    int error_number;  // 0: in order
  };
  struct Peer {
    DataConnection connection;
    bool wanted = false;
    std::optional<End> reading;  // the end of what it sends
    std::optional<End> writing;  // of what it takes
  };

  absl::StatusOr<Peer*> Connected(int rank);
  absl::StatusOr<size_t> Ended(int rank, std::optional<End>& end, int error_number) const;

  Switchboard& board_;
  const uint64_t channel_;
  const std::function<void(int)> want_;
  const std::function<void()> forget_;
  std::map<int, Peer> peers_;
};

}  // namespace gyre::tcp
