#include "ps/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "support/status_matchers.h"

namespace gyre::ps {
namespace {

using support::IsOk;
using support::MatchesStatus;

TEST(WireTest, APushAsItIsInTheDocument) {
  const std::array<float, 1> gradient = {1.0f};
  const std::string bytes = Encode({.kind = Kind::kPush,
                                    .epoch = 1,
                                    .incarnation = 2,
                                    .slot = 3,
                                    .from = 4,
                                    .sequence = 5,
                                    .rate = 2.0f,
                                    .values = std::as_bytes(std::span(gradient))});
  const auto u64 = [](char value) {
    std::string bytes(8, '\0');
    bytes[0] = value;
    return bytes;
  };
  const std::string zeros(8, '\0'), u32(4, '\0'), slot("\x03\0\0\0", 4), one("\0\0\x80\x3f", 4), two("\0\0\0\x40", 4);
  EXPECT_EQ(bytes, absl::StrCat("\x05", u64(1), u64(2), zeros, slot, u64(4), u64(5), two, u32, one));
  const auto message = Decode(bytes);
  ASSERT_THAT(message, IsOk());
  EXPECT_EQ(message->sequence, 5u);
  EXPECT_EQ(AsText(message->values), one);
  for (const float rate : {-1.0f, std::numeric_limits<float>::infinity()}) {
    EXPECT_FALSE(Decode(Encode({.kind = Kind::kPush, .rate = rate})).ok()) << rate;
  }
}

TEST(WireTest, WhatDoesNotFitIsRefused) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(Decode(""), MatchesStatus(kInvalid, "empty"));
  EXPECT_THAT(Decode(std::string(25, '\0')), MatchesStatus(kInvalid, "kind 0"));
  const std::string push = Encode({.kind = Kind::kPush, .from = 2, .sequence = 2, .values = AsBytes("abcd")});
  for (size_t size = 0; size + 4 < push.size(); ++size) EXPECT_FALSE(Decode(push.substr(0, size)).ok()) << size;
  EXPECT_FALSE(Decode(push.substr(0, push.size() - 1)).ok()) << "three quarters of a float";
  EXPECT_FALSE(Decode(Encode({.kind = Kind::kPush, .from = 3, .sequence = 2})).ok());
  EXPECT_FALSE(Decode(Encode({.kind = Kind::kPull, .clock = kMostSteps})).ok());
  EXPECT_FALSE(Decode(Encode({.kind = Kind::kPulse, .next = {1}})).ok()) << "lists of unequal length";
  EXPECT_FALSE(Decode(absl::StrCat(Encode({.kind = Kind::kUnknown}), "x")).ok());
  EXPECT_FALSE(Decode(Encode({.kind = Kind::kForward, .entry = static_cast<Entry>(5)})).ok());
}

TEST(WireTest, BetweenServersMessagesComeBackAsTheyWere) {
  for (const Kind kind : {Kind::kFetch, Kind::kPiece, Kind::kForward, Kind::kConfirm}) {
    const std::string bytes = Encode({.kind = kind,
                                      .epoch = 1,
                                      .to = 2,
                                      .flag = true,
                                      .slot = 3,
                                      .from = 4,
                                      .sequence = 5,
                                      .clock = 6,
                                      .worker = 7,
                                      .rate = 8,
                                      .values = AsBytes("abcd"),
                                      .text = "text",
                                      .last = true,
                                      .entry = Entry::kRoster});
    const auto message = Decode(bytes);
    ASSERT_THAT(message, IsOk());
    EXPECT_EQ(Encode(*message), bytes);
    const size_t floats = kind == Kind::kForward ? 4 : 0;  // fewer are a message as well
    for (size_t size = 0; size + floats < bytes.size(); ++size) EXPECT_FALSE(Decode(bytes.substr(0, size)).ok());
  }
}

}  // namespace
}  // namespace gyre::ps
