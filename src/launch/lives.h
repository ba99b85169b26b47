// Lives: how often each process of this host was started, and when those that have died are started again, alone
// (--restart-rank). Ranks and servers are told apart by who asks. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/root_cause.h"

namespace gyre::launch {

class Lives {
 public:
  // Each process is started again `again` times at most.
  explicit Lives(int again) : again_(static_cast<uint64_t>(again)) {}

  // The process of that number is about to be started. Returns how often it was by then, from 1.
  uint64_t Begin(int number) { return ++lives_[number]; }

  // Whether a process that has ended so is to be started again: then it is due some time later, and the line to print
  // is returned. Not one that gyrerun has asked to end, that has halted in order, or never came to run. `name`: "rank
  // 3". `end.rank`: its number.
  std::optional<std::string> OnEnded(const RankEnd& end, const std::string& name);

  // The numbers of those that are to be started now; they are due no more.
  std::vector<int> TakeDue(TimePoint now);
  // Nobody is due any more. Returns who was.
  std::vector<int> Cancel();

  bool none_due() const { return due_.empty(); }
  std::optional<TimePoint> next() const;

 private:
  const uint64_t again_;
  std::map<int, uint64_t> lives_;  // by number
  std::map<int, TimePoint> due_;   // by number
};

}  // namespace gyre::launch
