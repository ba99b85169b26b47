// gyre-bench allreduce: latency and bandwidth by size, alone or interleaved with a peer in the same processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "contender.h"

namespace gyre::bench {

struct AllReduceOptions {
  std::string begin = "8";
  std::string end = "256M";
  int factor = 2;
  std::string buffers = "arena";  // or "plain", or "both"
  std::string dtype = "f32";
  std::string op = "sum";
  int iterations = 0;  // samples a size; 0: chosen by size
  bool check = true;
  std::string json;  // a file
  std::vector<std::string> against;
};

absl::Status RunAllReduce(const AllReduceOptions& options, const std::string& command);

}  // namespace gyre::bench
