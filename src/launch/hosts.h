// Hosts: where the ranks of a job are to run. What -H and --hostfile say, and which ranks each host gets. Pure, but for
// ReadHostfile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/config.h"

namespace gyre::launch {

inline constexpr int kMaxSlots = 4096;  // on one host
inline constexpr int kMaxHosts = 10'000;

struct HostSlots {
  std::string name;  // as the remote shell takes it: a name, an address (without brackets), or user@name
  int slots = 1;
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

// "a:2,b,[fd00::1]:4": host names with slots (1 where none are given). A host that is named again adds to its slots.
// kInvalidArgument: one line that says what is wrong and what to try.
absl::StatusOr<std::vector<HostSlots>> ParseHostList(std::string_view text);

// The text without the mark of UTF-8 that some editors begin a file with.
std::string_view WithoutByteOrderMark(std::string_view text);

// A host a line, "host slots=N" (Open MPI), "host:N" (MPICH, Intel MPI) or "host"; from '#' on a comment. Open MPI's
// max_slots=M may follow and must not be less: ranks never outnumber slots anyway. Errors as above, beginning with
// "hostfile FILE:LINE: ", where `file` is what to call it.
absl::StatusOr<std::vector<HostSlots>> ParseHostfile(std::string_view text, std::string_view file);
absl::StatusOr<std::vector<HostSlots>> ReadHostfile(const std::string& path);

// A host's share of the ranks: `count` of them from `first` on.
struct HostRanks {
  std::string host;
  int first = 0;
  int count = 0;
  friend bool operator==(const HostRanks&, const HostRanks&) = default;
};

enum class Placement : uint8_t { kPack, kSpread };

// Packed: fills hosts in their order. Spread: as evenly as their slots allow, the earlier hosts having one more. Hosts
// for which nothing is left are left out; a host's ranks follow each other. ranks 0: as many as there are slots.
// kInvalidArgument where they do not fit.
absl::StatusOr<std::vector<HostRanks>> PlaceRanks(const std::vector<HostSlots>& hosts, int ranks,
                                                  Placement placement = Placement::kPack);

// How many ranks there are to be on the hosts where `least` to `most` will do.
int RanksWithin(const std::vector<HostSlots>& hosts, int least, int most);

// A host's share of the parameter servers, likewise.
struct HostServers {
  int first = 0;
  int count = 0;
  friend bool operator==(const HostServers&, const HostServers&) = default;
};

// One entry a host. As evenly as can be over those named in `only`, or all where that is empty, the later hosts having
// one more; `beside`: as many as ranks, each on its rank's host, and `servers` and `only` are not looked at.
std::vector<HostServers> PlaceServers(const std::vector<HostRanks>& hosts, int servers, bool beside,
                                      const std::vector<std::string>& only);

// "c,d": host names without slots, none twice. Errors as above.
absl::StatusOr<std::vector<std::string>> ParseServerHosts(std::string_view text);

// The hosts, and then those of `servers` that are not among them, with no ranks.
std::vector<HostRanks> WithServerHosts(std::vector<HostRanks> hosts, const std::vector<std::string>& servers);

// "rank 3", "ranks 0-1", "no rank".
std::string RanksText(const HostRanks& ranks);

// "host" of "user@host".
std::string_view WithoutUser(std::string_view host);

// Whether the name stands for this very machine whoever reads it: "localhost" or an address of the loopback.
bool IsLoopbackName(std::string_view host);

}  // namespace gyre::launch
