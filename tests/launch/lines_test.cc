#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "launch/line_assembler.h"
#include "launch/line_tagger.h"

namespace gyre::launch {

namespace {

using Blocks = std::vector<std::string>;

Blocks Assemble(const Blocks& reads, size_t longest = 1000, bool finish = true) {
  Blocks blocks;
  LineAssembler lines(longest);
  const auto emit = [&](std::string_view block) { blocks.emplace_back(block); };
  for (const std::string& bytes : reads) lines.Feed(bytes, emit);
  if (finish) lines.Finish(emit);
  return blocks;
}

TEST(LineAssemblerTest, WholeLinesPassAtOnce) {
  EXPECT_EQ(Assemble({"a\nb\n"}), (Blocks{"a\nb\n"}));
}

TEST(LineAssemblerTest, AnUnfinishedLineWaitsForItsEnd) {
  EXPECT_EQ(Assemble({"a\nb", "c", "d\ne"}, 1000, false), (Blocks{"a\n", "bcd\n"}));
}

TEST(LineAssemblerTest, FinishHandsOutTheRest) {
  EXPECT_EQ(Assemble({"a\nb"}), (Blocks{"a\n", "b"}));
}

TEST(LineAssemblerTest, AReturnEndsALine) {
  EXPECT_EQ(Assemble({"10%\r20", "%\r"}), (Blocks{"10%\r", "20%\r"}));
}

TEST(LineAssemblerTest, LongLinesComeInPieces) {
  const Blocks blocks = Assemble({std::string(600, 'x'), std::string(600, 'x'), std::string(10, 'x') + "\n"});
  EXPECT_EQ(blocks, (Blocks{std::string(1200, 'x'), std::string(10, 'x') + "\n"}));
}

TEST(LineAssemblerTest, ArbitraryBytesInArbitraryReadsAreNeitherLostNorTorn) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += static_cast<char>(random() % 16 == 0 ? '\n' : random());
    Blocks reads;
    for (size_t at = 0, count = 0; at < text.size(); at += count) {
      count = random() % 100;
      reads.push_back(text.substr(at, count));
    }
    std::string joined;
    const Blocks blocks = Assemble(reads, 1 << 20);
    for (const std::string& block : blocks) joined += block;
    ASSERT_EQ(joined, text);
    for (size_t i = 0; i + 1 < blocks.size(); ++i) {
      ASSERT_TRUE(blocks[i].back() == '\n' || blocks[i].back() == '\r');
    }
  }
}

std::string Tagged(const Blocks& blocks, const std::string& tag, bool timestamp = false) {
  LineTagger tagger(tag, timestamp);
  std::string out;
  for (const std::string& block : blocks) tagger.Append(block, "T", out);
  return out;
}

TEST(LineTaggerTest, WithoutTagsNothingChanges) {
  EXPECT_EQ(Tagged({"a\r\nb\n", "c"}, ""), "a\r\nb\nc");
}

TEST(LineTaggerTest, EachLineGetsItsTag) {
  EXPECT_EQ(Tagged({"a\n\nb\n"}, "[1]:"), "[1]:a\n[1]:\n[1]:b\n");
}

TEST(LineTaggerTest, TheTimeComesFirst) {
  EXPECT_EQ(Tagged({"a\n"}, "[1]:", true), "T [1]:a\n");
  EXPECT_EQ(Tagged({"a\n"}, "", true), "T a\n");
}

TEST(LineTaggerTest, AnUnfinishedLineIsFinished) {
  EXPECT_EQ(Tagged({"a", "b\n"}, "[1]:"), "[1]:a\n[1]:b\n");
}

TEST(LineTaggerTest, ProgressBarsKeepTheirReturns) {
  EXPECT_EQ(Tagged({"1%\r2%\r", "3%\r"}, "[1]:"), "[1]:1%\r[1]:2%\r[1]:3%\r");
}

TEST(LineTaggerTest, ReturnAndNewlineAreOneEndEvenInTwoBlocks) {
  EXPECT_EQ(Tagged({"a\r\nb\r\n"}, "[1]:"), "[1]:a\r\n[1]:b\r\n");
  EXPECT_EQ(Tagged({"a\r", "\nb\n"}, "[1]:"), "[1]:a\r\n[1]:b\n");
  EXPECT_EQ(Tagged({"a\r", "\n", "\n"}, "[1]:"), "[1]:a\r\n[1]:\n");
}

TEST(LineTaggerTest, TagAndTimeText) {
  EXPECT_EQ(RankTag(3, "stderr"), "[3]<stderr>:");
  EXPECT_EQ(TimeText().size(), std::string("2026-01-31T12:34:56.789").size());
}

}  // namespace

}  // namespace gyre::launch
