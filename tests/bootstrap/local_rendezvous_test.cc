#include "bootstrap/local_rendezvous.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre {
namespace {

using support::IsOk;
using support::MatchesStatus;

TEST(LocalRendezvous, PublishesReplacesAndRemoves) {
  const support::TemporaryDirectory directory;
  const LocalRendezvous mine(directory.path().string(), "job/with any \n characters", 1);
  const LocalRendezvous other(directory.path().string(), "other", 1);
  EXPECT_THAT(mine.Read(), MatchesStatus(absl::StatusCode::kUnavailable, "not opened"));
  const Endpoint first{"127.0.0.1", 4000}, second{"127.0.0.1", 4001};
  ASSERT_THAT(mine.Publish(first), IsOk());
  ASSERT_THAT(mine.Publish(second), IsOk());
  EXPECT_EQ(*mine.Read(), second);
  EXPECT_FALSE(other.Read().ok());
  EXPECT_EQ(std::filesystem::status(mine.path()).permissions(), std::filesystem::perms(0600));
  mine.Remove(first);  // is another's by now
  EXPECT_THAT(mine.Read(), IsOk());
  mine.Remove(second);
  EXPECT_FALSE(mine.Read().ok());
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(LocalRendezvous, GarbageAndLinksAreNotFollowed) {
  const support::TemporaryDirectory directory;
  const LocalRendezvous rendezvous(directory.path().string(), "job", 0);
  std::ofstream(rendezvous.path()) << std::string(10'000, 'x');
  EXPECT_THAT(rendezvous.Read(), MatchesStatus(absl::StatusCode::kUnavailable, ""));
  std::filesystem::remove(rendezvous.path());
  std::ofstream(directory.path() / "elsewhere") << "127.0.0.1:1";
  std::filesystem::create_symlink(directory.path() / "elsewhere", rendezvous.path());
  EXPECT_FALSE(rendezvous.Read().ok());
  ASSERT_THAT(rendezvous.Publish({"127.0.0.1", 2}), IsOk());  // replaces the link, not what it points to
  EXPECT_EQ(rendezvous.Read()->port, 2);
}

}  // namespace
}  // namespace gyre
