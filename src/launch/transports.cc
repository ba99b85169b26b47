#include "launch/transports.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/first_and_more.h"
#include "base/status.h"

namespace gyre::launch {

namespace {

constexpr size_t kMostNames = 16;

std::string NameList(const std::vector<std::string>& names) {
  return FirstAndMore(names, kMostNames, std::identity());
}

// Of what Gyre itself carries.
std::vector<std::string> PairLines(const std::vector<CheckedHost>& hosts, std::string_view backend) {
  std::map<std::string, std::vector<std::string>> sharing;  // hosts by what their ranks share
  std::set<std::string> networks;
  for (const CheckedHost& host : hosts) {
    if (host.ranks == 0) continue;  // servers alone
    const std::string& shares = host.facts.shares;
    sharing[shares.empty() ? absl::StrCat("\n", host.name) : shares].push_back(host.name);
    if (!host.facts.interface.empty()) networks.insert(host.facts.interface);
  }
  std::vector<std::string> lines;
  if (std::ranges::any_of(hosts, [](const CheckedHost& host) { return host.ranks > 1; })) {
    lines.emplace_back("transport: pairs on one host: shared memory");
  }
  for (const auto& [_, names] : sharing) {
    if (names.size() < 2) continue;
    lines.push_back(absl::StrCat("transport: pairs on hosts ", NameList(names), ": shared memory"));
  }
  if (sharing.size() > 1) {
    lines.push_back(absl::StrCat("transport: ", lines.empty() ? "all" : "all other",
                                 " pairs: ", backend == "ucx" ? "UCX (GYRE_BACKEND=ucx)" : "TCP",
                                 networks.empty() ? "" : absl::StrCat(" by ", absl::StrJoin(networks, ", "))));
  }
  return lines;
}

}  // namespace

std::vector<std::string> TransportLines(const std::vector<CheckedHost>& hosts, std::string_view backend) {
  std::vector<std::string> lines = PairLines(hosts, backend);
  if (backend == "mpi") {
    lines.insert(lines.begin(), "transport: the world's collectives of tensors on the host: MPI (GYRE_BACKEND=mpi)");
  }
  return lines;
}

}  // namespace gyre::launch
