#include "launch/lives.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launch/exit_code.h"

namespace gyre::launch {

namespace {

constexpr Duration kFirstLifePause = std::chrono::milliseconds(20);  // before a process is started again; doubles
constexpr uint64_t kMostDoublings = 8;

}  // namespace

std::optional<std::string> Lives::OnEnded(const RankEnd& end, const std::string& name) {
  const bool halted = end.signal == 0 && end.code == kExitHalted;
  if (!end.failed() || end.asked_to || end.exec_error != 0 || halted) return std::nullopt;
  const uint64_t life = lives_[end.rank];
  if (life > again_) return std::nullopt;
  due_[end.rank] = end.when + kFirstLifePause * (1 << std::min(life - 1, kMostDoublings));
  return absl::StrCat(name, " (pid ", end.pid, ") ", HowItEnded(end), "; it is started again, ", life, " of ", again_);
}

std::vector<int> Lives::TakeDue(TimePoint now) {
  std::vector<int> numbers;
  for (const auto& [number, when] : due_) {
    if (when <= now) numbers.push_back(number);
  }
  for (const int number : numbers) due_.erase(number);
  return numbers;
}

std::vector<int> Lives::Cancel() {
  std::vector<int> numbers;
  for (const auto& [number, _] : std::exchange(due_, {})) numbers.push_back(number);
  return numbers;
}

std::optional<TimePoint> Lives::next() const {
  if (due_.empty()) return std::nullopt;
  return std::ranges::min_element(due_, {}, [](const auto& entry) { return entry.second; })->second;
}

}  // namespace gyre::launch
