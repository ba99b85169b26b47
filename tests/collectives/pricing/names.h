// What names of tests about priced algorithms are made of.
#pragma once

#include <algorithm>
#include <ostream>
#include <string>

#include "collectives/pricing/closed_form.h"

namespace gyre::internal {

inline std::string NameOf(const PricedAlgorithm& algorithm) {
  std::string name = std::string(algorithm.operation) + "_" + std::string(algorithm.name);
  std::ranges::replace(name, ' ', '_');
  return name;
}

inline void PrintTo(const PricedAlgorithm& algorithm, std::ostream* out) {
  *out << NameOf(algorithm);
}

}  // namespace gyre::internal
