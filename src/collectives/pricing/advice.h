// Advice: through parameter servers or by allreduce, and with how many servers: what exchanging a model's gradients
// costs a step each way, by formula. Bandwidth-optimal schedules, links full both ways, nothing hidden behind
// computation. Workers of one host add up their gradients before an allreduce between hosts; to servers each of them
// pushes for itself. What is pushed, and the values that come back, may both be sent in fewer bytes, each in its own
// way; coding is done piece by piece, while others are on their way.
//
// The shares of servers on hosts of their own and beside workers are those of Jiang et al., "A Unified Architecture for
// Accelerating Distributed DNN Training in Heterogeneous GPU/CPU Clusters", OSDI 2020, section 4.1. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::internal {

struct AdviceQuestion {
  double model_bytes = 0;               // of all gradients; more than 0
  int hosts = 1;                        // that workers run on
  int workers_per_host = 1;             //
  double bytes_per_second = 0;          // of a host's link, each way; more than 0
  double latency = 0;                   // seconds, one way
  double reduced_bytes_per_second = 0;  // of gradients that a host adds up; more than 0
  int most_servers = 0;                 // hosts that could be servers; 0: none but the workers'
  double compression = 0.5;             // bytes sent of a byte by a codec for all elements; 0 to 1, not 0
  double sparse_share = 0.0015;         // likewise by one that chooses few (DGC of 99.9 %); 0 to 1, not 0
  double rounded_values = 0.5;          // likewise of values that servers round (fp16); 0 to 1, not 0
  double coded_bytes_per_second = 4e9;  // of a codec; more than 0
};

struct Advice {
  std::string strategy;  // "allreduce, flat", "servers beside workers", ...
  int servers = 0;       // hosts of their own
  double seconds = 0;
  bool lossy = false;  // sends less than the gradients
};

// What workers' exchange with servers loads: served.h takes it from here. All of it at once, in step, takes
// latency_seconds + max(link_seconds, all workers * server_seconds).
struct ServerLoad {
  double link_seconds = 0;     // that the link of a worker's host carries what its workers push, or pull
  double server_seconds = 0;   // that the fullest link, or server, has to do with one worker's push, or its values
  double latency_seconds = 0;  // there and back
};

// Bytes sent of a byte, 0 to 1, not 0. Less than 1: they are coded.
struct ServedShares {
  double pushes = 1;
  double values = 1;
};

// Of servers on `servers` hosts of their own, at least 1; and beside all workers and on `more` hosts, 0 to `hosts`
// (coded: 0). REQUIRES: a question in its range
ServerLoad LoadOfServersApart(const AdviceQuestion& question, int servers, const ServedShares& shares = {});
ServerLoad LoadOfServersBeside(const AdviceQuestion& question, int more, const ServedShares& shares = {});

// Every way, the cheapest first; of equals the one with fewer hosts. kInvalidArgument names what is out of its range.
absl::StatusOr<std::vector<Advice>> Advise(const AdviceQuestion& question);

}  // namespace gyre::internal
