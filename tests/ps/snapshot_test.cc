#include "ps/snapshot.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "memory_disk.h"
#include "support/mutator.h"
#include "support/status_matchers.h"

namespace gyre::ps {
namespace {

using support::IsOk;
using support::MatchesStatus;
using support::Mutator;

std::optional<std::string> Reopen(Disk& disk, uint64_t incarnation) {
  Snapshots snapshots(disk, 3, incarnation, /*fence=*/true);
  auto content = snapshots.Open();
  EXPECT_THAT(content, IsOk());
  return content.ok() ? *content : std::nullopt;
}

TEST(SnapshotTest, NothingThenWhatWasWrittenLast) {
  MemoryDisk disk;
  Snapshots snapshots(disk, 3, 1, /*fence=*/true);
  auto content = snapshots.Open();
  ASSERT_THAT(content, IsOk());
  EXPECT_FALSE(content->has_value());
  EXPECT_FALSE(Reopen(disk, 1).has_value());
  ASSERT_THAT(snapshots.Write("first"), IsOk());
  ASSERT_THAT(snapshots.Write(""), IsOk());
  EXPECT_EQ(Reopen(disk, 2), "");
  EXPECT_EQ(disk.List()->size(), 2u) << "what is old was removed";
}

// At every call of the disk, in the process's end and in the machine's: the old one or the new one, and it goes on.
TEST(SnapshotTest, OldOrNewWhereverItEnds) {
  for (const bool machine : {false, true}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      for (int64_t call = 1;; ++call) {
        Mutator random(seed);
        MemoryDisk disk;
        Snapshots snapshots(disk, 3, 1, /*fence=*/true);
        ASSERT_THAT(snapshots.Open(), IsOk());
        ASSERT_THAT(snapshots.Write("the old one"), IsOk());
        disk.FailAfter(call);
        const bool written = snapshots.Write("the new one, and longer").ok();
        const bool ended = !disk.failing();
        machine ? disk.Crash(random) : disk.EndProcess();
        const auto content = Reopen(disk, 2);
        ASSERT_TRUE(content == "the new one, and longer" || (!written && content == "the old one"))
            << content.value_or("nothing") << " after call " << call << ", seed " << seed;
        Snapshots next(disk, 3, 3, /*fence=*/true);
        ASSERT_THAT(next.Open(), IsOk());
        ASSERT_THAT(next.Write("the next"), IsOk());
        disk.Crash(random);
        ASSERT_EQ(Reopen(disk, 4), "the next");
        if (ended) break;
      }
    }
  }
}

TEST(SnapshotTest, GoesOnAfterTheDiskHasFailed) {
  for (int64_t call = 1; call <= 8; ++call) {
    MemoryDisk disk;
    Mutator random(7);
    Snapshots snapshots(disk, 3, 1, /*fence=*/true);
    ASSERT_THAT(snapshots.Open(), IsOk());
    ASSERT_THAT(snapshots.Write("old"), IsOk());
    disk.FailAfter(call);
    ASSERT_THAT(snapshots.Write("failed"), MatchesStatus(absl::StatusCode::kUnavailable, ""));
    disk.EndProcess();
    ASSERT_THAT(snapshots.Write("new"), IsOk());
    disk.Crash(random);
    EXPECT_EQ(Reopen(disk, 2), "new");
  }
}

TEST(SnapshotTest, OnAFullDiskTheLastSnapshotIsReadAndThePlaceIsTakenLater) {
  MemoryDisk disk;
  Snapshots old(disk, 3, 1, /*fence=*/true), next(disk, 3, 2, /*fence=*/true);
  ASSERT_THAT(old.Open(), IsOk());
  EXPECT_THAT(old.place_status(), IsOk());
  ASSERT_THAT(old.Write("old"), IsOk());
  disk.SetFull(true);
  const auto content = next.Open();
  ASSERT_THAT(content, IsOk());
  EXPECT_EQ(*content, "old");
  EXPECT_THAT(next.place_status(), MatchesStatus(absl::StatusCode::kResourceExhausted, "no space left"));
  EXPECT_THAT(next.Write("too much"), MatchesStatus(absl::StatusCode::kResourceExhausted, "no space left"));
  disk.SetFull(false);
  ASSERT_THAT(next.Write("new"), IsOk());
  EXPECT_THAT(next.place_status(), IsOk());
  EXPECT_THAT(old.Write("too late"), MatchesStatus(absl::StatusCode::kAborted, "incarnation 2"));
  EXPECT_EQ(Reopen(disk, 3), "new");
}

TEST(SnapshotTest, HalfAFileKeepsNoRoom) {
  MemoryDisk disk;
  Snapshots snapshots(disk, 3, 1, /*fence=*/true);
  ASSERT_THAT(snapshots.Open(), IsOk());
  disk.SetFull(true);
  EXPECT_FALSE(snapshots.Write("too much").ok());
  EXPECT_EQ(disk.List()->size(), 1u) << "the manifest";
  // A process that was killed as it wrote could not clear up.
  ASSERT_FALSE(disk.Write("server-3.1.9.snapshot.1.tmp", "half").ok());
  EXPECT_FALSE(Reopen(disk, 2).has_value());
  EXPECT_EQ(disk.List()->size(), 1u);
}

TEST(SnapshotTest, AProcessThatWasReplacedWritesNoMore) {
  MemoryDisk disk;
  Snapshots old(disk, 3, 1, /*fence=*/true), other(disk, 3, 2, /*fence=*/true);
  ASSERT_THAT(old.Open(), IsOk());
  ASSERT_THAT(old.Write("old"), IsOk());
  ASSERT_THAT(other.Open(), IsOk());
  EXPECT_THAT(old.Write("too late"), MatchesStatus(absl::StatusCode::kAborted, "incarnation 2"));
  EXPECT_THAT(old.Open(), MatchesStatus(absl::StatusCode::kAborted, "incarnation 2"));
  EXPECT_EQ(Reopen(disk, 2), "old");
}

TEST(SnapshotTest, DamageIsFound) {
  MemoryDisk disk;
  Mutator random(5);
  {
    Snapshots snapshots(disk, 3, 1, /*fence=*/true);
    ASSERT_THAT(snapshots.Open(), IsOk());
    ASSERT_THAT(snapshots.Write("all that was learned"), IsOk());
  }
  const auto names = disk.List();
  for (const std::string& name : *names) {
    const std::string good = *disk.Read(name);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << random.Below(8)));
      ASSERT_THAT(disk.Write(name, i % 2 == 0 ? bad : good.substr(0, i)), IsOk());
      Snapshots snapshots(disk, 3, 2, /*fence=*/true);
      ASSERT_THAT(snapshots.Open(), MatchesStatus(absl::StatusCode::kDataLoss, "server-3.")) << i;
    }
    ASSERT_THAT(disk.Write(name, good), IsOk());
  }
}

}  // namespace
}  // namespace gyre::ps
