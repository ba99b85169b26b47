// RowInitializer: the first values of an embedding table's rows. A row is made where it is asked for, always the same:
// nothing is stored of rows that were never pushed.
#pragma once

#include <cstdint>
#include <variant>

namespace gyre {

struct ConstantRows {
  float value = 0;  // finite
};

// Each element is uniform in [-limit, limit), and depends on the seed, the table's name, its row and its column alone:
// not on servers, workers, or when it is asked for.
struct UniformRows {
  float limit = 0.05f;  // finite, 0 or more
  uint64_t seed = 0;
};

using RowInitializer = std::variant<ConstantRows, UniformRows>;

}  // namespace gyre
