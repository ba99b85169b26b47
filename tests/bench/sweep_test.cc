// The sweep in a job of one rank, with contenders that count their calls and one that computes wrongly.
#include "sweep.h"

#include <cstring>
#include <utility>

#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::bench {

namespace {

using support::IsOk;
using support::MatchesStatus;

struct Log {
  std::string calls;  // a letter a call, in their order
};

// Copies, as an allreduce of one rank does; spoils an element of each result if it is a bad one.
class Fake final : public Contender {
 public:
  Fake(char letter, Log& log, bool bad) : letter_(letter), log_(log), bad_(bad) {}

  std::string name() const override { return {letter_}; }

  absl::Status Prepare(const Task& task) override {
    task_ = task;
    in_.assign(static_cast<size_t>(task.send_bytes()), std::byte{});
    out_ = in_;
    return absl::OkStatus();
  }

  bool Supports(bool in_place) const override { return !in_place; }
  Ends ends(bool in_place) override { return EndsOf(task_, in_.data(), out_.data(), in_place); }

  absl::Status Run(bool /*in_place*/) override {
    log_.calls += letter_;
    std::memcpy(out_.data(), in_.data(), in_.size());
    if (bad_) out_[9] ^= std::byte{1};
    return absl::OkStatus();
  }

 private:
  const char letter_;
  Log& log_;
  const bool bad_;
  Task task_;
  std::vector<std::byte> in_, out_;
};

// Works in memory of its own, and only when it is waited for: as a GPU does.
class Remote final : public Contender {
 public:
  std::string name() const override { return "remote"; }

  absl::Status Prepare(const Task& task) override {
    task_ = task;
    in_.assign(static_cast<size_t>(task.send_bytes()), std::byte{});
    out_ = remote_in_ = remote_out_ = in_;
    return absl::OkStatus();
  }

  bool Supports(bool in_place) const override { return !in_place; }
  Ends ends(bool in_place) override { return EndsOf(task_, in_.data(), out_.data(), in_place); }
  absl::Status Upload(bool /*in_place*/) override {
    remote_in_ = in_;
    return absl::OkStatus();
  }
  absl::Status Download(bool /*in_place*/) override {
    out_ = remote_out_;
    return absl::OkStatus();
  }
  absl::Status Run(bool /*in_place*/) override {
    ++queued_;
    return absl::OkStatus();
  }
  absl::Status Finish() override {
    if (queued_ > 0) remote_out_ = remote_in_;
    queued_ = 0;
    ++finished_;
    return absl::OkStatus();
  }

  int queued_ = 0, finished_ = 0;

 private:
  Task task_;
  std::vector<std::byte> in_, out_, remote_in_, remote_out_;
};

class SweepTest : public testing::Test {
 protected:
  absl::Status Run(const SweepOptions& options, bool bad) {
    auto runtime = Runtime::Create({.rank = 0, .size = 1});
    if (!runtime.ok()) return runtime.status();
    auto sweep = Sweep::Create(options, (*runtime)->world());
    if (!sweep.ok()) return sweep.status();
    Contenders contenders;
    contenders.push_back(std::make_unique<Fake>('a', log_, false));
    contenders.push_back(std::make_unique<Fake>('b', log_, bad));
    return sweep->Run(Operation::kAllReduce, contenders, nullptr);
  }

  Log log_;
};

TEST_F(SweepTest, WrongElementsAreCountedAndAreAnError) {
  EXPECT_THAT(Run({.begin = "64", .end = "256", .iterations = 1}, false), IsOk());
  EXPECT_THAT(Run({.begin = "64", .end = "256", .iterations = 1}, true),
              MatchesStatus(absl::StatusCode::kDataLoss, "3 elements came out wrong"));
  EXPECT_THAT(Run({.begin = "64", .end = "256", .iterations = 1, .check = false}, true), IsOk());
}

TEST_F(SweepTest, ContendersTakeTurnsSampleBySample) {
  ASSERT_THAT(Run({.begin = "32M", .end = "32M", .iterations = 3, .check = false}, false), IsOk());
  // Three calls each to warm up, then samples of one call, each after one in step.
  EXPECT_EQ(log_.calls,
            "aaabbb"
            "aabb"
            "aabb"
            "aabb");
}

TEST_F(SweepTest, MemoryElsewhereIsFilledLookedAtAndWaitedFor) {
  auto runtime = Runtime::Create({.rank = 0, .size = 1});
  ASSERT_THAT(runtime, IsOk());
  auto sweep = Sweep::Create({.begin = "32M", .end = "32M", .iterations = 3}, (*runtime)->world());
  ASSERT_THAT(sweep, IsOk());
  auto remote = std::make_unique<Remote>();
  Remote& seen = *remote;
  Contenders contenders;
  contenders.push_back(std::move(remote));
  ASSERT_THAT(sweep->Run(Operation::kAllReduce, contenders, nullptr), IsOk());  // none is wrong
  EXPECT_EQ(seen.queued_, 0) << "a sample's time ends when its calls have";
  EXPECT_EQ(seen.finished_, 1 + 3 * 2) << "the check, and before and after the calls of each sample";
}

TEST_F(SweepTest, WrongOptions) {
  EXPECT_THAT(Run({.begin = "no"}, false), MatchesStatus(absl::StatusCode::kInvalidArgument, "'no'"));
  EXPECT_THAT(Run({.dtype = "f8"}, false), MatchesStatus(absl::StatusCode::kInvalidArgument, "'f8'"));
  EXPECT_THAT(Run({.op = "xor"}, false), MatchesStatus(absl::StatusCode::kInvalidArgument, "'xor'"));
  EXPECT_THAT(Run({.root = 1}, false), MatchesStatus(absl::StatusCode::kInvalidArgument, "root 1"));
}

}  // namespace

}  // namespace gyre::bench
