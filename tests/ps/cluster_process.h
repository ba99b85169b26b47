// What the parts of Cluster share.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "cluster.h"

namespace gyre::ps {

inline constexpr Timing kClusterTiming{.heartbeat = std::chrono::milliseconds(200),
                                       .timeout = std::chrono::milliseconds(1000),
                                       .resend = std::chrono::milliseconds(400)};
inline constexpr int64_t kClusterColumns = 2;  // of all tables

// A life of a server or worker. What is on its way to a number reaches every living process that has it.
struct Cluster::Process {
  bool is_server = false;
  int number = 0;
  uint64_t incarnation = 0;
  bool alive = true;
  TimePoint frozen_until{};
  TimePoint tick_at = TimePoint::max();
  std::unique_ptr<Network> link, ring;
  std::unique_ptr<Server> server;
  std::unique_ptr<Worker> worker;
  // Of a server:
  History history;
  std::map<int, uint64_t> welcomed;  // by worker: its newest life that was welcomed
  std::map<int, TimePoint> heard;    // by worker: when its newest life was
  std::set<int> members, gaps;       // gaps: who was given up, or came anew, at some time
  // Of a worker:
  bool pulling = false, computing = false;  // it waits for rows; it makes a gradient
  uint64_t clock = 0;                       // where it was when it ended
};

}  // namespace gyre::ps
