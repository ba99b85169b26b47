#include "transport/shm/control_block.h"

#include <memory>

#include "gtest/gtest.h"

namespace gyre::shm {
namespace {

TEST(LastWords, TheFirstStays) {
  auto words = std::make_unique<LastWords>();
  EXPECT_FALSE(words->Read().has_value());
  words->Write({3, "first"});
  words->Write({4, "second", absl::StatusCode::kInternal});
  ASSERT_TRUE(words->Read().has_value());
  EXPECT_EQ(words->Read()->rank, 3);
  EXPECT_EQ(words->Read()->text, "first");
  EXPECT_EQ(words->Read()->code, absl::StatusCode::kAborted);
}

TEST(LastWords, CutsWhatIsTooLong) {
  auto words = std::make_unique<LastWords>();
  words->Write({0, std::string(5000, 'x')});
  EXPECT_EQ(words->Read()->text, std::string(496, 'x'));
}

TEST(LossLedger, KeepsTheOrderAndWhatFits) {
  auto ledger = std::make_unique<LossLedger>();
  EXPECT_EQ(ledger->size(), 0);
  for (int i = 0; i < LossLedger::kCapacity + 3; ++i) ledger->Append(7 * i);
  ASSERT_EQ(ledger->size(), LossLedger::kCapacity);
  EXPECT_EQ(ledger->rank(0), 0);
  EXPECT_EQ(ledger->rank(LossLedger::kCapacity - 1), 7 * (LossLedger::kCapacity - 1));
}

}  // namespace
}  // namespace gyre::shm
