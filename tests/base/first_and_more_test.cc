#include "base/first_and_more.h"

#include <functional>
#include <vector>

#include "gtest/gtest.h"

namespace gyre {
namespace {

TEST(FirstAndMore, SaysHowManyAreNotNamed) {
  const std::vector<int> numbers = {1, 2, 3};
  EXPECT_EQ(FirstAndMore(numbers, 4, std::identity()), "1, 2, 3");
  EXPECT_EQ(FirstAndMore(numbers, 3, std::identity()), "1, 2, 3");
  EXPECT_EQ(FirstAndMore(numbers, 2, std::identity()), "1, 2 and 1 more");
  EXPECT_EQ(FirstAndMore(std::vector<int>(), 2, std::identity()), "");
  EXPECT_EQ(FirstAndMore(numbers, 1, [](int number) { return std::string(2, static_cast<char>('a' + number)); }),
            "bb and 2 more");
}

}  // namespace
}  // namespace gyre
