#include "conformance/collectives_fixture.h"

#include <cctype>
#include <numeric>
#include <string>

#include "support/status_matchers.h"

namespace gyre {

using support::HostSizes;
using support::IsOk;
using support::Mode;

int64_t Conformance::LargeBytes() {
  return 30'000;
}

void Conformance::Run(const std::function<void(Runtime&, Communicator&)>& body) {
  const HostSizes& hosts = std::get<1>(GetParam());
  const int size = std::accumulate(hosts.begin(), hosts.end(), 0);
  support::RunRanks(std::get<0>(GetParam()), size, [&](const support::Rank& rank) {
    auto runtime = support::JoinJob(rank, support::JobOptions(rank, hosts));
    ASSERT_NE(runtime, nullptr);
    ASSERT_EQ(runtime->world().node_count(), static_cast<int>(hosts.size()));
    body(*runtime, runtime->world());
    EXPECT_THAT(runtime->world().Barrier(), IsOk()) << "the group did not stay in step";
  });
}

namespace {

std::string Name(const testing::TestParamInfo<std::tuple<Mode, HostSizes>>& info) {
  std::string name = support::ModeName(std::get<0>(info.param));
  for (const int size : std::get<1>(info.param))
    name += (std::isdigit(name.back()) ? "and" : "") + std::to_string(size);
  return name;
}

std::vector<HostSizes> OneHost(const std::vector<int>& sizes) {
  std::vector<HostSizes> hosts;
  for (const int size : sizes) hosts.push_back({size});
  return hosts;
}

INSTANTIATE_TEST_SUITE_P(All, Conformance,
                         testing::Combine(testing::Values(Mode::kThreads),
                                          testing::ValuesIn(OneHost({1, 2, 3, 4, 5, 8}))),
                         Name);
INSTANTIATE_TEST_SUITE_P(Spread, Conformance,
                         testing::Combine(testing::Values(Mode::kProcesses), testing::ValuesIn(OneHost({1, 2, 4, 7}))),
                         Name);
INSTANTIATE_TEST_SUITE_P(Hosts, Conformance,
                         testing::Combine(testing::Values(Mode::kThreads),
                                          testing::Values(HostSizes{1, 1}, HostSizes{2, 2}, HostSizes{3, 1},
                                                          HostSizes{1, 1, 1, 1}, HostSizes{1, 2, 2})),
                         Name);
INSTANTIATE_TEST_SUITE_P(SpreadHosts, Conformance,
                         testing::Combine(testing::Values(Mode::kProcesses),
                                          testing::Values(HostSizes{2, 2}, HostSizes{3, 1})),
                         Name);

}  // namespace

}  // namespace gyre
