// LinkModel: how fast the way from one rank to another is, for what simulates it or works out its price.
#pragma once

#include <chrono>

namespace gyre::sim {

struct LinkModel {
  std::chrono::nanoseconds latency{50'000};  // from the sender's link to the receiver's
  double bytes_per_second = 125e6;
};

}  // namespace gyre::sim
