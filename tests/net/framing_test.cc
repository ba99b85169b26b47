#include "net/framing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/status.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::IsOk;
using support::MatchesStatus;

constexpr uint32_t kCap = 1000;

// Feeds `stream` in pieces of random sizes; stops at an error.
absl::Status Decode(FrameDecoder& decoder, std::string_view stream, std::mt19937_64& random,
                    std::vector<Frame>& frames) {
  while (!stream.empty()) {
    const size_t size = 1 + random() % std::min<size_t>(stream.size(), 64);
    Bytes piece = AsBytes(stream.substr(0, size));
    stream.remove_prefix(size);
    for (;;) {
      ASSIGN_OR_RETURN(auto frame, decoder.Next(piece));
      if (!frame) break;
      frames.push_back(*std::move(frame));
    }
    EXPECT_TRUE(piece.empty());
  }
  return absl::OkStatus();
}

std::string RandomBytes(std::mt19937_64& random, size_t size) {
  std::string bytes(size, '\0');
  std::ranges::generate(bytes, [&] { return static_cast<char>(random()); });
  return bytes;
}

TEST(Framing, FramesSurviveAnyCut) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string stream;
    std::vector<Frame> sent;
    for (int i = 0; i < 5; ++i) {
      Frame& frame = sent.emplace_back();
      frame.header = {static_cast<uint16_t>(random()), static_cast<uint16_t>(random()), random(),
                      static_cast<uint32_t>(random())};
      frame.payload = RandomBytes(random, random() % (i == 0 ? 1 : kCap + 1));
      stream += EncodeFrame(frame.header, frame.payload);
    }
    FrameDecoder decoder(kCap);
    std::vector<Frame> got;
    ASSERT_THAT(Decode(decoder, stream, random, got), IsOk());
    ASSERT_EQ(got.size(), sent.size());
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(got[i].payload, sent[i].payload);
      EXPECT_EQ(got[i].header.type, sent[i].header.type);
      EXPECT_EQ(got[i].header.flags, sent[i].header.flags);
      EXPECT_EQ(got[i].header.epoch, sent[i].header.epoch);
      EXPECT_EQ(got[i].header.sequence, sent[i].header.sequence);
    }
  }
}

TEST(Framing, EveryFlippedBitIsSeen) {
  const std::string frame = EncodeFrame({1, 2, 3, 4}, "payload");
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    std::string flipped = frame;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    FrameDecoder decoder(kCap);
    Bytes bytes = AsBytes(flipped);
    const auto got = decoder.Next(bytes);
    // An error, or, where the length grew, still waiting; never a frame.
    EXPECT_TRUE(!got.ok() || !got->has_value()) << "bit " << bit;
  }
}

TEST(Framing, RefusesLengthsOverTheCap) {
  const std::string frame = EncodeFrame({}, std::string(kCap + 1, 'x'));
  FrameDecoder decoder(kCap);
  Bytes bytes = AsBytes(frame);
  EXPECT_THAT(decoder.Next(bytes), MatchesStatus(absl::StatusCode::kDataLoss, "1001 bytes are over the cap"));
  // For good: what follows may be anything.
  const std::string good = EncodeFrame({}, "good");
  bytes = AsBytes(good);
  EXPECT_THAT(decoder.Next(bytes), MatchesStatus(absl::StatusCode::kDataLoss, "over the cap"));
}

TEST(Framing, AnAnnouncedLengthCostsNothing) {
  // Only the header comes: were the announced 4 GiB reserved at once, many decoders would not fit into memory.
  const uint32_t cap = 0xffffffff;
  std::string frame = EncodeFrame({}, "");
  std::fill_n(frame.begin() + 20, 4, '\xff');
  std::vector<FrameDecoder> decoders(10'000, FrameDecoder(cap));
  for (FrameDecoder& decoder : decoders) {
    Bytes bytes = AsBytes(frame);
    const auto got = decoder.Next(bytes);
    ASSERT_THAT(got, IsOk());
    EXPECT_FALSE(got->has_value());
  }
}

TEST(Framing, SurvivesGarbage) {
  std::mt19937_64 random(7);
  int frames_found = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string stream = EncodeFrame({static_cast<uint16_t>(round), 0, 5, 6}, RandomBytes(random, random() % 50));
    switch (random() % 5) {
      case 0: stream = RandomBytes(random, random() % 200); break;
      case 1: stream.resize(random() % stream.size()); break;
      case 2: stream.insert(random() % stream.size(), RandomBytes(random, 1 + random() % 4)); break;
      case 3: stream[random() % stream.size()] = static_cast<char>(random()); break;
      default: break;
    }
    stream += RandomBytes(random, random() % 100);
    FrameDecoder decoder(kCap);
    std::vector<Frame> got;
    Decode(decoder, stream, random, got).IgnoreError();
    frames_found += static_cast<int>(got.size());
    EXPECT_LE(got.size(), 1u);
  }
  EXPECT_GT(frames_found, 3'000);  // the untouched ones
}

TEST(WireReader, StaysInsideItsBytes) {
  std::string bytes;
  WireWriter writer(bytes);
  writer.U16(0x1234);
  writer.U64(0xfedcba9876543210);
  writer.Text("text");
  writer.U8(9);
  WireReader reader(bytes);
  EXPECT_EQ(reader.U16(), 0x1234);
  EXPECT_EQ(reader.U64(), 0xfedcba9876543210);
  EXPECT_EQ(reader.Text(), "text");
  EXPECT_FALSE(reader.AtEnd());
  EXPECT_EQ(reader.U8(), 9);
  EXPECT_TRUE(reader.AtEnd());
  EXPECT_EQ(reader.U32(), 0u);
  EXPECT_FALSE(reader.ok());

  WireReader lying(
      std::string_view("\xff\xff\xff\xff"
                       "abc",
                       7));  // a length beyond the end
  EXPECT_EQ(lying.Text(), "");
  EXPECT_FALSE(lying.ok());
  EXPECT_EQ(lying.U8(), 0);
}

TEST(WireReader, SignedNumbersAreTwosComplement) {
  const std::string bytes = Written([](WireWriter& writer) {
    for (const int32_t number : {0, -1, INT32_MAX, INT32_MIN}) writer.I32(number);
  });
  EXPECT_EQ(bytes, std::string_view("\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f\0\0\0\x80", 16));
  WireReader reader(bytes);
  for (const int32_t number : {0, -1, INT32_MAX, INT32_MIN}) EXPECT_EQ(reader.I32(), number);
  EXPECT_TRUE(reader.AtEnd());
}

}  // namespace
}  // namespace gyre
