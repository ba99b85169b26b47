#include "collectives/shm/group.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/log.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"
#include "transport/shm/mesh.h"

namespace gyre::internal {
namespace {

using support::IsOk;

// A thread that looks all the while, as one that passes words on does. Many times, for there is but a moment in which
// it could see one without the other.
TEST(Group, ThatIsBrokenHasItsLastWordsAlready) {
  const auto node =
      *shm::Node::Create({.rank = 0}, *shm::OwnMemory::Create(0, 1 << 20), {}, MakeLogger(LogLevel::kOff, "test"));
  const GroupLayout layout{.size = 1, .capacity = 4096, .message_capacity = 4096};
  for (int time = 0; time < 3000; ++time) {
    const auto region = node->ReserveRegion(layout.bytes());
    ASSERT_THAT(region, IsOk());
    const auto group = *Group::Create(node, {0}, std::vector{*region}, layout);
    std::atomic<bool> looks = false;
    bool had_words = false, had_status = false;
    std::thread other([&] {
      looks.store(true);
      while (group->usable()) continue;
      had_words = group->OwnLastWords().has_value();
      had_status = !group->status().ok();
    });
    while (!looks.load()) continue;
    EXPECT_TRUE(group->Break(absl::AbortedError("broken"), {-1, "words"}));
    other.join();
    ASSERT_TRUE(had_words && had_status) << time << (had_words ? "" : ": no words")
                                         << (had_status ? "" : ": no status");
  }
}

}  // namespace
}  // namespace gyre::internal
