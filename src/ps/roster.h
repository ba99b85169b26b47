// Roster: which workers a server knows, in which life each of them is, and who of them lives. Pure; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/clock.h"
#include "ps/options.h"

namespace gyre::ps {

class Roster {
 public:
  explicit Roster(const Guards& guards) : guards_(guards) {}

  enum class Standing : uint8_t {
    kFenced,    // a newer process has taken this worker's place
    kStranger,  // lives, perhaps, but does not belong: it has to say hello
    kMember
  };

  // Of a message's sender. Being heard keeps a member alive.
  Standing Hear(int worker, uint64_t incarnation, TimePoint now);

  // This life of the worker is the one that counts from now on: older ones no longer belong. REQUIRES: not kFenced
  void Know(int worker, uint64_t incarnation);

  // It belongs from now on. REQUIRES: known in its present incarnation
  void Join(int worker, TimePoint now);

  // This process did not listen for so long up to now, for it stood still or was busy itself: nobody's silence counts
  // meanwhile.
  void Excuse(Duration absence, TimePoint now);

  // The member, in that life, was heard last at that time or before, whatever it said since: its connection has ended.
  void Doubt(int worker, uint64_t incarnation, TimePoint heard);

  // Who was silent for the time-out does not belong any more; they are returned.
  std::vector<int> Expire(TimePoint now, Duration timeout);

  // When Expire may have something to do; TimePoint::max() if never.
  TimePoint NextExpiry(Duration timeout) const;

  const std::vector<int>& members() const { return members_; }  // by number
  bool IsMember(int worker) const;
  uint64_t incarnation(int worker) const;  // 0: unknown

  struct Entry {
    uint64_t incarnation = 0;
    bool member = false;
    TimePoint heard{};
  };
  const std::map<int, Entry>& entries() const { return entries_; }

 private:
  void Count();  // members_, after a change

  Guards guards_;
  std::map<int, Entry> entries_;
  std::vector<int> members_;
};

}  // namespace gyre::ps
