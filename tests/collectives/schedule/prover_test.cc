// The prover can fail: broken schedules, each with the fault that must be found.
#include "collectives/schedule/prover.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collectives/schedule/algorithms.h"
#include "collectives/schedule/bruck.h"
#include "collectives/schedule/steps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using support::IsOk;
using testing::HasSubstr;
using Programs = std::vector<Schedule>;

absl::Status Verdict(const Programs& programs, Claim claim, const Conditions& conditions = {}) {
  const auto outcome = RunSymbolically(programs, conditions);
  return outcome.ok() ? claim(*outcome, 0) : outcome.status();
}

std::string Fault(const Programs& programs, Claim claim, const Conditions& conditions = {}) {
  return std::string(Verdict(programs, claim, conditions).message());
}

Programs OneBlock(std::vector<std::vector<Step>> steps) {
  Programs programs;
  for (auto& list : steps) programs.push_back({.blocks = 1, .steps = std::move(list)});
  return programs;
}

TEST(Prover, AcceptsWhatIsRight) {
  EXPECT_THAT(Verdict(OneBlock({{SendTo(1, 0), ReduceFrom(1, 0)}, {SendTo(0, 0), ReduceFrom(0, 0)}}), AllReduced),
              IsOk());
}

TEST(Prover, FindsAMissingStep) {
  EXPECT_EQ(Fault(OneBlock({{SendTo(1, 0)}, {}}), Broadcasted), "unmatched: rank 0 sends block 0 to rank 1");
  EXPECT_EQ(Fault(OneBlock({{}, {ReceiveFrom(0, 0)}}), Broadcasted), "unmatched: rank 1 receives block 0 from rank 0");
}

TEST(Prover, FindsADeadlockAndNamesTheStuck) {
  const std::vector<Step> receives_first_0 = {ReceiveFrom(1, 0), SendTo(1, 0)};
  const std::vector<Step> receives_first_1 = {ReceiveFrom(0, 0), SendTo(0, 0)};
  EXPECT_EQ(Fault(OneBlock({receives_first_0, receives_first_1}), AllReduced),
            "deadlock: 4 steps are stuck; rank 0 receives block 0 from rank 1; rank 0 sends block 0 to rank 1; "
            "rank 1 receives block 0 from rank 0; rank 1 sends block 0 to rank 0");
}

// The second send finds the place taken by the first, which nobody takes out before both were sent.
TEST(Prover, FindsADeadlockOfFullPlaces) {
  const auto steps = [](int peer) {
    return std::vector<Step>{SendTo(peer, 0), SendTo(peer, 0), ReceiveFrom(peer, 0), ReceiveFrom(peer, 0)};
  };
  EXPECT_THAT(Fault(OneBlock({steps(1), steps(0)}), AllReduced), HasSubstr("deadlock: 6 steps"));
}

// Rank 1 takes rank 0's block only along with what rank 2 sends on of it. That goes unit by unit; but if rank 0 waits
// until two units are off to rank 1 before it sends any to rank 2, none ever is.
TEST(Prover, FindsADeadlockOfExecutorsThatSendNoCrumbs) {
  const Programs programs = OneBlock(
      {{SendTo(1, 0), SendTo(2, 0)}, {ReceiveFrom(2, 0), ReceiveFrom(0, 0)}, {ReceiveFrom(0, 0), SendTo(1, 0)}});
  EXPECT_THAT(Verdict(programs, Broadcasted), IsOk());
  EXPECT_THAT(Verdict(programs, Broadcasted, {.units = {3}}), IsOk());
  EXPECT_THAT(Fault(programs, Broadcasted, {.units = {3}, .grain = 2}), HasSubstr("deadlock"));
}

TEST(Prover, FindsAWrongBlock) {
  const Programs programs = {{.blocks = 2, .steps = {SendTo(1, 0)}}, {.blocks = 2, .steps = {ReceiveFrom(0, 1)}}};
  EXPECT_EQ(Fault(programs, Broadcasted),
            "wrong block: rank 0 sends block 0 to rank 1, but rank 1 receives block 1 from rank 0");
}

TEST(Prover, FindsAPieceOfAllToAllInTheWrongPlace) {
  Algorithm algorithm;
  for (const Algorithm& one : AllAlgorithms()) {
    if (one.meeting == Meeting::kPiece) algorithm = one;
  }
  Programs programs = ProgramsOf(algorithm, 3, 0);
  EXPECT_THAT(Verdict(programs, algorithm.claim, {.meeting = Meeting::kPiece}), IsOk());
  programs[1].steps[1].block = 3 + 1;
  EXPECT_THAT(Fault(programs, algorithm.claim, {.meeting = Meeting::kPiece}), HasSubstr("wrong block"));
}

// Relayed pieces may come as any block of their size: that the right ones do is left to the claim.
TEST(Prover, FindsARelayedPieceThatWentAstray) {
  const Conditions conditions = {.meeting = Meeting::kAny};
  Programs programs = {{.blocks = 4, .steps = {SendTo(1, 1), ReceiveFrom(1, 3)}},
                       {.blocks = 4, .steps = {SendTo(0, 0), ReceiveFrom(0, 2)}}};
  EXPECT_THAT(Verdict(programs, Exchanged, conditions), IsOk());
  EXPECT_THAT(Fault(programs, Exchanged, {.units = {1, 2, 1, 1}, .meeting = Meeting::kAny}), HasSubstr("wrong block"));
  programs[0].steps[0].block = 0;
  EXPECT_EQ(Fault(programs, Exchanged, conditions),
            "rank 1, block 2, unit 0: rank 0's block 0 where rank 0's block 1 should be");
}

// A relay that takes the next piece in before the last one is off has lost that.
TEST(Prover, FindsARelayThatOverwrites) {
  const Conditions conditions = {.meeting = Meeting::kAny};
  Programs programs;
  for (int rank = 0; rank < 4; ++rank) programs.push_back(BruckAllToAll(rank, 4));
  ASSERT_THAT(Verdict(programs, Exchanged, conditions), IsOk());
  // Of rank 2, from its piece for 1 (three further on) as it comes by at 3, and then goes on to 1.
  const auto relay = std::ranges::find(programs[3].steps, SendTo(1, 4 + 0));
  ASSERT_NE(relay, programs[3].steps.end());
  std::iter_swap(relay, relay + 1);
  EXPECT_THAT(Fault(programs, Exchanged, conditions), HasSubstr("should be"));
}

TEST(Prover, FindsADoubleContribution) {
  const Programs programs = OneBlock({{SendTo(1, 0), ReduceFrom(1, 0), SendTo(1, 0), ReduceFrom(1, 0), SendTo(2, 0)},
                                      {SendTo(0, 0), ReduceFrom(0, 0), SendTo(0, 0), ReduceFrom(0, 0)},
                                      {ReceiveFrom(0, 0)}});
  EXPECT_THAT(Fault(programs, AllReduced), HasSubstr("a combination of 4 blocks where 3 were to be combined"));
  // As many as there should be, but one twice and another not at all.
  const Programs as_many = OneBlock({{ReduceFrom(1, 0), ReduceFrom(1, 0), SendTo(1, 0), SendTo(2, 0)},
                                     {SendTo(0, 0), SendTo(0, 0), ReceiveFrom(0, 0)},
                                     {ReceiveFrom(0, 0)}});
  EXPECT_THAT(Fault(as_many, AllReduced), HasSubstr("rank 1's block 0 was combined twice"));
}

// Everyone has everything once, but 0 has (0 + 1) + 2, and 2 has (2 + 0) + 1.
TEST(Prover, FindsOtherTrees) {
  const Programs programs = OneBlock({{SendTo(1, 0), SendTo(2, 0), ReduceFrom(1, 0), ReduceFrom(2, 0)},
                                      {SendTo(0, 0), SendTo(2, 0), ReduceFrom(0, 0), ReduceFrom(2, 0)},
                                      {SendTo(0, 0), SendTo(1, 0), ReduceFrom(0, 0), ReduceFrom(1, 0)}});
  EXPECT_EQ(Fault(programs, AllReduced), "rank 2, block 0, unit 0: combined in another tree than rank 0's first unit");
  EXPECT_THAT(Verdict(programs, Reduced), IsOk());
}

// Rank 1 gets rank 2's block from rank 0, and so puts it before its own; rank 2 puts rank 1's before its own.
TEST(Prover, TellsOrdersApartWhereTheyMatter) {
  const Programs programs =
      OneBlock({{ReceiveFrom(2, 0), SendTo(1, 0)}, {SendTo(2, 0), ReduceFrom(0, 0)}, {SendTo(0, 0), ReduceFrom(1, 0)}});
  const auto commutative = RunSymbolically(programs, {});
  const auto ordered = RunSymbolically(programs, {.lower_rank_first = true});
  ASSERT_THAT(commutative, IsOk());
  ASSERT_THAT(ordered, IsOk());
  EXPECT_EQ(commutative->At(1, 0, 0), commutative->At(2, 0, 0));
  EXPECT_NE(ordered->At(1, 0, 0), ordered->At(2, 0, 0));
}

TEST(Prover, FindsStepsThatNameNothing) {
  EXPECT_THAT(Fault(OneBlock({{SendTo(0, 0)}, {}}), Broadcasted), HasSubstr("out of range"));
  EXPECT_THAT(Fault(OneBlock({{SendTo(2, 0)}, {}}), Broadcasted), HasSubstr("out of range"));
  EXPECT_THAT(Fault(OneBlock({{SendTo(-1, 0)}, {}}), Broadcasted), HasSubstr("out of range"));
  EXPECT_THAT(Fault(OneBlock({{SendTo(1, 1)}, {ReceiveFrom(0, 1)}}), Broadcasted), HasSubstr("out of range"));
  EXPECT_THAT(Fault({{.blocks = 1, .steps = {}}, {.blocks = 2, .steps = {}}}, Broadcasted), HasSubstr("other blocks"));
}

TEST(Prover, FindsThatABarrierHearsTooLittle) {
  const Programs programs = OneBlock({{SendTo(1, 0), ReduceFrom(2, 0)},  // three ranks need two rounds
                                      {SendTo(2, 0), ReduceFrom(0, 0)},
                                      {SendTo(0, 0), ReduceFrom(1, 0)}});
  EXPECT_EQ(Fault(programs, AllHaveCome), "rank 0, block 0, unit 0: rank 1's block 0 is missing");
}

// One change to one step of a right program.
class Mutation : public testing::TestWithParam<Algorithm> {
 protected:
  void SetUp() override { programs_ = ProgramsOf(GetParam(), 6, 0); }

  // `change` alters a copy of a rank's program at a step; false: it does not apply there. All must be found.
  template <typename Change>
  void ExpectFound(Change&& change) {
    int changed = 0;
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      for (size_t step = 0; step < programs_[rank].steps.size(); ++step) {
        Programs broken = programs_;
        if (!change(broken[rank], step)) continue;
        ++changed;
        EXPECT_FALSE(Verdict(broken, GetParam().claim, {.meeting = GetParam().meeting}).ok())
            << GetParam().name << ": rank " << rank << ", step " << step;
      }
    }
    if (changed == 0) GTEST_LOG_(INFO) << GetParam().name << ": no step to which this could be done";
  }

  Programs programs_;
};

TEST_P(Mutation, AStepLeftOutIsFound) {
  ExpectFound([](Schedule& schedule, size_t step) {
    schedule.steps.erase(schedule.steps.begin() + static_cast<ptrdiff_t>(step));
    return true;
  });
}

TEST_P(Mutation, ANeighbouringBlockIsFound) {
  ExpectFound([](Schedule& schedule, size_t step) {
    Step& changed = schedule.steps[step];
    changed.block = (changed.block + 1) % schedule.blocks;
    return schedule.blocks > 1;
  });
}

TEST_P(Mutation, AnotherPeerIsFound) {
  ExpectFound([](Schedule& schedule, size_t step) {
    schedule.steps[step].peer = (schedule.steps[step].peer + 1) % 6;
    return true;
  });
}

// A barrier bears either: it hears of everybody by more than one way.
TEST_P(Mutation, ReceivingForReducingAndBackIsFound) {
  ExpectFound([](Schedule& schedule, size_t step) {
    Step::Kind& kind = schedule.steps[step].kind;
    if (kind == Step::Kind::kSend || GetParam().claim == AllHaveCome) return false;
    kind = kind == Step::Kind::kReceive ? Step::Kind::kReceiveReduce : Step::Kind::kReceive;
    return true;
  });
}

TEST_P(Mutation, ASendOnTheWrongSideOfAReceiveIsFound) {
  ExpectFound([](Schedule& schedule, size_t step) {
    const auto sends = [&](size_t at) { return schedule.steps[at].kind == Step::Kind::kSend; };
    size_t next = step + 1;
    while (next < schedule.steps.size() && schedule.steps[next].block != schedule.steps[step].block) ++next;
    if (next == schedule.steps.size() || sends(step) == sends(next) || GetParam().claim == AllHaveCome) return false;
    std::swap(schedule.steps[step], schedule.steps[next]);
    return true;
  });
}

INSTANTIATE_TEST_SUITE_P(Schedules, Mutation, testing::ValuesIn(AllAlgorithms()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gyre::internal
