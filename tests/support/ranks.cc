#include "support/ranks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "support/child.h"
#include "support/slower.h"
#include "support/temporary.h"

namespace gyre::support {

namespace {

using Clock = std::chrono::steady_clock;

// How many groups of processes the running test has made: the number that parent and child agree on. Zero again at
// the start of each test (and of each repetition), by the listener that registers itself at the first use.
class CallCounter : public testing::EmptyTestEventListener {
 public:
  static int Next() {
    static CallCounter* const counter = [] {
      auto* made = new CallCounter;
      testing::UnitTest::GetInstance()->listeners().Append(made);  // which owns it from here on
      return made;
    }();
    return counter->calls_++;
  }

 private:
  void OnTestStart(const testing::TestInfo&) override { calls_ = 0; }

  int calls_ = 0;
};

[[noreturn]] void RunBodyAndExit(const Body& body) {
  const Rank& rank = ThisChild()->rank;
  {
    SCOPED_TRACE(absl::StrCat("rank ", rank.rank, " of ", rank.size, " (a process)"));
    body(rank);
  }
  std::cout << std::flush;
  // exit rather than _exit: leak checkers and race detectors report at exit.
  if (testing::Test::HasFailure()) std::exit(1);
  std::exit(testing::Test::IsSkipped() ? kSkippedExitCode : 0);
}

// What a child gave as its reason, from GoogleTest's "file:line: Skipped\n<reason>\n".
std::string SkipReason(const std::string& output) {
  constexpr std::string_view kMark = ": Skipped\n";
  const size_t mark = output.find(kMark);
  if (mark == std::string::npos) return "no reason given";
  const size_t begin = mark + kMark.size();
  return output.substr(begin, output.find('\n', begin) - begin);
}

std::vector<std::string> ThisTestAgain() {
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  return {"/proc/self/exe", absl::StrCat("--gtest_filter=", test->test_suite_name(), ".", test->name()),
          "--gtest_also_run_disabled_tests", "--gtest_color=no"};
}

}  // namespace

bool InChild() {
  return ThisChild().has_value();
}

std::string ModeName(Mode mode) {
  return mode == Mode::kThreads ? "Threads" : "Processes";
}

void RunThreads(int size, const Body& body) {
  TemporaryDirectory directory;
  const std::string name = UniqueName("gyre-test");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      SCOPED_TRACE(absl::StrCat("rank ", rank, " of ", size, " (a thread)"));
      body({rank, size, directory.path(), name});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void RunProcesses(int size, const Body& body, std::chrono::milliseconds timeout) {
  if (InChild() && CallCounter::Next() != ThisChild()->call) return;  // a child of one of the test's later calls
  if (InChild()) RunBodyAndExit(body);
  ProcessGroup group(size, body, timeout);
  group.ExpectAllSucceed();
}

void RunRanks(Mode mode, int size, const Body& body) {
  mode == Mode::kThreads ? RunThreads(size, body) : RunProcesses(size, body);
}

struct ProcessGroup::State {
  TemporaryDirectory directory;
  std::string name = UniqueName("gyre-test");
  Clock::time_point deadline;
};

ProcessGroup::ProcessGroup(int size, const Body& body, std::chrono::milliseconds timeout) {
  const int call = CallCounter::Next();
  if (InChild()) {
    if (call == ThisChild()->call) RunBodyAndExit(body);
    std::cout << "a test may make one ProcessGroup, after all its calls of RunProcesses" << std::endl;
    std::exit(kNeverRanExitCode);
  }
  state_ = std::make_unique<State>();
  state_->deadline = Clock::now() + Slower(timeout);
  for (int rank = 0; rank < size; ++rank) {
    const ChildContext child{{rank, size, state_->directory.path(), state_->name}, call};
    ProgramOptions options;
    options.environment = ChildEnvironment(child);
    programs_.push_back(std::make_unique<Program>(ThisTestAgain(), options));
  }
}

ProcessGroup::~ProcessGroup() = default;

const std::filesystem::path& ProcessGroup::directory() const {
  return state_->directory.path();
}

std::string ProcessGroup::Describe(int rank) const {
  const Program& program = *programs_[rank];
  const std::optional<int> code = program.exit_code();
  std::string fate = code ? absl::StrCat("ended with exit code ", *code) : "still ran at the time-out";
  if (code == kNeverRanExitCode) fate = "never reached its body";
  return absl::StrCat("rank ", rank, " (process ", program.pid(), ") ", fate, "; its output:\n", program.output());
}

void ProcessGroup::ExpectSuccess(int rank) {
  Program& program = *programs_[rank];
  program.WaitFor(std::chrono::ceil<std::chrono::milliseconds>(state_->deadline - Clock::now()));
  if (program.exit_code() == kSkippedExitCode) GTEST_SKIP() << "rank " << rank << ": " << SkipReason(program.out());
  EXPECT_EQ(program.exit_code(), 0) << Describe(rank);
}

void ProcessGroup::ExpectAllSucceed() {
  for (int rank = 0; rank < size(); ++rank) ExpectSuccess(rank);
}

void ProcessGroup::ExpectExitCode(int rank, int exit_code) {
  Program& program = *programs_[rank];
  program.WaitFor(std::chrono::ceil<std::chrono::milliseconds>(state_->deadline - Clock::now()));
  EXPECT_EQ(program.exit_code(), exit_code) << Describe(rank);
}

}  // namespace gyre::support
