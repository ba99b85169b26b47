// Environment: where variables come from, so that tests can give their own.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace gyre {

// The variable's value; empty if it is not set. A variable set to "" counts as not set.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;

Environment ProcessEnvironment();
Environment FixedEnvironment(std::map<std::string, std::string, std::less<>> variables);

}  // namespace gyre
