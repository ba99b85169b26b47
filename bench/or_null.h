// What may be missing, as JSON.
#pragma once

#include <optional>

#include "nlohmann/json.hpp"

namespace gyre::bench {

template <typename T>
nlohmann::ordered_json OrNull(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace gyre::bench
