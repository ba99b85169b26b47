// main() of every test binary.
//
// A folder's tests are one binary, of which a CTest entry runs a part: --sources=a_test.cc,b/c_test.cc has it run the
// cases that these sources define.
#include <fnmatch.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "support/child.h"

namespace {

bool IsOf(std::string_view file, const std::vector<std::string>& sources) {
  return std::ranges::any_of(sources, [&](std::string_view source) {
    return file == source || (file.ends_with(source) && file[file.size() - source.size() - 1] == '/');
  });
}

// Whether one of `patterns`, separated by ':', matches.
bool MatchesAny(const std::string& name, const std::string& patterns) {
  return std::ranges::any_of(
      static_cast<std::vector<std::string>>(absl::StrSplit(patterns, ':', absl::SkipEmpty())),
      [&](const std::string& pattern) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
}

// Whether GoogleTest's filter lets a case run: patterns, and after a '-' those that it leaves out.
bool PassesFilter(const std::string& name, const std::string& filter) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(filter, absl::MaxSplits('-', 1));
  return MatchesAny(name, parts.first.empty() ? "*" : parts.first) && !MatchesAny(name, parts.second);
}

// A filter for the cases that `sources` define, of those that GoogleTest's filter lets run: "-*" if there are none.
// Empty if `sources` define no case at all.
std::string FilterOf(const std::vector<std::string>& sources) {
  std::string filter;
  bool any = false;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    std::vector<std::string> chosen;
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string name = absl::StrCat(suite.name(), ".", test.name());
      if (!IsOf(test.file(), sources)) continue;
      any = true;
      if (PassesFilter(name, GTEST_FLAG_GET(filter))) chosen.push_back(name);
    }
    // GoogleTest prints the filter: it is kept short.
    if (!chosen.empty() && std::ssize(chosen) == suite.total_test_count()) chosen = {absl::StrCat(suite.name(), ".*")};
    for (const std::string& name : chosen) absl::StrAppend(&filter, name, ":");
  }
  return any && filter.empty() ? "-*" : filter;
}

}  // namespace

int main(int argc, char** argv) {
  using gyre::support::ThisChild;
  ThisChild();  // before any test can look at the environment
  testing::InitGoogleMock(&argc, argv);
  constexpr std::string_view kSources = "--sources=";
  if (argc == 2 && std::string_view(argv[1]).starts_with(kSources)) {
    const std::string filter = FilterOf(absl::StrSplit(argv[1] + kSources.size(), ','));
    if (filter.empty()) {
      std::cerr << argv[1] << ": no case is defined there" << std::endl;
      return 1;
    }
    GTEST_FLAG_SET(filter, filter);
  } else if (argc > 1) {
    std::cerr << "what is '" << argv[1] << "'? --sources=FILE,... runs the cases of these sources; --help: GoogleTest's"
              << std::endl;
    return 1;
  }
  const int code = RUN_ALL_TESTS();
  if (ThisChild() && code == 0) {
    // The body of a child exits by itself: whoever comes here never met it.
    std::cout << "rank " << ThisChild()->rank.rank << " never reached its body" << std::endl;
    return gyre::support::kNeverRanExitCode;
  }
  return code;
}
