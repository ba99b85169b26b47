#include "text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/status_matchers.h"
#include "support/temporary.h"

namespace char_lm {
namespace {

using gyre::support::IsOk;
using gyre::support::MatchesStatus;

std::string Repeat(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(Text, ReadsFilesAsTheyAre) {
  const gyre::support::TemporaryDirectory folder;
  std::string bytes = "caf\xc3\xa9\r\n";
  bytes.push_back('\0');
  bytes += "\xff tail";
  std::ofstream(folder.path() / "any", std::ios::binary) << bytes;
  const auto text = ReadText(folder.path() / "any");
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(*text, bytes);
  std::ofstream(folder.path() / "empty") << "";
  const auto empty = ReadText(folder.path() / "empty");
  ASSERT_THAT(empty, IsOk());
  EXPECT_EQ(*empty, "");
  EXPECT_THAT(ReadText(folder.path() / "none"), MatchesStatus(absl::StatusCode::kNotFound, "none"));
  EXPECT_THAT(ReadText(folder.path()), MatchesStatus(absl::StatusCode::kInvalidArgument, "directory"));
}

TEST(Text, EveryByteHasItsSymbol) {
  std::string text;
  for (int c = 255; c >= 0; --c) text.push_back(static_cast<char>(c));
  text = Repeat(text, 4);
  const auto corpus = MakeCorpus(text, 0.1, 8);
  ASSERT_THAT(corpus, IsOk());
  ASSERT_EQ(corpus->alphabet.size(), 256u);
  for (size_t i = 0; i < text.size(); ++i) ASSERT_EQ(corpus->alphabet[corpus->symbols[i]], text[i]);
}

TEST(Text, TheEndIsHeldOut) {
  const auto corpus = MakeCorpus(Repeat("abcdefghij", 100), 0.25, 8);
  ASSERT_THAT(corpus, IsOk());
  EXPECT_EQ(corpus->training, 750);
  EXPECT_EQ(corpus->heldout(), 250);
  EXPECT_EQ(corpus->alphabet, "abcdefghij");
  const auto large = MakeCorpus(std::string(5'000'000, 'x'), 0.5, 8);
  ASSERT_THAT(large, IsOk());
  EXPECT_EQ(large->heldout(), kMaxHeldout);
}

TEST(Text, TooShortIsRefused) {
  for (const char* text : {"", "a", "ab", "abcdefghi"}) {
    EXPECT_THAT(MakeCorpus(text, 0.1, 8), MatchesStatus(absl::StatusCode::kInvalidArgument, "characters")) << text;
  }
  EXPECT_THAT(MakeCorpus("abcdefghij", 0.1, 8), IsOk());  // nine to train on, eight of them only as context
}

TEST(Text, HashTellsTextsAndDivisionsApart) {
  const std::string text = Repeat("some text ", 100);
  const auto hash = [](const std::string& text, double fraction) { return MakeCorpus(text, fraction, 8)->hash; };
  EXPECT_EQ(hash(text, 0.1), hash(text, 0.1));
  EXPECT_NE(hash(text, 0.1), hash(text, 0.2));
  std::string other = text;
  other[0] = 'S';
  EXPECT_NE(hash(text, 0.1), hash(other, 0.1));
}

TEST(Shard, CoversAllOnceAndEvenly) {
  for (int64_t count : {0, 1, 3, 4, 5, 1000, 1001, 1003}) {
    for (int size : {1, 2, 3, 4, 7}) {
      int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Range range = Shard(count, rank, size);
        EXPECT_EQ(range.first, next);
        EXPECT_GE(range.size(), count / size);
        EXPECT_LE(range.size(), count / size + 1);
        next = range.last;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(Samples, TheBatchIsTheSameForAnyNumberOfRanks) {
  const auto corpus = MakeCorpus(Repeat("It is a truth universally acknowledged, ", 50), 0.1, 5);
  ASSERT_THAT(corpus, IsOk());
  constexpr int64_t kBatch = 101;
  Samples whole, part;
  DrawSamples(*corpus, 5, 42, 7, {0, kBatch}, whole);
  ASSERT_EQ(whole.count, kBatch);
  for (int size : {2, 3, 4}) {
    std::vector<uint8_t> joined;
    for (int rank = 0; rank < size; ++rank) {
      DrawSamples(*corpus, 5, 42, 7, Shard(kBatch, rank, size), part);
      ASSERT_EQ(part.symbols.size(), part.count * 6u);
      joined.insert(joined.end(), part.symbols.begin(), part.symbols.end());
    }
    EXPECT_EQ(joined, whole.symbols) << size << " ranks";
  }
  DrawSamples(*corpus, 5, 42, 8, {0, kBatch}, part);
  EXPECT_NE(part.symbols, whole.symbols);  // another step
  DrawSamples(*corpus, 5, 43, 7, {0, kBatch}, part);
  EXPECT_NE(part.symbols, whole.symbols);  // another seed
}

TEST(Samples, TrainingNeverSeesWhatIsHeldOut) {
  // A text whose every symbol says where it stands: 0 to 199 to train on, 200 to 219 held out.
  std::string text;
  for (int i = 0; i < 220; ++i) text.push_back(static_cast<char>(i));
  const auto corpus = MakeCorpus(text, 20.5 / 220, 4);
  ASSERT_THAT(corpus, IsOk());
  ASSERT_EQ(corpus->training, 200);
  Samples samples;
  std::vector<bool> target(220, false);
  for (int step = 0; step < 20; ++step) {
    DrawSamples(*corpus, 4, 1, step, {0, 500}, samples);
    for (int i = 0; i < samples.count; ++i) {
      const uint8_t* row = &samples.symbols[i * 5];
      for (int k = 1; k < 5; ++k) ASSERT_EQ(row[k], row[0] + k);
      target[row[4]] = true;
    }
  }
  for (int i = 0; i < 220; ++i) EXPECT_EQ(target[i], i >= 4 && i < 200) << i;  // all that can be, and no other
  TakeSamples(*corpus, 4, {corpus->training, 220}, samples);
  ASSERT_EQ(samples.count, 20);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(samples.symbols[i * 5 + 4], 200 + i);
}

}  // namespace
}  // namespace char_lm
