#include "base/process_mark.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "support/forked.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

TEST(ProcessMark, TellsTheProcessThatMadeItFromItsChildren) {
  const ProcessMark mark;
  const std::string made = absl::StrCat("from process ", getpid(), ",");
  const int status = support::RunForked([&] {
    EXPECT_TRUE(mark.forked());
    EXPECT_THAT(mark.Check(), MatchesStatus(StatusCode::kFailedPrecondition, made));
    EXPECT_FALSE(ProcessMark().forked());
    EXPECT_EQ(support::RunForked([&] { EXPECT_TRUE(mark.forked()); }), 0);
  });
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(mark.forked());
  EXPECT_THAT(mark.Check(), IsOk());
}

// A process without room for a page asks for its number instead. (Sanitizers need room all the time.)
TEST(ProcessMark, NeedsNoMemory) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const int status = support::RunForked([] {
    rlimit none{};
    ASSERT_EQ(getrlimit(RLIMIT_AS, &none), 0);
    none.rlim_cur = 0;
    ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
    const ProcessMark mark;
    none.rlim_cur = none.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
    EXPECT_FALSE(mark.forked());
    EXPECT_EQ(support::RunForked([&] { EXPECT_TRUE(mark.forked()); }), 0);
  });
  EXPECT_EQ(status, 0);
#else
  GTEST_SKIP() << "a sanitizer needs address space";
#endif
}

TEST(KeepUntilExit, NoDestructorRuns) {
  bool destroyed = false;
  const int status = support::RunForked([&] {
    std::shared_ptr<void> object(&destroyed, [](void* gone) { *static_cast<bool*>(gone) = true; });
    KeepUntilExit(object);
    object.reset();
    EXPECT_FALSE(destroyed);
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gyre
