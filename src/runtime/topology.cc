#include "runtime/topology.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gyre/version.h"
#include "nlohmann/json.hpp"

namespace gyre::internal {

namespace {

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::string NetworkNamespace() {
  struct stat status = {};
  if (stat("/proc/self/ns/net", &status) != 0) return "unknown";
  return absl::StrCat(status.st_dev, ":", status.st_ino);
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

std::vector<int> OwnCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// The text that lists the CPUs which share this one's last-level cache.
std::string CacheOf(int cpu, const std::filesystem::path& system) {
  std::ifstream file(system / absl::StrCat("cpu", cpu) / "cache/index3/shared_cpu_list");
  std::string cpus;
  std::getline(file, cpus);
  return cpus;
}

// "node1", which a CPU's folder has as a link.
std::string NumaNodeOf(int cpu, const std::filesystem::path& system) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(system / absl::StrCat("cpu", cpu), error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.starts_with("node")) return name;
  }
  return "";
}

}  // namespace

Domain DomainOf(std::span<const int> cpus, const std::filesystem::path& system) {
  if (cpus.empty()) return {};
  Domain shared{.cache = CacheOf(cpus[0], system), .memory = NumaNodeOf(cpus[0], system)};
  for (const int cpu : cpus.subspan(1)) {
    if (!shared.cache.empty() && CacheOf(cpu, system) != shared.cache) shared.cache.clear();
    if (!shared.memory.empty() && NumaNodeOf(cpu, system) != shared.memory) shared.memory.clear();
    if (shared.cache.empty() && shared.memory.empty()) break;
  }
  return shared;
}

std::string Encode(const RankPlace& place) {
  return nlohmann::json{{"version", place.version},    {"host_id", place.host_id},   {"host_name", place.host_name},
                        {"address", place.address},    {"cpus", place.cpus},         {"traced", place.traced},
                        {"cache", place.domain.cache}, {"numa", place.domain.memory}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // a host's name may be any bytes
}

absl::StatusOr<RankPlace> DecodeRankPlace(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto string_at = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
  };
  RankPlace place{string_at("version"), string_at("host_id"), string_at("host_name"), string_at("address"), {}};
  if (place.host_id.empty()) return absl::DataLossError("a rank's description of its place cannot be read");
  place.domain = {.cache = string_at("cache"), .memory = string_at("numa")};
  place.traced = json.contains("traced") && json["traced"] == true;
  if (json.contains("cpus") && json["cpus"].is_array()) {
    for (const auto& cpu : json["cpus"]) {
      if (cpu.is_number_integer()) place.cpus.push_back(cpu.get<int>());
    }
  }
  return place;
}

RankPlace ThisPlace(const std::string& configured_host_id) {
  RankPlace place;
  place.version = GYRE_VERSION_STRING;
  place.host_id = configured_host_id.empty() ? absl::StrCat(BootId(), "/", NetworkNamespace()) : configured_host_id;
  place.host_name = HostName();
  place.cpus = OwnCpus();
  place.domain = DomainOf(place.cpus);
  return place;
}

bool IsCrowded(const std::vector<RankPlace>& places) {
  std::set<int> cpus;
  for (const RankPlace& place : places) cpus.insert(place.cpus.begin(), place.cpus.end());
  return places.size() > cpus.size();
}

absl::Status CheckVersions(const std::vector<RankPlace>& places) {
  for (size_t rank = 1; rank < places.size(); ++rank) {
    if (places[rank].version == places[0].version) continue;
    return absl::FailedPreconditionError(absl::StrCat("rank ", rank, " (on ", places[rank].host_name, ") runs Gyre ",
                                                      places[rank].version, ", rank 0 (on ", places[0].host_name, ") ",
                                                      places[0].version, ": build all with one version"));
  }
  return absl::OkStatus();
}

int FirstOnHost(const std::vector<RankPlace>& places, int self,
                absl::FunctionRef<bool(const std::string& address)> reaches) {
  const std::string& host = places[static_cast<size_t>(self)].host_id;
  for (int rank = 0; rank < self; ++rank) {
    const RankPlace& place = places[static_cast<size_t>(rank)];
    if (place.host_id == host && reaches(place.address)) return rank;
  }
  return self;
}

absl::Status SeparateHosts(std::vector<RankPlace>& places, const std::vector<std::string>& firsts) {
  for (size_t rank = 0; rank < places.size(); ++rank) {
    size_t first = 0;
    if (!absl::SimpleAtoi(firsts[rank], &first) || first > rank) {
      return absl::DataLossError(absl::StrCat("rank ", rank, "'s first neighbour cannot be read"));
    }
    absl::StrAppend(&places[rank].host_id, "/", first);
  }
  return absl::OkStatus();
}

std::vector<int> HostsOf(const std::vector<RankPlace>& places) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const RankPlace& place : places) {
    const int next = static_cast<int>(numbers.size());
    hosts.push_back(numbers.try_emplace(place.host_id, next).first->second);
  }
  return hosts;
}

std::vector<std::string> NamesOf(const std::vector<RankPlace>& places) {
  std::vector<std::string> names;
  for (const RankPlace& place : places) {
    names.push_back(absl::StrCat("rank ", names.size(), " on host ", place.host_name));
  }
  return names;
}

}  // namespace gyre::internal
