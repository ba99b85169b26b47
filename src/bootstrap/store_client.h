// StoreClient: a connection to the job's store (bootstrap/store_server.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "net/endpoint.h"
#include "net/framing.h"
#include "net/handshake.h"

namespace gyre {

// Every call returns by its deadline. Besides what each says:
//   kUnavailable        the store went away, or (Gather) a rank did: the message names it
//   kInvalidArgument    a key or value beyond the bounds
//   kResourceExhausted  the store is full
// One thread at a time.
class StoreClient {
 public:
  // Retries with a short back-off while nobody listens at `store`. A client of role kRank also joins: it counts as that
  // rank until it is destroyed. The n-th client of a rank meets the n-th client of the others in Gather, so that
  // several runtimes of a process do not mix.
  // `reach`, if earlier than the deadline, is for connecting and the handshake alone.
  // `life`: the how manieth process of its rank this is. A later one takes the place of those before it until the
  // ranks have met.
  //   kDeadlineExceeded    names the endpoint and the last cause
  //   kUnauthenticated     the store holds another secret or serves another job
  //   kFailedPrecondition  the store's job has another size; another process holds the same rank
  //   kAlreadyExists       the ranks have met, and their rank was of an earlier life
  static absl::StatusOr<std::unique_ptr<StoreClient>> Connect(const Endpoint& store, const HandshakeIdentity& self,
                                                              int size, const std::string& secret, TimePoint deadline,
                                                              TimePoint reach = TimePoint::max(), uint64_t life = 1);
  ~StoreClient();

  // This side's address of the connection.
  absl::StatusOr<std::string> LocalAddress() const;

  // Replaces the value.
  absl::Status Set(std::string_view key, std::string_view value, TimePoint deadline);

  // Waits until somebody has set it.
  absl::StatusOr<std::string> Get(std::string_view key, TimePoint deadline);

  // Adds to a counter that starts at 0 and returns its new value.
  absl::StatusOr<int64_t> Add(std::string_view key, int64_t amount, TimePoint deadline);

  // Every rank gives a value under the same name; returns all of them by rank once the last has come. A name may be
  // used again after that. REQUIRES: role kRank.
  //   kDeadlineExceeded  "ranks 2, 3 of 4 did not come": names them, and whom the store refused meanwhile and why
  //   kUnavailable       a rank has left: names it
  absl::StatusOr<std::vector<std::string>> Gather(std::string_view name, std::string_view value, TimePoint deadline);

 private:
  StoreClient(UniqueFd fd, std::string name, uint64_t epoch);
  absl::StatusOr<std::string> Call(uint16_t type, std::string_view payload, TimePoint deadline);
  absl::StatusOr<Frame> ReceiveFrame(TimePoint deadline);

  UniqueFd fd_;
  const std::string name_;  // "the store at host:port"
  const uint64_t epoch_;
  uint32_t sequence_ = 0;
  FrameDecoder decoder_;
  std::string received_;  // bytes that wait for the decoder
  absl::Status broken_;   // once the stream is of no more use
};

}  // namespace gyre
