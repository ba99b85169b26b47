// Refiner: corrects the model by which a communicator's algorithms are chosen, from the times that its calls take
// between hosts.
//
// What was measured at the start may have been measured at a bad moment, and networks change. Of transfers in which
// all ranks do the same and end together, each rank notes how long they took against what the model says of them: of
// those in which nearly all is latency, and of those in which nearly all is bandwidth. At calls fixed by their
// number among those that teach, 16, 32, 64 and so on (from 4096 on, every 4096th), all ranks agree on these ratios;
// where one is far from 1, all correct the model by it. So they choose alike in every call. All is off where an
// algorithm is forced, or the nominal model.
//
// Robust: a rank offers the lower quartile of its ratios, and the least that any rank offers counts, for a rank that
// comes early sees the others come late. Hysteresis: a model that is right within a factor of 2 stays.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "collectives/selection/selector.h"

namespace gyre::internal {

// One thread at a time.
class Refiner {
 public:
  // What went between hosts, on one of the rails that did so at the same time.
  struct Transfer {
    Collective operation;
    Algorithm algorithm;
    int64_t bytes;  // of this rail
    int hosts;
    int rails;
  };

  // The times measured by those predicted, of latency and of bandwidth; kNothing where too little is known.
  using Lessons = std::array<double, 2>;
  static constexpr double kNothing = std::numeric_limits<double>::infinity();

  // `start`: the job's selector, alike on all ranks.
  explicit Refiner(std::shared_ptr<Selector> start);

  // By the model as it is now.
  Selector& selector() const { return *selector_; }

  // Whether all ranks agree at this call of the communicator's, of those that learn, counted from 1.
  bool Due(uint64_t call) const;

  // Whether another transfer would teach anything: after a few of each kind none does until the next agreement.
  bool wants_more() const { return on_ && looks_ < kMostLooks; }
  void Record(const Transfer& transfer, double seconds);

  Lessons Offer() const;

  // `agreed`: by element the least of all ranks' offers. Begins anew.
  void Adopt(const Lessons& agreed);

 private:
  static constexpr int kMostLooks = 64;             // predictions between two agreements: what all this costs
  static constexpr size_t kMost = 16, kFewest = 4;  // of one kind

  bool on_;
  std::shared_ptr<Selector> selector_;
  std::array<std::vector<double>, 2> ratios_;
  int looks_ = 0;
};

}  // namespace gyre::internal
