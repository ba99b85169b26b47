#include "transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::shm {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

TEST(Segment, IsSharedWithWhoMapsIt) {
  auto own = Segment::Create("test", 10000);
  ASSERT_THAT(own, IsOk());
  EXPECT_GE(own->size(), 10000);
  auto other = Segment::Map(UniqueFd(dup(own->fd())), 10000);
  ASSERT_THAT(other, IsOk());
  own->data()[9999] = std::byte{42};
  EXPECT_EQ(other->data()[9999], std::byte{42});
  own->CloseFd();
  own->data()[0] = std::byte{1};
  EXPECT_EQ(other->data()[0], std::byte{1});
}

TEST(Segment, CannotBeShrunkUnderAReader) {
  auto own = Segment::Create("test", 10000);
  ASSERT_THAT(own, IsOk());
  EXPECT_NE(ftruncate(own->fd(), 0), 0);
}

TEST(Segment, RefusesWhatIsNotASealedMemfdOfTheSize) {
  UniqueFd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  EXPECT_THAT(Segment::Map(std::move(unsealed), 1), MatchesStatus(StatusCode::kDataLoss, "sealed"));
  EXPECT_THAT(Segment::Map(UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC)), 1),
              MatchesStatus(StatusCode::kDataLoss, "sealed"));
  auto small = Segment::Create("test", 4096);
  ASSERT_THAT(small, IsOk());
  EXPECT_THAT(Segment::Map(UniqueFd(dup(small->fd())), 4097), MatchesStatus(StatusCode::kDataLoss, "4097"));
}

}  // namespace
}  // namespace gyre::shm
