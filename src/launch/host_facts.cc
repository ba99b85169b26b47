#include "launch/host_facts.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launch/connect_back.h"
#include "launch/gpus.h"
#include "net/interfaces.h"

namespace gyre::launch {

namespace {

constexpr double kMostSkew = 1;                     // seconds
constexpr uint64_t kSmallShm = uint64_t{65} << 20;  // a container's default is 64 MiB
constexpr uint64_t kSmallMemlock = uint64_t{1} << 30;
constexpr double kKiB = 1024;

std::string FirstLineOfFile(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

uint32_t Cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  uint32_t cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<uint32_t>(CPU_COUNT(&set)) : 1;
  // "400000 100000": four processors' time. Containers see their own group as the root.
  const std::string quota = FirstLineOfFile("/sys/fs/cgroup/cpu.max");
  double most = 0;
  double period = 0;
  const size_t blank = quota.find(' ');
  if (blank != std::string::npos && absl::SimpleAtod(quota.substr(0, blank), &most) &&
      absl::SimpleAtod(quota.substr(blank + 1), &period) && most > 0 && period > 0) {
    cpus = std::min(cpus, static_cast<uint32_t>(std::max(1.0, std::floor(most / period))));
  }
  return cpus;
}

uint32_t GpuFiles() {
  std::error_code error;
  uint32_t count = 0;
  for (std::filesystem::directory_iterator entry("/dev", error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    count += name.size() > 6 && name.starts_with("nvidia") && std::isdigit(static_cast<unsigned char>(name[6])) != 0;
  }
  return count;
}

uint64_t Memory() {
  struct sysinfo info {};
  uint64_t bytes = sysinfo(&info) == 0 ? uint64_t{info.totalram} * info.mem_unit : 0;
  uint64_t limit = 0;
  if (absl::SimpleAtoi(FirstLineOfFile("/sys/fs/cgroup/memory.max"), &limit)) bytes = std::min(bytes, limit);
  return bytes;
}

uint32_t Mtu(const std::string& address) {
  const auto interfaces = ListInterfaces();
  if (!interfaces.ok()) return 0;
  const auto own = std::ranges::find(*interfaces, address, &InterfaceAddress::address);
  return own == interfaces->end() ? 0 : MtuOf(own->interface);
}

uint32_t RdmaDevices() {
  std::error_code error;
  uint32_t count = 0;
  std::filesystem::directory_iterator device("/sys/class/infiniband", error);
  for (; !error && device != std::filesystem::directory_iterator(); device.increment(error)) ++count;
  return count;
}

// As the driver tells; where it is not there, by the device files.
void LookAtGpus(HostFacts& facts) {
  const absl::StatusOr<std::unique_ptr<Gpus>> gpus = Gpus::Open();
  facts.gpus = gpus.ok() ? static_cast<uint32_t>((*gpus)->count()) : GpuFiles();
  if (gpus.ok()) facts.driver = (*gpus)->driver();
  if (gpus.ok()) facts.cuda = (*gpus)->cuda();
  if (facts.gpus > 0) facts.nccl = NcclVersion();
}

std::string Machine() {
  struct stat space {};
  const std::string boot = FirstLineOfFile("/proc/sys/kernel/random/boot_id");
  if (boot.empty() || stat("/proc/self/ns/net", &space) != 0) return "";
  return absl::StrCat(boot, "/", space.st_ino);
}

std::string BytesText(uint64_t bytes) {
  const auto kib = static_cast<double>(bytes) / kKiB;
  if (kib < kKiB) return absl::StrFormat("%.0f KiB", kib);
  if (kib < kKiB * kKiB) return absl::StrFormat("%.0f MiB", kib / kKiB);
  return absl::StrFormat("%.1f GiB", kib / kKiB / kKiB);
}

void DoubtOne(const CheckedHost& host, std::vector<std::string>& doubts) {
  const auto doubt = [&](const std::string& what) { doubts.push_back(absl::StrCat("host ", host.name, ": ", what)); };
  const auto ranks = static_cast<uint32_t>(host.ranks);
  if (ranks > host.facts.cpus) doubt(absl::StrCat(ranks, " ranks on ", host.facts.cpus, " CPUs"));
  if (host.facts.gpus > 0 && ranks > host.facts.gpus) {
    doubt(absl::StrCat(ranks, " ranks on ", host.facts.gpus, " GPUs"));
  }
  if (host.facts.shm_free < kSmallShm) {
    doubt(absl::StrCat("/dev/shm has ", BytesText(host.facts.shm_free),
                       " free: enough for Gyre, not for NCCL and others"));
  }
  if (host.facts.rdma > 0 && host.facts.memlock < kSmallMemlock) {
    doubt(absl::StrCat("memlock is ", BytesText(host.facts.memlock), ": RDMA locks what it sends from"));
  }
  if (std::abs(host.skew) > kMostSkew) {
    doubt(absl::StrFormat("its clock is %.1f s %s", std::abs(host.skew), host.skew > 0 ? "ahead" : "behind"));
  }
}

// What is to be the same on all hosts, and how to say that.
struct Common {
  const char* what;
  std::string HostFacts::*value;
};

// Of those that have GPUs.
void DoubtVersions(const std::vector<CheckedHost>& hosts, std::vector<std::string>& doubts) {
  const auto first = std::ranges::find_if(hosts, [](const CheckedHost& host) { return host.facts.gpus > 0; });
  for (auto host = first; host != hosts.end(); ++host) {
    for (const auto& [what, value] :
         {Common{"driver", &HostFacts::driver}, Common{"CUDA", &HostFacts::cuda}, Common{"NCCL", &HostFacts::nccl}}) {
      const std::string& here = host->facts.*value;
      const std::string& there = first->facts.*value;
      if (host->facts.gpus == 0 || here == there) continue;
      doubts.push_back(absl::StrCat("host ", host->name, ": ", what, " ", here.empty() ? "not found" : here, ", and ",
                                    there.empty() ? "not found" : there, " on ", first->name));
    }
  }
}

// One subnet is usual where hosts are to be near each other; pods may have one each.
void DoubtSubnets(const std::vector<CheckedHost>& hosts, std::vector<std::string>& doubts) {
  const auto first = std::ranges::find_if(hosts, [](const CheckedHost& host) { return !host.facts.address.empty(); });
  for (auto host = first; host != hosts.end(); ++host) {
    const std::string address = host->facts.address.substr(0, host->facts.address.find('/'));
    if (address.empty() || ChooseAddress(first->facts.address, {{"", address, 0}}).ok()) continue;
    doubts.push_back(absl::StrCat("host ", host->name, ": ", host->facts.address, " is not in the subnet of ",
                                  first->name, ", ", first->facts.address));
  }
}

}  // namespace

HostFacts LookAtThisHost(const std::string& address) {
  HostFacts facts{.cpus = Cpus(), .memory = Memory(), .rdma = RdmaDevices()};
  LookAtGpus(facts);
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) facts.shm_free = uint64_t{shm.f_bavail} * shm.f_frsize;
  rlimit locked{};
  if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0) facts.memlock = locked.rlim_cur;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  facts.wall_us = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  if (!address.empty()) facts.mtu = Mtu(address);
  facts.machine = facts.shares = Machine();
  return facts;
}

std::vector<std::string> Doubts(const std::vector<CheckedHost>& hosts) {
  std::vector<std::string> doubts;
  std::map<std::string, std::string> machines;
  uint32_t mtu = 0;
  std::string first;  // whose MTU that is
  for (const CheckedHost& host : hosts) {
    DoubtOne(host, doubts);
    const auto [known, is_new] = machines.emplace(host.facts.machine, host.name);
    if (!is_new && !host.facts.machine.empty()) {
      doubts.push_back(absl::StrCat("host ", host.name, ": the same machine as ", known->second));
    }
    if (host.facts.mtu == 0) continue;
    if (mtu != 0 && host.facts.mtu != mtu) {
      doubts.push_back(absl::StrCat("host ", host.name, ": MTU ", host.facts.mtu, ", and ", mtu, " on ", first));
    }
    if (mtu == 0) first = host.name;
    if (mtu == 0) mtu = host.facts.mtu;
  }
  DoubtVersions(hosts, doubts);
  DoubtSubnets(hosts, doubts);
  return doubts;
}

std::string FactsText(const HostFacts& facts) {
  std::vector<std::string> versions;
  if (!facts.cuda.empty()) versions.push_back(absl::StrCat("CUDA ", facts.cuda));
  if (!facts.driver.empty()) versions.push_back(absl::StrCat("driver ", facts.driver));
  if (!facts.nccl.empty()) versions.push_back(absl::StrCat("NCCL ", facts.nccl));
  std::string text =
      absl::StrCat(facts.cpus, facts.cpus == 1 ? " CPU, " : " CPUs, ", facts.gpus, facts.gpus == 1 ? " GPU" : " GPUs",
                   versions.empty() ? "" : absl::StrCat(" (", absl::StrJoin(versions, ", "), ")"), ", ",
                   BytesText(facts.memory), ", /dev/shm ", BytesText(facts.shm_free), " free, memlock ",
                   facts.memlock == UINT64_MAX ? "unlimited" : BytesText(facts.memlock));
  if (facts.rdma > 0) absl::StrAppend(&text, ", ", facts.rdma, facts.rdma == 1 ? " RDMA device" : " RDMA devices");
  if (!facts.address.empty()) absl::StrAppend(&text, ", ", facts.interface, " ", facts.address);
  if (facts.mtu != 0) absl::StrAppend(&text, ", MTU ", facts.mtu);
  return text;
}

}  // namespace gyre::launch
