// What processes of servers and workers are made of.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/event_loop.h"
#include "ps/process/file_disk.h"
#include "ps/process/float_arena.h"
#include "ps/process/link.h"
#include "ps/process/setup.h"
#include "support/mutator.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::ps {
namespace {

using std::chrono::milliseconds;
using support::IsOk;
using support::MatchesStatus;

TEST(FloatArenaTest, IsReadByOthersWhereItLies) {
  FloatArena arena = *FloatArena::Create(4096);
  Floats made = arena.Make(3);
  std::ranges::copy(std::vector<float>{1, 2, 3}, made.writable().begin());
  const auto theirs = *MappedArena::Map(arena.offer());
  const uint64_t offset = *arena.OffsetOf(made.bytes());
  const float* const read = theirs->At(offset, 3);
  ASSERT_NE(read, nullptr);
  EXPECT_NE(read, made.span().data());
  EXPECT_EQ(std::vector<float>(read, read + 3), (std::vector<float>{1, 2, 3}));
  // Not what is not there.
  EXPECT_EQ(arena.OffsetOf(Floats(3).bytes()), std::nullopt);
  EXPECT_NE(theirs->At(8192 - 4, 1), nullptr);
  for (const auto& [at, count] : std::vector<std::pair<uint64_t, size_t>>{
           {8192, 1}, {8192 - 4, 2}, {4096, 1025}, {4097, 1}, {0, 1}, {UINT64_MAX - 3, 1}, {4096, SIZE_MAX}}) {
    EXPECT_EQ(theirs->At(at, count), nullptr) << at << " " << count;
  }
}

TEST(FloatArenaTest, MemoryIsUsedAgainAndThenThereIsTheProcessesOwn) {
  FloatArena arena = *FloatArena::Create(4096);
  Floats first = arena.Make(1000);
  const float* const data = first.span().data();
  EXPECT_EQ(arena.OffsetOf(arena.Make(1000).bytes()), std::nullopt);
  Floats copy = first;
  first = {};
  EXPECT_EQ(arena.OffsetOf(arena.Make(1000).bytes()), std::nullopt);  // somebody holds it
  copy = {};
  EXPECT_EQ(arena.Make(1000).span().data(), data);
  EXPECT_TRUE(arena.OffsetOf(arena.Make(999).bytes()));  // rounded up it is as long
}

TEST(FloatArenaTest, WhatIsNotThereIsRefused) {
  const std::string offer = FloatArena::Create(4096)->offer();  // gone
  EXPECT_FALSE(MappedArena::Map(offer).ok());
  const FloatArena arena = *FloatArena::Create(4096);
  for (size_t cut = 0; cut < offer.size(); ++cut) {
    EXPECT_THAT(MappedArena::Map(arena.offer().substr(0, cut)).status(),
                MatchesStatus(absl::StatusCode::kInvalidArgument, "malformed"));
  }
  for (size_t at = 0; at < offer.size(); ++at) {  // another process, descriptor or token, or more bytes than there are
    std::string changed = arena.offer();
    changed[at] = static_cast<char>(changed[at] ^ 0x40);
    EXPECT_FALSE(MappedArena::Map(changed).ok()) << at;
  }
}

// One end of a connection is a link, the other says what it must not: that ends it, and reads nothing.
TEST(LinkTest, WhatWasNotOfferedOrLentEndsIt) {
  const FloatArena arena = *FloatArena::Create(4096);
  const auto frame = [](uint16_t type, uint32_t floats, std::string_view payload) {
    return EncodeFrame({.type = type, .epoch = 3, .sequence = floats}, payload);
  };
  const auto lent = [&](uint64_t offset, uint32_t floats) {
    return frame(5, floats, Written([&](WireWriter& writer) {
                   writer.U64(offset);
                   writer.U64(0);
                   writer.Raw(Encode({.kind = Kind::kPush, .epoch = 3, .incarnation = 1}));
                 }));
  };
  const std::string offer = frame(3, 0, Written([&](WireWriter& writer) {
                                    writer.Text("here");
                                    writer.Raw(arena.offer());
                                  }));
  const std::string number = Written([](WireWriter& writer) { writer.U64(0); });
  const std::vector<std::string> wrong = {frame(4, 0, ""),       frame(6, 0, number),     frame(6, 0, "x"),
                                          frame(7, 0, ""),       lent(4096, 1),           frame(3, 0, "x"),
                                          offer + offer,         offer + lent(0, 1),      offer + lent(8192 - 4, 2),
                                          offer + lent(4096, 0), offer + frame(5, 1, "x")};
  for (size_t i = 0; i <= wrong.size(); ++i) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd other(ends[1]);
    auto loop = *EventLoop::Create();
    int messages = 0;
    auto link = *Link::Create(*loop, UniqueFd(ends[0]), 3, "here",
                              {.on_setup = [](std::string_view) {}, .on_message = [&](const Message&) { ++messages; }});
    const std::string bytes = i < wrong.size() ? wrong[i] : offer + lent(4096, 1);
    ASSERT_EQ(write(other.get(), bytes.data(), bytes.size()), std::ssize(bytes));
    ASSERT_THAT(loop->RunOnce(std::chrono::steady_clock::now() + std::chrono::seconds(20)), IsOk());
    EXPECT_EQ(link->status().ok(), i == wrong.size()) << i << " " << link->status();
    EXPECT_EQ(messages, i == wrong.size() ? 1 : 0) << i;
  }
}

TEST(SetupTest, TakesAnyIntervalOfSnapshots) {
  for (const milliseconds interval : {milliseconds(1), milliseconds::max()}) {
    const ps::Setup setup{.tensors = {{"weights", 5}}, .servers = 1, .workers = 1, .snapshot_interval = interval};
    const absl::StatusOr<ps::Setup> back = DecodeSetup(Encode(setup));
    ASSERT_THAT(back.status(), IsOk());
    EXPECT_GE(back->snapshot_interval, std::min<milliseconds>(interval, std::chrono::hours(24 * 365 * 30)));
    EXPECT_GT(Duration(back->snapshot_interval), Duration::zero()) << "out of the clock's range";
  }
}

TEST(SetupTest, ComesBackAsItWas) {
  for (const Rule& rule : {Rule{}, Rule{Sgd{0.1f, 0.2f}}, Rule{Momentum{0.1f, 0.2f, true, 0.3f}},
                           Rule{Adam{1, 2, 3, 4, 5}}, Rule{Adagrad{1, 2, 3, 4}}}) {
    const ps::Setup setup{.tensors = {{"weights", 5}, {"b", 0}},
                          .tables = {{.name = "words", .rows = 9, .columns = 3, .first = UniformRows{0.5f, 7}},
                                     {.name = "x", .rows = 1, .first = ConstantRows{2}}},
                          .servers = 3,
                          .workers = 9,
                          .consistency = {Mode::kStale, 4},
                          .rule = rule,
                          .snapshot_interval = milliseconds(17),
                          .replicas = 1};
    const std::string bytes = Encode(setup);
    const absl::StatusOr<ps::Setup> back = DecodeSetup(bytes);
    ASSERT_THAT(back.status(), IsOk());
    EXPECT_EQ(Encode(*back), bytes);
    EXPECT_EQ(back->tensors[0].name, "weights");
    EXPECT_EQ(back->tensors[0].count, 5);
    EXPECT_EQ(back->tables[0].columns, 3);
    EXPECT_EQ(std::get<UniformRows>(back->tables[0].first).seed, 7u);
    EXPECT_EQ(std::get<ConstantRows>(back->tables[1].first).value, 2.0f);
    EXPECT_EQ(back->servers, 3);
    EXPECT_EQ(back->workers, 9);
    EXPECT_EQ(back->replicas, 1);
    for (size_t cut = 0; cut < bytes.size(); ++cut) {
      EXPECT_FALSE(DecodeSetup(std::string_view(bytes).substr(0, cut)).ok());
    }
    support::Mutator random(7);
    for (int i = 0; i < 2000; ++i) {
      std::string changed = bytes;
      changed[random.Below(changed.size())] = static_cast<char>(random());
      DecodeSetup(changed).IgnoreError();
    }
  }
}

TEST(FileDiskTest, KeepsFilesByName) {
  support::TemporaryDirectory folder;
  FileDisk disk(folder.path().string());
  EXPECT_THAT(disk.Read("a").status(), MatchesStatus(absl::StatusCode::kNotFound, "a"));
  ASSERT_THAT(disk.Write("a", "long text"), IsOk());
  ASSERT_THAT(disk.Write("a", "text"), IsOk());
  ASSERT_THAT(disk.Sync("a"), IsOk());
  ASSERT_THAT(disk.Rename("a", "b"), IsOk());
  ASSERT_THAT(disk.SyncFolder(), IsOk());
  EXPECT_EQ(*disk.Read("b"), "text");
  EXPECT_EQ(*disk.List(), std::vector<std::string>{"b"});
  EXPECT_THAT(disk.Remove("b"), IsOk());
  EXPECT_THAT(disk.Remove("b"), IsOk());
  EXPECT_FALSE(disk.Sync("b").ok());
  EXPECT_FALSE(FileDisk((folder.path() / "absent").string()).Write("a", "b").ok());
}

}  // namespace
}  // namespace gyre::ps
