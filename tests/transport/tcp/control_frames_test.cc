#include "transport/tcp/control_frames.h"

#include <random>

#include "net/bytes.h"
#include "support/status_matchers.h"

namespace gyre::tcp {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

TEST(ControlFrames, ComeBackAsTheyWere) {
  const Announcement announcement{~uint64_t{0}, StatusCode::kUnauthenticated, -1, "text"};
  EXPECT_EQ(DecodeAnnouncement(Encode(announcement)).value_or(Announcement{}), announcement);
  const Loss loss{3, 2147483647, "rank 3 was lost"};
  EXPECT_EQ(DecodeLoss(Encode(loss)).value_or(Loss{}), loss);
  const CallNotice notice{~uint64_t{0}, 3, {1, 2, 3, 4, -5, int64_t{1} << 40, 77}};
  EXPECT_EQ(DecodeCallNotice(Encode(notice)).value_or(CallNotice{}), notice);
  for (const Purpose& purpose : {Purpose{true, 0}, Purpose{false, 1234567890123456789u}}) {
    const std::string frame = EncodePurpose(7, purpose);
    ASSERT_EQ(frame.size(), kPurposeFrameBytes);
    FrameDecoder decoder(kPurposePayload);
    Bytes bytes = AsBytes(frame);
    const auto decoded = decoder.Next(bytes);
    ASSERT_THAT(decoded, IsOk());
    ASSERT_TRUE(decoded->has_value());
    EXPECT_THAT(CheckHeader((*decoded)->header, 7, 0), IsOk());
    EXPECT_THAT(CheckHeader((*decoded)->header, 8, 0), MatchesStatus(StatusCode::kDataLoss, "epoch 7"));
    EXPECT_THAT(CheckHeader((*decoded)->header, 7, 1), MatchesStatus(StatusCode::kDataLoss, "frame 0"));
    EXPECT_EQ(DecodePurpose((*decoded)->payload).value_or(Purpose{true, 99}), purpose);
  }
}

TEST(ControlFrames, LongTextsAreCutToFit) {
  const std::string text(1'000'000, 't');
  EXPECT_EQ(DecodeLoss(Encode(Loss{1, 1, text}))->text.size(), kMaxTextBytes);
  EXPECT_LE(Encode(Announcement{1, StatusCode::kAborted, 1, text}).size(), kMaxControlPayload);
}

TEST(ControlFrames, WhatDoesNotFitIsRefused) {
  const std::string announcement = Encode(Announcement{1, StatusCode::kAborted, 2, "text"});
  const std::string loss = Encode(Loss{1, 2, "text"});
  for (size_t size = 0; size < announcement.size(); ++size) {
    EXPECT_THAT(DecodeAnnouncement(announcement.substr(0, size)), MatchesStatus(StatusCode::kDataLoss, "announcement"));
  }
  for (size_t size = 0; size < loss.size(); ++size) {
    EXPECT_THAT(DecodeLoss(loss.substr(0, size)), MatchesStatus(StatusCode::kDataLoss, "loss"));
  }
  const std::string notice = Encode(CallNotice{});
  for (size_t size = 0; size < notice.size(); ++size) {
    EXPECT_THAT(DecodeCallNotice(notice.substr(0, size)), MatchesStatus(StatusCode::kDataLoss, "call"));
  }
  EXPECT_FALSE(DecodeCallNotice(notice + "x").ok());
  EXPECT_FALSE(DecodeAnnouncement(announcement + "x").ok());
  EXPECT_FALSE(DecodeLoss(loss + "x").ok());
  EXPECT_FALSE(DecodeAnnouncement(Encode(Announcement{1, StatusCode::kOk, 2, ""})).ok());
  EXPECT_FALSE(DecodeAnnouncement(Encode(Announcement{1, static_cast<StatusCode>(17), 2, ""})).ok());
  EXPECT_FALSE(DecodeAnnouncement(Encode(Announcement{1, StatusCode::kAborted, -2, ""})).ok());
  EXPECT_FALSE(DecodeLoss(Encode(Loss{-1, 2, ""})).ok());
  EXPECT_FALSE(DecodeLoss(Encode(Loss{1, -1, ""})).ok());
  for (const char kind : {0, 3}) EXPECT_FALSE(DecodePurpose(kind + std::string(15, '\0')).ok());
  EXPECT_FALSE(DecodePurpose("\1").ok());
}

TEST(ControlFrames, RandomBytesHurtNobody) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::minstd_rand random(seed);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 4 == 0 ? random() : random() % 3);
    for (const absl::Status& status :
         {DecodeAnnouncement(bytes).status(), DecodeLoss(bytes).status(), DecodePurpose(bytes).status()}) {
      EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
    }
  }
}

}  // namespace
}  // namespace gyre::tcp
