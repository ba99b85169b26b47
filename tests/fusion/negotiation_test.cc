#include "fusion/negotiation.h"

#include <functional>
#include <limits>
#include <span>

#include "absl/strings/str_cat.h"
#include "fusion/coordinator.h"
#include "fusion/fused_calls.h"
#include "fusion/negotiation_world.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using internal::NamedKind;
using internal::NamedSignature;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using support::MatchesStatus;
using testing::HasSubstr;

SimSubmission One(const std::string& name, NamedSignature signature = {.count = 10}, Duration timeout = seconds(60)) {
  return {.operations = {{name, signature}}, .timeout = timeout, .delay = microseconds(3)};
}

// So many steps of these operations, one after the other.
SimProgram Steps(int steps, const std::vector<std::string>& names) {
  SimProgram program;
  for (int step = 0; step < steps; ++step) {
    program.steps.emplace_back();
    for (const std::string& name : names) program.steps.back().push_back(One(name));
  }
  return program;
}

const absl::Status& EndOf(const NegotiationWorld& world, int rank, const std::string& name, int instance) {
  static const absl::Status kNothing = absl::UnknownError("it has not ended");
  for (const SimEnd& end : world.ends(rank)) {
    if (end.name == name && end.instance == instance) return end.status;
  }
  return kNothing;
}

TEST(Negotiation, AfterThreeIdenticalStepsNothingIsSaid) {
  std::vector<int64_t> messages;
  for (const int steps : {6, 600}) {
    NegotiationWorld world({Steps(steps, {"a", "b", "c"}), Steps(steps, {"c", "a", "b"})}, 1);
    EXPECT_EQ(world.Run(), "");
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(world.negotiator(rank).frozen_calls(), static_cast<uint64_t>(3 * (steps - 3)));
      EXPECT_EQ(world.ends(rank).size(), static_cast<size_t>(3 * steps));
      for (const SimEnd& end : world.ends(rank)) EXPECT_TRUE(end.status.ok()) << end.status;
    }
    EXPECT_EQ(world.frozen_messages(), 0);
    messages.push_back(world.messages());
  }
  EXPECT_EQ(messages[0], messages[1]) << "however many steps";
}

TEST(Negotiation, ADeviationNamesTheFirstTensorOfEachSide) {
  std::vector<SimProgram> programs(3, Steps(10, {"a", "b"}));
  for (SimProgram& program : programs) {
    program.steps.push_back({One("a"), One("new", {.count = 7}), One("b")});
    program.steps.push_back({One("a"), One("b")});
  }
  NegotiationWorld world(programs, 2);
  EXPECT_EQ(world.Run(), "");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(world.negotiator(rank).last_deviation(), HasSubstr("'new' (allreduce(f32, 7 elements, sum))"));
    EXPECT_THAT(world.negotiator(rank).last_deviation(), HasSubstr("has 'b' (allreduce(f32, 10 elements, sum))"));
    EXPECT_TRUE(EndOf(world, rank, "new", 0).ok());
    EXPECT_TRUE(EndOf(world, rank, "b", 11).ok());
  }
}

TEST(Negotiation, OneRankAloneLeavesTheFrozenOrder) {
  std::vector<SimProgram> programs(2, Steps(10, {"a", "b"}));
  programs[1].steps[8][1] = One("b", {.count = 11});
  NegotiationWorld world(programs, 3);
  EXPECT_EQ(world.Run(), "");
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(EndOf(world, rank, "b", 8),
                MatchesStatus(absl::StatusCode::kInvalidArgument, "allreduce(f32, 11 elements, sum)"));
    EXPECT_THAT(EndOf(world, rank, "b", 8),
                MatchesStatus(absl::StatusCode::kInvalidArgument, "allreduce(f32, 10 elements, sum)"));
    EXPECT_TRUE(EndOf(world, rank, "b", 9).ok());
    EXPECT_TRUE(EndOf(world, rank, "a", 9).ok());
  }
}

TEST(Negotiation, ARankThatIsLateIsNamedLongBefore) {
  const auto report = [](const std::string& name, Duration left) {
    return internal::Report{
        .announcements = {{name, {.count = 10}, std::chrono::duration_cast<microseconds>(left).count()}}};
  };
  internal::Coordinator coordinator(3);
  const TimePoint start{seconds(1000)};
  ASSERT_TRUE(coordinator.OnReport(2, report("slow", seconds(300)), start).ok());
  ASSERT_TRUE(coordinator.OnReport(2, report("short", seconds(8)), start).ok());
  ASSERT_TRUE(coordinator.OnReport(0, report("slow", seconds(300)), start + seconds(1)).ok());
  EXPECT_EQ(coordinator.deadline(), start + seconds(2));
  coordinator.Tick(start + seconds(1));
  EXPECT_TRUE(coordinator.TakeWarnings().empty());
  coordinator.Tick(start + seconds(2));
  EXPECT_THAT(coordinator.TakeWarnings(),
              testing::ElementsAre("tensor 'short' (allreduce(f32, 10 elements, sum)) was not submitted by rank 0, "
                                   "rank 1 yet"));
  EXPECT_EQ(coordinator.deadline(), start + seconds(8));
  ASSERT_TRUE(coordinator.OnReport(0, report("short", seconds(8)), start + seconds(3)).ok());
  ASSERT_TRUE(coordinator.OnReport(1, report("short", seconds(8)), start + seconds(3)).ok());
  EXPECT_EQ(coordinator.deadline(), start + seconds(10));
  coordinator.Tick(start + seconds(10));
  EXPECT_THAT(coordinator.TakeWarnings(), testing::ElementsAre(HasSubstr("'slow' (allreduce(f32, 10 elements, sum)) "
                                                                         "was not submitted by rank 1 yet")));
  coordinator.Tick(start + seconds(200));
  EXPECT_TRUE(coordinator.TakeWarnings().empty()) << "once";
}

TEST(Negotiation, ARankThatNeverSubmitsIsNamedAtTheDeadline) {
  for (const int steps : {1, 20}) {  // before the order freezes, and after
    std::vector<SimProgram> programs(3, Steps(steps, {"a", "b"}));
    for (SimProgram& program : programs) program.steps.push_back({One("a"), One("b", {.count = 10}, seconds(5))});
    programs[2].steps.back().pop_back();
    NegotiationWorld world(programs, 4);
    EXPECT_EQ(world.Run(), "");
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_THAT(EndOf(world, rank, "b", steps),
                  MatchesStatus(absl::StatusCode::kDeadlineExceeded,
                                "tensor 'b' (allreduce(f32, 10 elements, sum)) was not submitted by rank 2 in time"));
      EXPECT_TRUE(EndOf(world, rank, "a", steps).ok());
    }
    EXPECT_LT(world.took(), seconds(6));
  }
}

TEST(Negotiation, WhoComesTooLateIsToldTheSame) {
  std::vector<SimProgram> programs(2);
  programs[0].steps = {{One("x", {.count = 10}, seconds(1))}, {One("x")}};
  programs[1].steps = {{One("x")}, {One("x")}};
  programs[1].steps[0][0].delay = seconds(2);
  NegotiationWorld world(programs, 5);
  EXPECT_EQ(world.Run(), "");
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(EndOf(world, rank, "x", 0), MatchesStatus(absl::StatusCode::kDeadlineExceeded, "rank 1"));
    EXPECT_TRUE(EndOf(world, rank, "x", 1).ok()) << "the second is matched with the second";
  }
}

// Rank 2 comes to a name when the others have failed many times to agree on it, each time in another way.
TEST(Negotiation, WhoComesTooLateIsToldTheWordsOfEachFailure) {
  constexpr int kFailures = 200;
  internal::Coordinator coordinator(3);
  const TimePoint now = TimePoint{} + std::chrono::hours(1);
  const auto report = [&](int rank, int64_t count) {
    const internal::Report report{
        .announcements = {{.name = "a", .signature = {.count = count}, .left_us = int64_t{60'000'000}}}};
    EXPECT_TRUE(coordinator.OnReport(rank, report, now).ok());
  };
  for (int failure = 0; failure < kFailures; ++failure) {
    report(0, 1);
    report(1, 2 + failure);
  }
  EXPECT_EQ(coordinator.Take().size(), kFailures);
  for (int failure = 0; failure < kFailures; ++failure) {
    report(2, 1);
    const std::vector<internal::Decision> told = coordinator.Take();
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].ranks, std::vector<int32_t>{2});
    EXPECT_EQ(told[0].code, absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(told[0].text, HasSubstr(absl::StrCat("rank 1 allreduce(f32, ", 2 + failure, " elements, sum)")));
  }
}

TEST(Negotiation, WaitingOutOfOrderDoesNotHangAFrozenOrder) {
  std::vector<SimProgram> programs(2, Steps(10, {"a", "b"}));
  for (SimProgram& program : programs) {
    program.steps.push_back({One("b"), One("a")});  // waits for b before it submits a
    program.steps.back()[0].waits = true;
  }
  NegotiationWorld world(programs, 6);
  EXPECT_EQ(world.Run(), "");
  EXPECT_TRUE(EndOf(world, 1, "a", 10).ok());
  EXPECT_LT(world.took(), seconds(1));
}

TEST(Negotiation, AJoinedRankIsLeftOutUntilAllHaveJoined) {
  std::vector<SimProgram> programs = {Steps(9, {"a", "b"}), Steps(5, {"a", "b"}), Steps(7, {"a", "b"})};
  for (SimProgram& program : programs) program.joins = true;
  NegotiationWorld world(programs, 7);
  EXPECT_EQ(world.Run(), "");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(world.join_value(rank), 0);
  EXPECT_TRUE(EndOf(world, 0, "b", 8).ok());
}

TEST(Negotiation, TheRootOfABroadcastMustNotHaveJoined) {
  std::vector<SimProgram> programs(2);
  programs[0].steps = {{One("w", {.kind = NamedKind::kBroadcast, .root = 1, .count = 3})}};
  for (SimProgram& program : programs) program.joins = true;
  NegotiationWorld world(programs, 8);
  EXPECT_EQ(world.Run(), "");
  EXPECT_THAT(EndOf(world, 0, "w", 0), MatchesStatus(absl::StatusCode::kInvalidArgument, "root, rank 1, has joined"));
}

// A group of f32 sums on GPUs, of so many elements each.
SimSubmission GroupOnGpu(const std::vector<int64_t>& counts) {
  SimSubmission one{.timeout = seconds(60), .delay = microseconds(3)};
  std::vector<std::string> names;
  for (size_t i = 0; i < counts.size(); ++i) names.push_back(absl::StrCat("g", i));
  for (size_t i = 0; i < counts.size(); ++i) {
    one.operations.push_back({names[i],
                              {.count = counts[i],
                               .group = internal::GroupOf(names),
                               .group_size = static_cast<int32_t>(counts.size()),
                               .group_index = static_cast<int32_t>(i),
                               .on_gpu = true}});
  }
  return one;
}

TEST(Negotiation, AGroupOnGpusTravelsAsOne) {
  SimProgram program;
  SimSubmission on_host = GroupOnGpu({1, 2, 3});
  for (auto& [name, signature] : on_host.operations) signature.on_gpu = false;
  for (int step = 0; step < 9; ++step) program.steps.push_back({GroupOnGpu({5, 0, 70}), One("a")});
  program.steps.push_back({on_host});
  NegotiationWorld world({program, program}, 9);
  EXPECT_EQ(world.Run(), "");
  EXPECT_GT(world.negotiator(0).frozen_calls(), 8U);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(world.most_parts(rank), 3U);
    EXPECT_EQ(world.calls(rank), 9U * 2 + 3 + 1) << "and the one that ended the frozen order";
    for (const SimEnd& end : world.ends(rank)) EXPECT_TRUE(end.status.ok()) << end.status;
    EXPECT_EQ(world.ends(rank).size(), 9U * 4 + 3);
  }
}

TEST(Negotiation, WhatIsFused) {
  const auto parts = [](const SimSubmission& group) {
    std::vector<internal::NamedPart> all;
    for (const auto& [name, signature] : group.operations) all.push_back({1, {name, signature, {}}});
    return all;
  };
  const std::vector<internal::NamedPart> group = parts(GroupOnGpu({5, 8, 9, internal::kMostFusedBytes / 4 - 20}));
  const auto fuses = [&](size_t so_many, const NamedSignature& next) {
    const auto before = std::span(group).first(so_many);
    return internal::Fuses(before.back().call.signature, internal::PlacesOf(before).back(), next);
  };
  EXPECT_TRUE(fuses(1, group[1].call.signature));
  EXPECT_TRUE(fuses(2, group[2].call.signature));
  EXPECT_FALSE(fuses(1, group[2].call.signature)) << "not the next";
  EXPECT_FALSE(fuses(3, group[3].call.signature)) << "too much";
  EXPECT_THAT(internal::PlacesOf(group), testing::ElementsAre(0, 8, 16, 28, internal::kMostFusedBytes / 4 + 8));
  for (const auto& change : std::vector<std::function<void(NamedSignature&)>>{
           [](NamedSignature& s) { s.on_gpu = false; }, [](NamedSignature& s) { s.dtype = DType::kF64; },
           [](NamedSignature& s) { s.op = ReduceOp::kMax; }, [](NamedSignature& s) { s.postscale = 2; },
           [](NamedSignature& s) { s.group += 2; }}) {
    NamedSignature next = group[1].call.signature;
    change(next);
    EXPECT_FALSE(fuses(1, next)) << Describe(next);
  }
  std::vector<internal::NamedPart> others = parts(GroupOnGpu({5, 8}));
  for (internal::NamedPart& part : others) part.call.signature.op = ReduceOp::kAdasum;
  EXPECT_FALSE(internal::Fuses(others[0].call.signature, 8, others[1].call.signature)) << "of whole tensors";
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t count : {kMost / 8, kMost}) {
    for (const SimSubmission& two : {GroupOnGpu({count, 1}), GroupOnGpu({1, count})}) {
      others = parts(two);
      EXPECT_FALSE(internal::Fuses(others[0].call.signature, internal::NextPlace(0, others[0].call.signature),
                                   others[1].call.signature));
    }
  }
}

TEST(Negotiation, MixedDevicesAreNamed) {
  std::vector<SimProgram> programs(2, Steps(1, {"a"}));
  programs[1].steps[0][0].operations[0].second.on_gpu = true;
  NegotiationWorld world(programs, 10);
  EXPECT_EQ(world.Run(), "");
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(EndOf(world, rank, "a", 0),
                MatchesStatus(absl::StatusCode::kInvalidArgument, "allreduce(f32, 10 elements on a GPU, sum)"));
    EXPECT_THAT(EndOf(world, rank, "a", 0),
                MatchesStatus(absl::StatusCode::kInvalidArgument, "allreduce(f32, 10 elements, sum)"));
  }
}

TEST(Negotiation, WhoJoinsWithoutAGpuHasNothingToContribute) {
  std::vector<SimProgram> programs(2);
  programs[0].steps = {{One("a", {.count = 3, .on_gpu = true})}};
  for (SimProgram& program : programs) program.joins = true;
  NegotiationWorld world(programs, 11);
  EXPECT_EQ(world.Run(), "");
  EXPECT_THAT(EndOf(world, 0, "a", 0), MatchesStatus(absl::StatusCode::kInvalidArgument, "rank 1 joined before"));
  programs = {Steps(4, {}), Steps(2, {})};
  for (SimProgram& program : programs) {
    for (auto& step : program.steps) step.push_back(One("a", {.count = 3, .on_gpu = true}));
    program.joins = true;
  }
  NegotiationWorld both(programs, 12);
  EXPECT_EQ(both.Run(), "");
  EXPECT_TRUE(EndOf(both, 0, "a", 3).ok()) << EndOf(both, 0, "a", 3);
}

TEST(Negotiation, MessagesThatAreCutShortAreRefused) {
  internal::Report report{.generation = 3, .announcements = {{"x", {.count = 4}, 5}}, .deviation = "why"};
  const std::string bytes = Encode(report);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THAT(internal::DecodeReport(bytes.substr(0, length)), MatchesStatus(absl::StatusCode::kDataLoss, ""));
  }
  EXPECT_THAT(internal::DecodeReport(bytes + "x"), MatchesStatus(absl::StatusCode::kDataLoss, ""));
  const std::string decisions = Encode(std::vector<internal::Decision>{{.name = "x", .counts = {1, 2}, .ranks = {1}}});
  for (size_t length = 0; length < decisions.size(); ++length) {
    EXPECT_THAT(internal::DecodeDecisions(decisions.substr(0, length)), MatchesStatus(absl::StatusCode::kDataLoss, ""));
  }
}

TEST(Negotiation, RandomProgramsEndAsTheyShould) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    ASSERT_EQ(RunRandomNegotiation(seed, seed % 10 == 0 ? 64 : 6), "");
  }
}

}  // namespace
}  // namespace gyre
