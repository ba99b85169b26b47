#include "conformance/failure_fixture.h"

#include <numeric>

namespace gyre {

void OverHosts::OnHosts(const HostSizes& hosts, const std::function<void(const Rank&, Runtime&)>& body) {
  support::RunRanks(GetParam(), std::accumulate(hosts.begin(), hosts.end(), 0), [&](const Rank& rank) {
    auto runtime = JoinJob(rank, JobOptions(rank, hosts));
    ASSERT_NE(runtime, nullptr);
    body(rank, *runtime);
  });
}

}  // namespace gyre
