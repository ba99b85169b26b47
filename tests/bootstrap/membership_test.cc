#include "bootstrap/membership.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bootstrap/local_rendezvous.h"
#include "bootstrap/secret.h"
#include "bootstrap/store_protocol.h"
#include "net/acceptor.h"
#include "net/framing.h"
#include "net/socket.h"
#include "support/deadline.h"
#include "support/ranks.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::In;
using support::IsOk;
using support::MatchesStatus;
using Variables = std::map<std::string, std::string, std::less<>>;

absl::StatusOr<std::unique_ptr<Membership>> Join(const Variables& variables, int ms = 30'000,
                                                 const RuntimeOptions& options = {}) {
  const Environment environment = FixedEnvironment(variables);
  ASSIGN_OR_RETURN(const Config config, LoadConfig(options, environment));
  return Membership::Join(config, environment, In(ms));
}

class MembershipTest : public testing::Test {
 protected:
  MembershipTest() {
    const std::string path = directory_.path() / "secret-file";
    std::ofstream(path) << std::string(32, 's');
    EXPECT_EQ(chmod(path.c_str(), 0600), 0);
    secret_file_ = path;
    const auto listener = ListenTcp({"127.0.0.1", 0}, 1, In(1000));
    free_port_ = LocalEndpoint(listener->get())->port;
  }

  Variables Torchrun(int rank, int size) const {
    return {{"RANK", absl::StrCat(rank)},       {"WORLD_SIZE", absl::StrCat(size)},
            {"MASTER_ADDR", "127.0.0.1"},       {"MASTER_PORT", absl::StrCat(free_port_)},
            {"GYRE_SECRET_FILE", secret_file_}, {"XDG_RUNTIME_DIR", directory_.path()}};
  }

  Variables Slurm(int rank, int size) const {
    return {{"SLURM_PROCID", absl::StrCat(rank)},
            {"SLURM_NTASKS", absl::StrCat(size)},
            {"SLURM_JOB_ID", "1"},
            {"SLURM_STEP_ID", "0"},
            {"SLURM_NNODES", "1"},
            {"XDG_RUNTIME_DIR", directory_.path()}};
  }

  const support::TemporaryDirectory directory_;
  std::string secret_file_;
  uint16_t free_port_ = 0;
};

void ExpectGathers(Membership& membership, const std::string& name) {
  const auto values = membership.Gather(name, absl::StrCat("v", membership.rank()), In(20'000));
  ASSERT_THAT(values, IsOk());
  ASSERT_EQ(values->size(), static_cast<size_t>(membership.size()));
  for (int rank = 0; rank < membership.size(); ++rank) EXPECT_EQ((*values)[rank], absl::StrCat("v", rank));
}

TEST_F(MembershipTest, AloneThereIsNobodyToMeet) {
  const auto alone = Join({});
  ASSERT_THAT(alone, IsOk());
  EXPECT_EQ((*alone)->rank(), 0);
  EXPECT_EQ((*alone)->size(), 1);
  EXPECT_EQ((*alone)->launcher(), "none");
  EXPECT_GE((*alone)->secret().size(), 16u);
  EXPECT_EQ(*(*alone)->Gather("g", "mine", In(0)), std::vector<std::string>{"mine"});
}

TEST_F(MembershipTest, TorchrunsRanksMeet) {
  support::RunThreads(4, [&](const support::Rank& rank) {
    const auto membership = Join(Torchrun(rank, 4));
    ASSERT_THAT(membership, IsOk());
    EXPECT_EQ((*membership)->rank(), rank.rank);
    EXPECT_EQ((*membership)->launcher(), "torchrun");
    EXPECT_EQ((*membership)->secret(), std::string(32, 's'));
    for (int i = 0; i < 5; ++i) ExpectGathers(**membership, absl::StrCat("g", i));
  });
}

TEST_F(MembershipTest, ByProcessesToo) {
  support::RunProcesses(3, [&](const support::Rank& rank) {
    Variables variables = Slurm(rank, 3);
    variables["XDG_RUNTIME_DIR"] = rank.directory.string();
    const auto membership = Join(variables);
    ASSERT_THAT(membership, IsOk());
    ExpectGathers(**membership, "g");
  });
}

TEST_F(MembershipTest, OnLoopbackTheUsersOwnSecretServes) {
  support::RunThreads(2, [&](const support::Rank& rank) {
    Variables variables = Torchrun(rank, 2);
    variables.erase("GYRE_SECRET_FILE");
    const auto membership = Join(variables);
    ASSERT_THAT(membership, IsOk());
    EXPECT_EQ((*membership)->secret(), *UserSecret(FixedEnvironment(variables)));
  });
}

TEST_F(MembershipTest, ElsewhereASecretIsAskedFor) {
  Variables variables = Torchrun(0, 2);
  variables.erase("GYRE_SECRET_FILE");
  variables["MASTER_ADDR"] = "192.0.2.1";
  EXPECT_THAT(Join(variables), MatchesStatus(StatusCode::kFailedPrecondition, "set GYRE_SECRET_FILE"));
}

TEST_F(MembershipTest, OptionsInCodeSuffice) {
  support::RunThreads(3, [&](const support::Rank& rank) {
    RuntimeOptions options;
    options.rank = rank.rank;
    options.size = 3;
    options.store = absl::StrCat("127.0.0.1:", free_port_);
    options.job_id = "in code";
    options.secret = std::string(16, 'c');
    const auto membership = Join({}, 20'000, options);
    ASSERT_THAT(membership, IsOk());
    EXPECT_EQ((*membership)->job_id(), "in code");
    ExpectGathers(**membership, "g");
  });
}

TEST_F(MembershipTest, ALaunchersStoreIsUsed) {
  const std::string secret = *MakeSecret();
  const auto fd = MakeSecretFd(secret);
  ASSERT_THAT(fd, IsOk());
  const auto server = StoreServer::Start({"127.0.0.1", 0}, {secret, "launched", 0, 3}, In(1000));
  ASSERT_THAT(server, IsOk());
  support::RunThreads(3, [&](const support::Rank& rank) {
    const Variables variables = {{"GYRE_RANK", absl::StrCat(rank.rank)},
                                 {"GYRE_SIZE", "3"},
                                 {"GYRE_JOB_ID", "launched"},
                                 {"GYRE_STORE", ToString((*server)->endpoint())},
                                 {"GYRE_SECRET_FD", absl::StrCat(fd->get())}};
    // One after the other: each is another instance in the same store.
    for (int i = 0; i < 3; ++i) {
      const auto membership = Join(variables);
      ASSERT_THAT(membership, IsOk());
      EXPECT_EQ((*membership)->launcher(), "gyrerun");
      EXPECT_EQ((*membership)->secret(), secret);
      ExpectGathers(**membership, "g");
    }
    // And two at once.
    const auto a = Join(variables);
    const auto b = Join(variables);
    ASSERT_TRUE(a.ok() && b.ok());
    ExpectGathers(**b, "g");
    ExpectGathers(**a, "g");
  });
}

TEST_F(MembershipTest, WhoDiesBeforeTheRanksHaveMetMeetsThemInItsNextLifeAndLaterIsApart) {
  const std::string secret = *MakeSecret();
  const auto fd = MakeSecretFd(secret);
  ASSERT_THAT(fd, IsOk());
  const auto server = StoreServer::Start({"127.0.0.1", 0}, {secret, "launched", 0, 2, true}, In(1000));
  ASSERT_THAT(server, IsOk());
  const auto rank_of = [&](int rank, int life) {
    return Variables{{"GYRE_RANK", absl::StrCat(rank)},
                     {"GYRE_SIZE", "2"},
                     {"GYRE_JOB_ID", "launched"},
                     {"GYRE_STORE", ToString((*server)->endpoint())},
                     {"GYRE_SECRET_FD", absl::StrCat(fd->get())},
                     {"GYRE_STRATEGY", absl::StrCat("ps,servers=127.0.0.1:1,life=", life)}};
  };
  EXPECT_THAT(Join(rank_of(1, 1), 1000), MatchesStatus(StatusCode::kDeadlineExceeded, "rank 0 of 2 did not come"));
  support::RunThreads(2, [&](const support::Rank& rank) {
    const auto membership = Join(rank_of(rank, 1 + rank));
    ASSERT_THAT(membership, IsOk());
    EXPECT_FALSE((*membership)->apart());
    ExpectGathers(**membership, "g");
  });
  const auto late = Join(rank_of(0, 2));
  ASSERT_THAT(late, IsOk());
  EXPECT_TRUE((*late)->apart());
  EXPECT_EQ((*late)->secret(), secret);
  EXPECT_EQ((*late)->size(), 2);
  EXPECT_EQ(*(*late)->Gather("g", "mine", In(0)), std::vector<std::string>{"mine"});
}

TEST_F(MembershipTest, JoiningAgainAndAgainWorks) {
  // Rank 0's store opens and closes each time; the quick may find the last one still there.
  support::RunThreads(3, [&](const support::Rank& rank) {
    for (int i = 0; i < 10; ++i) {
      const auto torchrun = Join(Torchrun(rank, 3));
      ASSERT_THAT(torchrun, IsOk()) << "round " << i;
    }
    for (int i = 0; i < 10; ++i) {
      const auto slurm = Join(Slurm(rank, 3));
      ASSERT_THAT(slurm, IsOk()) << "round " << i;
      ExpectGathers(**slurm, "g");
    }
  });
}

TEST_F(MembershipTest, LeavesNoRendezvousBehind) {
  support::RunThreads(2, [&](const support::Rank& rank) { ASSERT_THAT(Join(Slurm(rank, 2)), IsOk()); });
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path() / "gyre")) {
    EXPECT_EQ(entry.path().filename(), "secret");
  }
}

TEST_F(MembershipTest, StaleRendezvousFilesAreSurvived) {
  const std::string user_directory = *UserDirectory(FixedEnvironment({{"XDG_RUNTIME_DIR", directory_.path()}}));
  const LocalRendezvous stale(user_directory, "slurm-1.0", 0);
  // Once where nobody listens any more, once where somebody else's store does.
  const auto others = StoreServer::Start({"127.0.0.1", 0}, {std::string(32, 'o'), "other", 0, 2}, In(1000));
  ASSERT_THAT(others, IsOk());
  for (const Endpoint& endpoint : {Endpoint{"127.0.0.1", free_port_}, (*others)->endpoint()}) {
    ASSERT_THAT(stale.Publish(endpoint), IsOk());
    support::RunThreads(2, [&](const support::Rank& rank) {
      if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto membership = Join(Slurm(rank, 2));
      ASSERT_THAT(membership, IsOk());
      ExpectGathers(**membership, "g");
    });
  }
}

TEST_F(MembershipTest, WhatIsLeftOverFromAnOlderEpochIsRefusedAndDoesNoHarm) {
  const auto restarted = [&](int rank) {
    Variables variables = Torchrun(rank, 2);
    variables["TORCHELASTIC_RESTART_COUNT"] = "3";
    return variables;
  };
  support::RunThreads(2, [&](const support::Rank& rank) {
    const auto membership = Join(restarted(rank));
    ASSERT_THAT(membership, IsOk());
    EXPECT_EQ((*membership)->epoch(), 3u);
    // One in the place of a rank that serves the store, and of one that does not.
    Variables variables = Torchrun(rank, 2);
    variables["TORCHELASTIC_RESTART_COUNT"] = "2";
    const TimePoint begin = std::chrono::steady_clock::now();
    EXPECT_THAT(Join(variables),
                MatchesStatus(StatusCode::kAborted,
                              "this job is in epoch 3 (the store); this process belongs to epoch 2: it was left over"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    ExpectGathers(**membership, "g");
  });
}

TEST_F(MembershipTest, ARestartedJobWaitsForTheOlderEpochsStoreToGo) {
  std::vector<std::unique_ptr<Membership>> old(2);
  support::RunThreads(2, [&](const support::Rank& rank) {
    auto membership = Join(Torchrun(rank, 2));
    ASSERT_THAT(membership, IsOk());
    old[static_cast<size_t>(rank.rank)] = *std::move(membership);
  });
  std::atomic<bool> gone = false;
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    gone = true;
    old.clear();
  });
  support::RunThreads(2, [&](const support::Rank& rank) {
    Variables variables = Torchrun(rank, 2);
    variables["GYRE_EPOCH"] = "1";
    const auto membership = Join(variables);
    ASSERT_THAT(membership, IsOk());
    EXPECT_TRUE(gone);
    ExpectGathers(**membership, "g");
  });
  end.join();
}

TEST_F(MembershipTest, RankZeroServesWhereThePortWasTakenUntilNow) {
  auto other = ListenTcp({"127.0.0.1", free_port_}, 1, In(1000));
  ASSERT_THAT(other, IsOk());
  std::thread end([&] {
    pollfd come{.fd = other->get(), .events = POLLIN, .revents = 0};
    poll(&come, 1, 20000);
    other->Reset();
  });
  support::RunThreads(2, [&](const support::Rank& rank) {
    if (rank == 1) end.join();  // what came was rank 0
    const auto membership = Join(Torchrun(rank, 2));
    ASSERT_THAT(membership, IsOk());
    ExpectGathers(**membership, "g");
  });
}

TEST_F(MembershipTest, AStoreOfAnOlderEpochThatStaysIsNamedAtTheDeadline) {
  Variables variables = Torchrun(0, 2);
  variables["GYRE_EPOCH"] = "1";
  const auto secret = ReadSecretFile(secret_file_);
  ASSERT_THAT(secret, IsOk());
  const std::string job = absl::StrCat("torchrun-127.0.0.1:", free_port_);
  const auto older = StoreServer::Start({"127.0.0.1", free_port_}, {*secret, job, 0, 2}, In(1000));
  ASSERT_THAT(older, IsOk());
  for (const char* rank : {"0", "1"}) {
    variables["RANK"] = rank;
    // Long enough for a machine at work to find the store at all.
    EXPECT_THAT(Join(variables, 2000),
                MatchesStatus(StatusCode::kDeadlineExceeded, "this job is in epoch 1; the store belongs to epoch 0"));
  }
}

// By a file they do not find each other: neither is the job held up, nor does the left-over rank 0 take its place.
TEST_F(MembershipTest, ARankZeroLeftOverPublishesWhereTheJobDoesNotLook) {
  std::thread left_over([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the job's rank 0 has published
    EXPECT_THAT(Join(Slurm(0, 2), 1500), MatchesStatus(StatusCode::kDeadlineExceeded, "rank 1 of 2 did not come"));
  });
  support::RunThreads(2, [&](const support::Rank& rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    Variables variables = Slurm(rank, 2);
    variables["SLURM_RESTART_COUNT"] = "1";
    const auto membership = Join(variables, 10'000);
    ASSERT_THAT(membership, IsOk());
    ExpectGathers(**membership, "g");
  });
  left_over.join();
}

TEST_F(MembershipTest, ABusyStoreIsNotTakenForAStaleOne) {
  // It lets the rank prove itself at once, but takes its time to answer.
  const Environment environment = FixedEnvironment(Slurm(1, 2));
  auto listener = ListenTcp({"127.0.0.1", 0}, 8, In(1000));
  ASSERT_THAT(listener, IsOk());
  ASSERT_THAT(LocalRendezvous(*UserDirectory(environment), "slurm-1.0", 0).Publish(*LocalEndpoint(listener->get())),
              IsOk());
  const auto acceptor =
      Acceptor::Create(*std::move(listener), {"slurm-1.0", 0, -1, Role::kStore}, *UserSecret(environment));
  ASSERT_THAT(acceptor, IsOk());
  absl::StatusOr<AcceptedPeer> rank;  // its connection stays open until the end
  std::thread store([&] {
    rank = (*acceptor)->Next(In(5000));
    ASSERT_THAT(rank, IsOk());
    std::this_thread::sleep_for(std::chrono::milliseconds(2300));
    const FrameHeader joined{static_cast<uint16_t>(StoreMessage::kReply), 0, 0, 1};
    const FrameHeader gathered{static_cast<uint16_t>(StoreMessage::kReply), 0, 0, 2};
    const std::string replies = EncodeFrame(joined, "") + EncodeFrame(gathered, EncodeValues({"", ""}));
    EXPECT_THAT(SendAll(rank->fd.get(), AsBytes(replies), In(1000)), IsOk());
  });
  EXPECT_THAT(Join(Slurm(1, 2), 8000), IsOk());
  store.join();
}

TEST_F(MembershipTest, UnderGyrerunAnIdentityGivenInCodeIsItsOwn) {
  const std::string store = ToString({"127.0.0.1", free_port_});
  support::RunThreads(2, [&](const support::Rank& rank) {
    RuntimeOptions options;
    options.rank = rank.rank;
    options.size = 2;
    options.store = store;
    const Environment environment = FixedEnvironment({{"GYRE_RANK", "5"},
                                                      {"GYRE_SIZE", "7"},
                                                      {"GYRE_JOB_ID", absl::StrCat("of rank ", rank.rank)},
                                                      {"GYRE_STORE", "127.0.0.1:1"},
                                                      {"GYRE_SECRET_FD", "987"},
                                                      {"XDG_RUNTIME_DIR", directory_.path()}});
    const auto config = LoadConfig(options, environment);
    ASSERT_THAT(config, IsOk());
    const auto membership = Membership::Join(*config, environment, In(20'000));
    ASSERT_THAT(membership, IsOk());
    EXPECT_EQ((*membership)->launcher(), "explicit");
    ExpectGathers(**membership, "g");
  });
}

TEST_F(MembershipTest, AJobOfOneNeedsASecretForItsServersOnly) {
  const auto join = [](const std::string& strategy) {
    const Environment environment = FixedEnvironment(
        {{"GYRE_RANK", "0"}, {"GYRE_SIZE", "1"}, {"GYRE_SECRET_FD", "987"}, {"GYRE_STRATEGY", strategy}});
    const auto config = LoadConfig({}, environment);
    EXPECT_THAT(config, IsOk());
    return Membership::Join(*config, environment, In(20'000));
  };
  const auto alone = join("");
  ASSERT_THAT(alone, IsOk());
  EXPECT_GE((*alone)->secret().size(), 16u);
  EXPECT_THAT(join("ps,servers=127.0.0.1:1"), MatchesStatus(StatusCode::kFailedPrecondition, "GYRE_SECRET_FD"));
}

TEST_F(MembershipTest, MissingRanksAreNamed) {
  const TimePoint begin = std::chrono::steady_clock::now();
  support::RunThreads(2, [&](const support::Rank& rank) {
    EXPECT_THAT(Join(Torchrun(rank, 4), 700),
                MatchesStatus(StatusCode::kDeadlineExceeded, "ranks 2, 3 of 4 did not come"));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2500));
}

TEST_F(MembershipTest, WithoutRankZeroOthersEndAtTheDeadline) {
  EXPECT_THAT(Join(Torchrun(1, 2), 200), MatchesStatus(StatusCode::kDeadlineExceeded, absl::StrCat(free_port_)));
  EXPECT_THAT(Join(Slurm(1, 2), 200), MatchesStatus(StatusCode::kDeadlineExceeded, "rank 0"));
}

TEST_F(MembershipTest, AnotherSecretIsToldOnBothSides) {
  const std::string other_file = directory_.path() / "other";
  std::ofstream(other_file) << std::string(32, 'o');
  ASSERT_EQ(chmod(other_file.c_str(), 0600), 0);
  support::RunThreads(2, [&](const support::Rank& rank) {
    Variables variables = Torchrun(rank, 2);
    if (rank == 1) variables["GYRE_SECRET_FILE"] = other_file;
    const auto membership = Join(variables, 1000);
    if (rank == 1) {
      EXPECT_THAT(membership, MatchesStatus(StatusCode::kUnauthenticated, "GYRE_SECRET_FILE"));
    } else {
      EXPECT_THAT(membership, MatchesStatus(StatusCode::kDeadlineExceeded, "rank 1 of 2 did not come"));
      EXPECT_THAT(membership, MatchesStatus(StatusCode::kDeadlineExceeded,
                                            "1 attempt to join was refused: 127.0.0.1: rank 1 holds another secret"));
    }
  });
}

TEST_F(MembershipTest, ATakenPortIsExplained) {
  const auto others = StoreServer::Start({"127.0.0.1", free_port_}, {std::string(32, 's'), "other", 0, 2}, In(1000));
  ASSERT_THAT(others, IsOk());
  EXPECT_THAT(Join(Torchrun(0, 2), 2000), MatchesStatus(StatusCode::kUnauthenticated, "port taken"));
}

TEST_F(MembershipTest, RanksThatDisagreeOnTheSizeAreTold) {
  support::RunThreads(2, [&](const support::Rank& rank) {
    const auto membership = Join(Torchrun(rank, rank == 0 ? 2 : 3), 1000);
    if (rank == 1) {
      EXPECT_THAT(membership, MatchesStatus(StatusCode::kFailedPrecondition, "rank 1 of 3 wants to join a job of 2"));
    } else {
      EXPECT_THAT(membership, MatchesStatus(StatusCode::kDeadlineExceeded,
                                            "; 1 attempt to join was refused: rank 1 of 3 wants to join a job of 2"));
    }
  });
}

}  // namespace
}  // namespace gyre
