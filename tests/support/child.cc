#include "support/child.h"

#include <stdlib.h>
#include <unistd.h>

#include <string_view>

namespace gyre::support {

namespace {

constexpr const char* kRank = "GYRE_TEST_RANK";
constexpr const char* kSize = "GYRE_TEST_SIZE";
constexpr const char* kCall = "GYRE_TEST_CALL";
constexpr const char* kDirectory = "GYRE_TEST_DIRECTORY";
constexpr const char* kName = "GYRE_TEST_NAME";

std::string Take(const char* name) {
  const char* value = getenv(name);
  std::string text = value == nullptr ? "" : value;
  unsetenv(name);
  return text;
}

}  // namespace

std::map<std::string, std::optional<std::string>> ChildEnvironment(const ChildContext& context) {
  std::map<std::string, std::optional<std::string>> environment = {{kRank, std::to_string(context.rank.rank)},
                                                                   {kSize, std::to_string(context.rank.size)},
                                                                   {kCall, std::to_string(context.call)},
                                                                   {kDirectory, context.rank.directory.string()},
                                                                   {kName, context.rank.name}};
  // GTEST_OUTPUT would have the child overwrite the parent's report; shards and repetitions are the parent's too.
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    if (variable.starts_with("GTEST_")) environment[std::string(variable.substr(0, variable.find('=')))] = std::nullopt;
  }
  return environment;
}

std::optional<ChildContext> ReadChildContext() {
  if (getenv(kRank) == nullptr) return std::nullopt;
  ChildContext context;
  context.rank.rank = atoi(Take(kRank).c_str());
  context.rank.size = atoi(Take(kSize).c_str());
  context.call = atoi(Take(kCall).c_str());
  context.rank.directory = Take(kDirectory);
  context.rank.name = Take(kName);
  return context;
}

const std::optional<ChildContext>& ThisChild() {
  static const std::optional<ChildContext> context = ReadChildContext();
  return context;
}

}  // namespace gyre::support
