#include "transport/shm/mesh.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "gtest/gtest.h"
#include "net/socket.h"
#include "support/ranks.h"
#include "support/status_matchers.h"
#include "support/temporary.h"
#include "transport/shm/control_block.h"

namespace gyre::shm {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

TimePoint Within(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

HandshakeIdentity Identity(const std::string& job, int rank, uint64_t epoch = 1) {
  return {.job_id = job, .epoch = epoch, .rank = rank, .role = Role::kRank};
}

constexpr char kSecret[] = "a secret of more than sixteen bytes";

class MeshTest : public testing::Test {
 protected:
  // Opens the meshes of `size` ranks before anybody connects.
  void Open(int size, const std::string& directory = "") {
    for (int r = 0; r < size; ++r) {
      meshes_.push_back(*Mesh::Listen(Identity("job", r), kSecret, directory));
      addresses_.push_back({r, meshes_.back()->address()});
    }
  }
  std::vector<Mesh::Address> PeersOf(int rank) const {
    auto peers = addresses_;
    peers.erase(peers.begin() + rank);
    return peers;
  }

  std::vector<std::unique_ptr<Mesh>> meshes_;
  std::vector<Mesh::Address> addresses_;
};

TEST_F(MeshTest, EveryPairSharesItsMemoryDespiteStrangers) {
  constexpr int kSize = 4;
  Open(kSize);
  // Strangers that say nothing, or nonsense, on everybody's address.
  std::vector<UniqueFd> strangers;
  for (const auto& [rank, address] : addresses_) {
    for (int i = 0; i < 3; ++i) {
      auto stranger = ConnectUnix(address, Within(std::chrono::seconds(1)));
      ASSERT_THAT(stranger, IsOk());
      if (i > 0) send(stranger->get(), "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
      strangers.push_back(*std::move(stranger));
    }
  }
  support::RunThreads(kSize, [&](const support::Rank& rank) {
    auto own = OwnMemory::Create(rank, 1 << 20);
    ASSERT_THAT(own, IsOk());
    own->arena->segment().data()[0] = static_cast<std::byte>(100 + rank);
    auto links =
        meshes_[static_cast<size_t>(rank.rank)]->Connect(PeersOf(rank), *own, Within(std::chrono::seconds(20)));
    ASSERT_THAT(links, IsOk());
    ASSERT_EQ(links->size(), 3u);
    for (const Link& link : *links) {
      EXPECT_EQ(link.arena.data()[0], static_cast<std::byte>(100 + link.rank));
      EXPECT_EQ(reinterpret_cast<const ControlBlock*>(link.control.data())->rank, static_cast<uint32_t>(link.rank));
    }
  });
}

TEST_F(MeshTest, MeetsByFilesAndLeavesNone) {
  support::TemporaryDirectory directory;
  Open(2, directory.path());
  EXPECT_FALSE(std::filesystem::is_empty(directory.path()));
  support::RunThreads(2, [&](const support::Rank& rank) {
    auto own = OwnMemory::Create(rank, 4096);
    ASSERT_THAT(own, IsOk());
    EXPECT_THAT(meshes_[static_cast<size_t>(rank.rank)]->Connect(PeersOf(rank), *own, Within(std::chrono::seconds(20))),
                IsOk());
  });
  meshes_.clear();
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

// What killed ranks leave goes with the next job's start; what is alive, or may be about to listen, stays.
TEST_F(MeshTest, RemovesSocketsThatNobodyListensAt) {
  support::TemporaryDirectory directory;
  const auto path = [&](const char* name) { return (directory.path() / name).string(); };
  for (const char* name : {"mesh-dead", "mesh-young", "other"}) {
    ASSERT_THAT(ListenUnix(path(name), 1), IsOk());  // closed at once
  }
  auto alive = ListenUnix(path("mesh-alive"), 1);
  ASSERT_THAT(alive, IsOk());
  std::ofstream(path("mesh-file")) << "no socket";
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  for (const char* name : {"mesh-dead", "mesh-alive", "mesh-file", "other"}) {
    std::filesystem::last_write_time(path(name), long_ago);
  }
  Open(1, directory.path());
  EXPECT_FALSE(std::filesystem::exists(path("mesh-dead")));
  for (const char* name : {"mesh-young", "mesh-alive", "mesh-file", "other"}) {
    EXPECT_TRUE(std::filesystem::exists(path(name))) << name;
  }
}

TEST_F(MeshTest, ADirectoryOfTooLongAPathIsRefusedWithWhatToDo) {
  support::TemporaryDirectory directory;
  const size_t most = kMaxUnixNameBytes - std::string_view("/mesh-").size() - 24;
  for (const size_t length : {most, most + 1}) {
    const std::string path = directory.path() / std::string(length - directory.path().string().size() - 1, 'd');
    std::filesystem::create_directory(path);
    const auto mesh = Mesh::Listen(Identity("job", 0), kSecret, path);
    if (length == most) {
      EXPECT_THAT(mesh, IsOk());
    } else {
      EXPECT_THAT(mesh, MatchesStatus(StatusCode::kFailedPrecondition, "set XDG_RUNTIME_DIR"));
      EXPECT_THAT(mesh, MatchesStatus(StatusCode::kFailedPrecondition, "that is 1 bytes shorter"));
    }
  }
}

TEST_F(MeshTest, IsReachableWhereSomebodyListens) {
  support::TemporaryDirectory directory;
  Open(1);
  Open(1, directory.path());
  for (const auto& [rank, address] : addresses_) EXPECT_TRUE(Mesh::IsReachable(address));
  const std::string gone = addresses_[0].address;
  meshes_.clear();
  EXPECT_FALSE(Mesh::IsReachable(gone));
  EXPECT_FALSE(Mesh::IsReachable(directory.path() / "none"));
}

TEST_F(MeshTest, AMissingPeerIsNamedAtTheDeadline) {
  Open(3);
  auto own = OwnMemory::Create(0, 4096);
  ASSERT_THAT(own, IsOk());
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(meshes_[0]->Connect(PeersOf(0), *own, Within(std::chrono::milliseconds(200))),
              MatchesStatus(StatusCode::kDeadlineExceeded, "rank 1, 2"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST_F(MeshTest, AnotherSecretIsRefused) {
  Open(1);
  auto stranger = Mesh::Listen(Identity("job", 1), "another secret of more than sixteen bytes", "");
  ASSERT_THAT(stranger, IsOk());
  auto own = OwnMemory::Create(1, 4096);
  ASSERT_THAT(own, IsOk());
  std::thread server([&] {
    auto theirs = OwnMemory::Create(0, 4096);
    EXPECT_THAT(meshes_[0]->Connect({{1, (*stranger)->address()}}, *theirs, Within(std::chrono::milliseconds(500))),
                MatchesStatus(StatusCode::kDeadlineExceeded, "rank 1"));
  });
  EXPECT_THAT((*stranger)->Connect({addresses_[0]}, *own, Within(std::chrono::milliseconds(500))),
              MatchesStatus(StatusCode::kUnauthenticated, ""));
  server.join();
}

// It is turned away with the reason, gets no memory, and the rank whose place it would have taken still comes.
TEST_F(MeshTest, AnOlderEpochsRankDoesNotCount) {
  Open(2);
  auto zombie = Mesh::Listen(Identity("job", 1, 0), kSecret, "");
  ASSERT_THAT(zombie, IsOk());
  support::RunThreads(2, [&](const support::Rank& rank) {
    auto own = OwnMemory::Create(rank, 1 << 20);
    ASSERT_THAT(own, IsOk());
    own->arena->segment().data()[0] = static_cast<std::byte>(100 + rank);
    if (rank == 1) {
      auto left_over = OwnMemory::Create(1, 1 << 20);
      ASSERT_THAT(left_over, IsOk());
      EXPECT_THAT((*zombie)->Connect({addresses_[0]}, *left_over, Within(std::chrono::seconds(20))),
                  MatchesStatus(StatusCode::kAborted, "epoch 1 (rank 0); this process belongs to epoch 0"));
    }
    auto links =
        meshes_[static_cast<size_t>(rank.rank)]->Connect(PeersOf(rank), *own, Within(std::chrono::seconds(20)));
    ASSERT_THAT(links, IsOk());
    ASSERT_EQ(links->size(), 1u);
    EXPECT_EQ(links->front().arena.data()[0], static_cast<std::byte>(101 - rank));
  });
}

}  // namespace
}  // namespace gyre::shm
