// What is left over from before a restart: a rank is stopped and given up, its job is started again in the next epoch
// under the same names, and then the old rank goes on. It touches nothing of the new job's, and is told.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <thread>

#include "absl/strings/str_join.h"
#include "conformance/failure_fixture.h"

namespace gyre {
namespace {

constexpr int64_t kElements = int64_t{1} << 20;
constexpr int64_t kNewEpoch = 1;

// Events that every process, and the test, can wait for: files of the group's folder.
class Events {
 public:
  explicit Events(std::filesystem::path directory) : directory_(std::move(directory)) {}

  bool Happened(const std::string& event) const { return std::filesystem::exists(PathOf(event)); }

  void Happen(const std::string& event, const std::string& text = "") const {
    const std::filesystem::path unfinished = PathOf(event + ".new");
    std::ofstream(unfinished) << text;
    std::filesystem::rename(unfinished, PathOf(event));
  }

  // Its text; fails the test if it does not happen.
  std::string Await(const std::string& event) const {
    const auto until = steady_clock::now() + seconds(50);
    while (!Happened(event) && steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_TRUE(Happened(event)) << event;
    std::ifstream file(PathOf(event));
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path PathOf(const std::string& event) const { return directory_ / ("event-" + event); }

  const std::filesystem::path directory_;
};

// The inodes of all shared memory of Gyre's that this process has mapped, a line each.
std::string SharedMemory() {
  std::set<std::string> inodes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!absl::StrContains(line, "/memfd:gyre-")) continue;
    std::istringstream fields(line);
    std::string range, mode, offset, device, inode;
    fields >> range >> mode >> offset >> device >> inode;
    inodes.insert(device + " " + inode);
  }
  return absl::StrJoin(inodes, "\n");
}

std::set<std::string> Lines(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

// Ended by the loss of a rank, in its midst or because the communicator was given up before it.
bool IsOfLoss(const absl::Status& status) {
  return status.code() == StatusCode::kAborted || status.code() == StatusCode::kFailedPrecondition;
}

// One rank of `hosts` is left over.
struct Restart {
  HostSizes hosts;
  int zombie;

  int size() const { return std::accumulate(hosts.begin(), hosts.end(), 0); }
};

class LeftOver : public testing::TestWithParam<Restart> {
 protected:
  // Processes 0 to size - 1 are the ranks of epoch 0, the others those of epoch 1.
  static void Run(const Rank& process) {
    const int size = GetParam().size();
    const Rank rank{process.rank % size, size, process.directory, process.name};
    if (process.rank >= size) {
      RunNew(rank);
    } else {
      RunOld(rank);
    }
  }

  static void RunOld(const Rank& rank) {
    const Events events(rank.directory);
    const int zombie = GetParam().zombie;
    RuntimeOptions options = JobOptions(rank, GetParam().hosts);
    options.heartbeat_timeout = seconds(1);
    auto runtime = JoinJob(rank, options);
    ASSERT_NE(runtime, nullptr);
    auto buffer = runtime->Allocate(kElements * static_cast<int64_t>(sizeof(float)));
    ASSERT_THAT(buffer, IsOk());
    const std::span<float> data = buffer->As<float>();
    events.Happen(absl::StrCat("memory of old ", rank.rank), SharedMemory());
    absl::Status status;
    for (int round = 0; status.ok(); ++round) {
      if (round == 20 && rank == zombie) events.Happen("may be stopped");
      std::ranges::fill(data, -1000.0f - static_cast<float>(rank));
      status = runtime->world().AllReduce(data);
    }
    if (rank == zombie) {
      EXPECT_TRUE(events.Happened("new job works")) << status;
      ActAsZombie(options, *runtime, data, status);
      events.Happen("zombie is through");
      return;
    }
    EXPECT_THAT(status, MatchesStatus(StatusCode::kAborted, absl::StrCat("rank ", zombie, " ")));
    runtime.reset();
    events.Happen(absl::StrCat("given up by ", rank.rank));
  }

  // The first collective to fail has ended with `status`.
  static void ActAsZombie(const RuntimeOptions& options, Runtime& runtime, std::span<float> data,
                          const absl::Status& status) {
    // Told by who gave it up, or by the last words that they left in the memory of its host: in the midst of a
    // collective, or, if it was stopped between two, when it began the next.
    EXPECT_TRUE(IsOfLoss(status)) << status;
    const bool in_last_words = absl::StrContains(status.message(), absl::StrCat("rank ", GetParam().zombie, " ")) &&
                               absl::StrContains(status.message(), "was lost: no heartbeat");
    const std::string accusation = absl::StrCat("has given rank ", GetParam().zombie, " ");
    EXPECT_TRUE(in_last_words || absl::StrContains(status.message(), accusation)) << status;
    for (int i = 0; i < 3; ++i) {
      const absl::Status again = runtime.world().AllReduce(data, {.timeout = seconds(10)});
      EXPECT_TRUE(IsOfLoss(again)) << again;
    }
    std::atomic<bool> stop = false;
    std::thread writer([&] {
      for (float value = 0; !stop; ++value) std::ranges::fill(data, value);
    });
    // In its own place, and in that of the rank which serves the store.
    for (const int rank : {GetParam().zombie, 0}) {
      RuntimeOptions anew = options;
      anew.rank = rank;
      const auto start = steady_clock::now();
      EXPECT_THAT(Runtime::Create(anew), MatchesStatus(StatusCode::kAborted,
                                                       "this job is in epoch 1 (the store); this process belongs to "
                                                       "epoch 0: it was left over from before a restart"));
      EXPECT_LT(SecondsSince(start), 10);
    }
    stop = true;
    writer.join();
  }

  static void RunNew(const Rank& rank) {
    const Events events(rank.directory);
    for (int old = 0; old < rank.size; ++old) {
      if (old != GetParam().zombie) events.Await(absl::StrCat("given up by ", old));
    }
    auto runtime = JoinJob(rank, support::RestartedJobOptions(rank, GetParam().hosts, kNewEpoch));
    ASSERT_NE(runtime, nullptr);
    auto idle = runtime->Allocate(kElements * static_cast<int64_t>(sizeof(float)));
    auto buffer = runtime->Allocate(kElements * static_cast<int64_t>(sizeof(float)));
    ASSERT_TRUE(idle.ok() && buffer.ok());
    std::ranges::fill(idle->As<float>(), 7.0f);
    ExpectOwnMemory(events, rank.size);
    Work(events, rank, runtime->world(), buffer->As<float>());
    EXPECT_EQ(std::ranges::count(idle->As<float>(), 7.0f), kElements);
  }

  static void ExpectOwnMemory(const Events& events, int size) {
    const std::set<std::string> own = Lines(SharedMemory());
    EXPECT_GE(own.size(), 2u);
    for (int old = 0; old < size; ++old) {
      for (const std::string& inode : Lines(events.Await(absl::StrCat("memory of old ", old)))) {
        EXPECT_FALSE(own.contains(inode)) << inode << ", of old rank " << old;
      }
    }
  }

  // Sums until some rounds after the zombie is through; rank 0 knows when, and tells by the first element.
  static void Work(const Events& events, const Rank& rank, Communicator& world, std::span<float> data) {
    constexpr int kRounds = 20;
    int last = -1;
    for (int round = 0; last < 0 || round <= last; ++round) {
      if (round == kRounds && rank == 0) events.Happen("new job works");
      const bool through = rank == 0 && last < 0 && events.Happened("zombie is through");
      std::ranges::fill(data, static_cast<float>(1000 * (round % 100) + rank));
      data[0] = through ? 1.0f : 0.0f;
      ASSERT_THAT(world.AllReduce(data), IsOk()) << "round " << round;
      const int ranks = rank.size * (rank.size - 1) / 2;
      const auto sum = static_cast<float>(1000 * (round % 100) * rank.size + ranks);
      ASSERT_EQ(std::ranges::count(data.subspan(1), sum), kElements - 1) << "round " << round;
      if (data[0] == 1.0f) last = round + kRounds;
    }
  }
};

TEST_P(LeftOver, RanksAreFencedOffByTheEpoch) {
  const int size = GetParam().size(), zombie = GetParam().zombie;
  support::ProcessGroup group(2 * size, Run);
  const Events events(group.directory());
  events.Await("may be stopped");
  std::this_thread::sleep_for(milliseconds(7));  // in the midst of a collective
  group[zombie].Signal(SIGSTOP);
  events.Await("new job works");
  group[zombie].Signal(SIGCONT);
  group.ExpectAllSucceed();
}

INSTANTIATE_TEST_SUITE_P(All, LeftOver,
                         testing::Values(Restart{{2}, 1}, Restart{{3}, 2}, Restart{{1, 1}, 1}, Restart{{2, 2}, 1},
                                         Restart{{2, 2}, 2}),
                         [](const auto& info) {
                           std::string name = "Hosts";
                           for (const int size : info.param.hosts) name += absl::StrCat("_", size);
                           return absl::StrCat(name, "_rank_", info.param.zombie);
                         });

}  // namespace
}  // namespace gyre
