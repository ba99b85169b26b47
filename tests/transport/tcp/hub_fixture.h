// Hubs under test: one or several ranks on this machine's loopback, and what they are told.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "support/deadline.h"
#include "support/status_matchers.h"
#include "transport/tcp/hub.h"

namespace gyre::tcp {

using absl::StatusCode;
using support::In;
using support::IsOk;
using support::MatchesStatus;
using testing::HasSubstr;
using testing::Optional;

inline const std::string kTestSecret(32, 's');

// Generous: the machine that tests run on is busy.
inline constexpr int kPatience = 30'000;

// A time-out that no live rank of a busy machine exceeds.
HubOptions PatientOptions();

struct TestSetup {
  TestSetup();
  static TestSetup With(const HubOptions& options);
  static TestSetup At(const Endpoint& bind);

  HubOptions options = PatientOptions();
  Endpoint bind;  // 127.0.0.1, any port
  uint64_t epoch = 1;
  std::string secret = kTestSecret;
};

using Peers = std::map<int, PeerAddress>;

// "rank 3 on host h3", there.
PeerAddress AddressOf(int rank, const Endpoint& endpoint);

Endpoint Loopback(uint16_t port);

// A hub with its events. Thread-safe.
class TestHub {
 public:
  // Fails the test if it cannot listen.
  explicit TestHub(int rank, const TestSetup& setup = TestSetup());

  Hub* operator->() { return hub_.get(); }
  PeerAddress address() const { return AddressOf(rank_, hub_->endpoint()); }

  // Each waits for the event, kPatience at most; nullopt if it did not come.
  std::optional<std::string> WaitForLoss(int rank);
  bool WaitUntilLeft(int rank);
  std::optional<Announcement> WaitForAnnouncement(int from);
  std::optional<CallNotice> WaitForCall(int from);

  int losses() const;  // so far
  int departures() const;

 private:
  template <typename Predicate>
  bool Wait(Predicate predicate);

  const int rank_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::string> lost_;
  std::vector<int> left_;
  std::map<int, std::vector<Announcement>> announced_;
  std::map<int, CallNotice> called_;
  std::unique_ptr<Hub> hub_;  // last: its thread uses all the others
};

// Hubs of ranks 0 to size - 1, all started with each other's addresses.
class TestWorld {
 public:
  explicit TestWorld(int size, const TestSetup& setup = TestSetup());

  TestHub& operator[](int rank) { return *hubs_[static_cast<size_t>(rank)]; }
  void Remove(int rank) { hubs_[static_cast<size_t>(rank)].reset(); }

  // Every hub connects with every other; all must succeed.
  void ConnectAll();

 private:
  std::vector<std::unique_ptr<TestHub>> hubs_;
};

// What goes over a stream in tests: differs by seed and place.
std::string Pattern(uint64_t seed, size_t size);

// Sends `out` and receives as many bytes as `in` holds, both at once, in pieces of sizes drawn from the seed; waits as
// the interface says. The error of whichever direction fails first, kDeadlineExceeded at the deadline.
absl::Status Transfer(Streams& streams, int peer, const std::string& out, std::string& in, uint64_t seed,
                      TimePoint deadline);
absl::Status Send(Streams& streams, int peer, const std::string& out, TimePoint deadline);
absl::StatusOr<std::string> Receive(Streams& streams, int peer, size_t size, TimePoint deadline);

// Writes until nothing more was taken for a while; returns how many bytes were.
absl::StatusOr<size_t> Fill(Streams& streams, int peer, size_t limit);

}  // namespace gyre::tcp
