#include "transport/tcp/hub_fixture.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::tcp {

HubOptions PatientOptions() {
  return {.heartbeat_interval = std::chrono::milliseconds(50), .heartbeat_timeout = std::chrono::seconds(20)};
}

TestSetup::TestSetup() : bind(Loopback(0)) {}

TestSetup TestSetup::With(const HubOptions& options) {
  TestSetup setup;
  setup.options = options;
  return setup;
}

TestSetup TestSetup::At(const Endpoint& bind) {
  TestSetup setup;
  setup.bind = bind;
  return setup;
}

PeerAddress AddressOf(int rank, const Endpoint& endpoint) {
  return {endpoint, absl::StrCat("rank ", rank, " on host h", rank)};
}

Endpoint Loopback(uint16_t port) {
  return {"127.0.0.1", port};
}

// --- TestHub ---

TestHub::TestHub(int rank, const TestSetup& setup) : rank_(rank) {
  HubEvents events;
  events.on_lost = [this](int lost, const std::string& text) {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(lost_.contains(lost)) << "lost twice: " << text;
    EXPECT_EQ(std::ranges::count(left_, lost), 0);
    lost_[lost] = text;
    changed_.notify_all();
  };
  events.on_gave_up = events.on_lost;
  events.on_left = [this](int left) {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(std::ranges::count(left_, left), 0);
    EXPECT_FALSE(lost_.contains(left));
    left_.push_back(left);
    changed_.notify_all();
  };
  events.on_announcement = [this](int from, const Announcement& announcement) {
    const std::lock_guard lock(mutex_);
    announced_[from].push_back(announcement);
    changed_.notify_all();
  };
  events.on_call = [this](int from, const CallNotice& notice) {
    const std::lock_guard lock(mutex_);
    called_[from] = notice;
    changed_.notify_all();
  };
  auto hub = Hub::Listen({"job", setup.epoch, rank, Role::kRank}, setup.secret, setup.bind, setup.options,
                         std::move(events), MakeLogger(LogLevel::kOff, absl::StrCat("rank ", rank)), In(kPatience));
  EXPECT_THAT(hub, IsOk());
  if (hub.ok()) hub_ = *std::move(hub);
}

template <typename Predicate>
bool TestHub::Wait(Predicate predicate) {
  std::unique_lock lock(mutex_);
  // The system clock's waits are those that ThreadSanitizer sees.
  return changed_.wait_until(lock, std::chrono::system_clock::now() + std::chrono::milliseconds(kPatience), predicate);
}

std::optional<std::string> TestHub::WaitForLoss(int rank) {
  if (!Wait([&] { return lost_.contains(rank); })) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return lost_[rank];
}

bool TestHub::WaitUntilLeft(int rank) {
  return Wait([&] { return std::ranges::count(left_, rank) == 1; });
}

std::optional<Announcement> TestHub::WaitForAnnouncement(int from) {
  if (!Wait([&] { return !announced_[from].empty(); })) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return announced_[from].front();
}

std::optional<CallNotice> TestHub::WaitForCall(int from) {
  if (!Wait([&] { return called_.contains(from); })) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return called_[from];
}

int TestHub::losses() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(lost_.size());
}

int TestHub::departures() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(left_.size());
}

// --- TestWorld ---

TestWorld::TestWorld(int size, const TestSetup& setup) {
  for (int rank = 0; rank < size; ++rank) hubs_.push_back(std::make_unique<TestHub>(rank, setup));
  for (int rank = 0; rank < size; ++rank) {
    std::map<int, PeerAddress> peers;
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) peers[peer] = (*this)[peer].address();
    }
    EXPECT_THAT((*this)[rank]->Start(peers), IsOk());
  }
}

void TestWorld::ConnectAll() {
  const int size = static_cast<int>(hubs_.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([this, rank, size] {
      std::vector<int> peers;
      for (int peer = 0; peer < size; ++peer) {
        if (peer != rank) peers.push_back(peer);
      }
      EXPECT_THAT((*this)[rank]->Connect(peers, In(kPatience)), IsOk());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// --- Streams ---

std::string Pattern(uint64_t seed, size_t size) {
  std::mt19937_64 random(seed);
  std::string text(size, '\0');
  for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(text.data() + i, &word, std::min(sizeof(word), size - i));
  }
  return text;
}

absl::Status Transfer(Streams& streams, int peer, const std::string& out, std::string& in, uint64_t seed,
                      TimePoint deadline) {
  std::minstd_rand random(static_cast<uint32_t>(seed));
  Bytes left = AsBytes(out);
  MutableBytes room = AsMutableBytes(in);
  while (!left.empty() || !room.empty()) {
    // Three pieces, one of them empty at times.
    const size_t first = std::min<size_t>(random() % 100'003, left.size());
    const size_t second = std::min<size_t>(random() % 3, left.size() - first);
    const Bytes pieces[] = {left.first(first), left.subspan(first, second),
                            left.subspan(first + second).first(std::min<size_t>(7, left.size() - first - second))};
    ASSIGN_OR_RETURN(const size_t written, streams.Write(peer, pieces));
    left = left.subspan(written);
    ASSIGN_OR_RETURN(const size_t read,
                     streams.Read(peer, room.first(std::min<size_t>(random() % 65'537, room.size()))));
    room = room.subspan(read);
    if (written + read > 0) continue;
    const TimePoint now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(left.size(), " bytes to send, ", room.size(), " to receive"));
    }
    std::vector<pollfd> waits;
    streams.AddWaits(peer, !room.empty(), !left.empty(), waits);
    poll(waits.data(), waits.size(), waits.empty() ? 1 : 100);
  }
  return absl::OkStatus();
}

absl::Status Send(Streams& streams, int peer, const std::string& out, TimePoint deadline) {
  std::string nothing;
  return Transfer(streams, peer, out, nothing, 1, deadline);
}

absl::StatusOr<std::string> Receive(Streams& streams, int peer, size_t size, TimePoint deadline) {
  std::string in(size, '\0');
  RETURN_IF_ERROR(Transfer(streams, peer, {}, in, 1, deadline));
  return in;
}

absl::StatusOr<size_t> Fill(Streams& streams, int peer, size_t limit) {
  const std::string chunk(1 << 16, 'x');
  size_t filled = 0;
  TimePoint last = std::chrono::steady_clock::now();
  while (filled < limit && std::chrono::steady_clock::now() - last < std::chrono::milliseconds(300)) {
    const Bytes piece[] = {AsBytes(chunk)};
    ASSIGN_OR_RETURN(const size_t written, streams.Write(peer, piece));
    filled += written;
    if (written > 0) last = std::chrono::steady_clock::now();
    if (written == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return filled;
}

}  // namespace gyre::tcp
