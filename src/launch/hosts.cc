#include "launch/hosts.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "launch/report.h"
#include "net/endpoint.h"

namespace gyre::launch {

namespace {

constexpr char kListExample[] = "-H a:2,b:2";
constexpr char kFileExample[] = "a line such as \"a slots=2\"";
constexpr size_t kLongestName = 512;
constexpr size_t kLargestFile = size_t{1} << 20;

// What is wrong; whoever reports it adds where, and what to try.
absl::Status WrongHosts(std::string_view what) {
  return absl::InvalidArgumentError(ToAbsl(what));
}

// A word of somebody's file, in a message of one line.
std::string QuotedWord(std::string_view word) {
  return absl::StrCat("\"", OneLine(word.substr(0, kLongestName)), "\"");
}

absl::StatusOr<int> ParseSlots(std::string_view text, std::string_view host) {
  int slots = 0;
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  if (digits && absl::SimpleAtoi(ToAbsl(text), &slots) && slots >= 1 && slots <= kMaxSlots) return slots;
  return WrongHosts(absl::StrCat("host ", OneLine(host.substr(0, kLongestName)), ": ", QuotedWord(text),
                                 " is no number of slots (1 to ", kMaxSlots, ")"));
}

// What reaches the remote shell's command line: nothing that it or a shell behind it could take for something else.
absl::Status CheckName(std::string_view name) {
  constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:%@-";
  if (name.empty()) return WrongHosts("the name of the host is missing");
  if (name.size() <= kLongestName && name[0] != '-' && name.find_first_not_of(kPlain) == std::string_view::npos &&
      !WithoutUser(name).empty()) {
    return absl::OkStatus();
  }
  return WrongHosts(absl::StrCat(QuotedWord(name), " is no name of a host"));
}

// "host", "host:N", "[v6]:N", "v6".
absl::StatusOr<HostSlots> ParseHost(std::string_view text) {
  std::string_view name = text;
  std::string_view slots;
  bool given = false;
  const size_t bracket = text.starts_with('[') ? text.find(']') : std::string_view::npos;
  if (bracket != std::string_view::npos) {
    name = text.substr(1, bracket - 1);
    given = bracket + 1 < text.size();
    if (given && text[bracket + 1] != ':') return WrongHosts(absl::StrCat(QuotedWord(text), " is no host"));
    if (given) slots = text.substr(bracket + 2);
  } else if (std::count(text.begin(), text.end(), ':') == 1) {  // more of them make an IPv6 address
    name = text.substr(0, text.find(':'));
    slots = text.substr(text.find(':') + 1);
    given = true;
  }
  HostSlots host{std::string(name), 1};
  RETURN_IF_ERROR(CheckName(name));
  if (given) {
    ASSIGN_OR_RETURN(host.slots, ParseSlots(slots, name));
  }
  return host;
}

absl::Status AddTo(std::vector<HostSlots>& hosts, HostSlots host) {
  const auto known = std::ranges::find(hosts, host.name, &HostSlots::name);
  if (known == hosts.end()) {
    if (hosts.size() >= kMaxHosts) return WrongHosts(absl::StrCat("more than ", kMaxHosts, " hosts"));
    hosts.push_back(std::move(host));
    return absl::OkStatus();
  }
  known->slots += host.slots;
  if (known->slots <= kMaxSlots) return absl::OkStatus();
  return WrongHosts(absl::StrCat("host ", known->name, ": more than ", kMaxSlots, " slots"));
}

// A line without its comment. Empty: `host` stays as it is.
absl::StatusOr<std::vector<HostSlots>> ParseLine(const std::string& line) {
  std::istringstream words(line.substr(0, line.find('#')));
  std::string word;
  std::vector<HostSlots> found;
  if (!(words >> word)) return found;
  ASSIGN_OR_RETURN(HostSlots host, ParseHost(word));
  bool slots_seen = word != host.name && !word.ends_with(']');
  int most = kMaxSlots;
  while (words >> word) {
    const size_t equals = word.find('=') + 1;
    if (word.starts_with("max_slots=") || word.starts_with("max-slots=")) {
      ASSIGN_OR_RETURN(most, ParseSlots(std::string_view(word).substr(equals), host.name));
      continue;
    }
    if (!word.starts_with("slots=")) {
      return WrongHosts(absl::StrCat("host ", host.name, ": ", QuotedWord(word), " is not slots=N"));
    }
    if (slots_seen) return WrongHosts(absl::StrCat("host ", host.name, ": the slots are given twice"));
    slots_seen = true;
    ASSIGN_OR_RETURN(host.slots, ParseSlots(std::string_view(word).substr(equals), host.name));
  }
  if (host.slots > most) {
    return WrongHosts(absl::StrCat("host ", host.name, ": ", host.slots, " slots are more than max_slots=", most));
  }
  found.push_back(std::move(host));
  return found;
}

// How many of so many ranks each host gets; they fit.
std::vector<int> Pack(const std::vector<HostSlots>& hosts, int ranks) {
  std::vector<int> counts;
  for (const HostSlots& host : hosts) {
    counts.push_back(std::min(host.slots, ranks));
    ranks -= counts.back();
  }
  return counts;
}

std::vector<int> Spread(const std::vector<HostSlots>& hosts, int ranks) {
  std::vector<int> counts(hosts.size());
  for (int turn = 0; ranks > 0; ++turn) {
    for (size_t i = 0; i < hosts.size() && ranks > 0; ++i) {
      if (hosts[i].slots <= turn) continue;
      ++counts[i];
      --ranks;
    }
  }
  return counts;
}

}  // namespace

absl::StatusOr<std::vector<HostSlots>> ParseHostList(std::string_view text) {
  std::vector<HostSlots> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    absl::StatusOr<HostSlots> host = ParseHost(text.substr(begin, end - begin));
    const absl::Status status = host.ok() ? AddTo(hosts, *std::move(host)) : host.status();
    if (!status.ok()) return WrongHosts(absl::StrCat("-H: ", status.message(), "; try: ", kListExample));
    begin = end + 1;
  }
  return hosts;
}

absl::StatusOr<std::vector<HostSlots>> ParseHostfile(std::string_view text, std::string_view file) {
  std::vector<HostSlots> hosts;
  const std::string name = absl::StrCat("hostfile ", OneLine(file));
  std::istringstream stream{std::string(WithoutByteOrderMark(text))};
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    absl::StatusOr<std::vector<HostSlots>> found = ParseLine(line);
    absl::Status status = found.status();
    if (found.ok() && !found->empty()) status = AddTo(hosts, std::move(found->front()));
    if (!status.ok()) {
      return WrongHosts(absl::StrCat(name, ":", number, ": ", status.message(), "; try: ", kFileExample));
    }
  }
  if (hosts.empty()) return WrongHosts(absl::StrCat(name, ": names no host; try: ", kFileExample));
  return hosts;
}

absl::StatusOr<std::vector<HostSlots>> ReadHostfile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || !file.is_open() || (file.fail() && !file.eof())) {
    return WrongHosts(absl::StrCat("hostfile ", OneLine(path), ": cannot be read (", std::strerror(errno),
                                   "); try: ls -l ", OneLine(path)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kLargestFile) {
    return WrongHosts(absl::StrCat("hostfile ", OneLine(path), ": is no hostfile (over 1 MiB); try: another file"));
  }
  return ParseHostfile(text, path);
}

absl::StatusOr<std::vector<HostRanks>> PlaceRanks(const std::vector<HostSlots>& hosts, int ranks, Placement placement) {
  int slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  if (ranks > slots) {
    return WrongHosts(absl::StrCat("-np ", ranks, " is more than the ", slots, slots == 1 ? " slot" : " slots",
                                   " of the hosts; try: -np ", slots, ", or more slots"));
  }
  if (ranks == 0 && slots > kMaxJobRanks) {
    return WrongHosts(
        absl::StrCat("the hosts have ", slots, " slots, more than ", kMaxJobRanks, "; try: -np with less"));
  }
  std::vector<HostRanks> placed;
  int first = 0;
  const int all = ranks == 0 ? slots : ranks;
  const std::vector<int> counts = placement == Placement::kSpread ? Spread(hosts, all) : Pack(hosts, all);
  for (size_t i = 0; i < hosts.size(); ++i) {
    const HostSlots& host = hosts[i];
    const int count = counts[i];
    if (count > 0) placed.push_back({host.name, first, count});
    first += count;
  }
  return placed;
}

int RanksWithin(const std::vector<HostSlots>& hosts, int least, int most) {
  int slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  return std::max(least, std::min(slots, most));  // fewer than `least` is for PlaceRanks to refuse
}

std::vector<HostServers> PlaceServers(const std::vector<HostRanks>& hosts, int servers, bool beside,
                                      const std::vector<std::string>& only) {
  const auto takes_some = [&](const HostRanks& host) {
    return only.empty() || std::ranges::count(only, host.host) > 0;
  };
  const int64_t count = std::max<int64_t>(1, std::ranges::count_if(hosts, takes_some));
  std::vector<HostServers> placed;
  int64_t i = 0;
  for (const HostRanks& host : hosts) {
    const auto first = static_cast<int>(servers * i / count);
    if (takes_some(host)) ++i;
    const auto next = static_cast<int>(servers * i / count);
    placed.push_back(beside ? HostServers{host.first, host.count} : HostServers{first, next - first});
  }
  return placed;
}

absl::StatusOr<std::vector<std::string>> ParseServerHosts(std::string_view text) {
  constexpr char kTry[] = "; try: --server-hosts c,d";
  const absl::StatusOr<std::vector<HostSlots>> hosts = ParseHostList(text);
  if (!hosts.ok()) {
    return WrongHosts(absl::StrCat("--server-hosts: these are no host names with commas between them", kTry));
  }
  std::vector<std::string> names;
  for (const HostSlots& host : *hosts) {
    if (host.slots != 1) {
      return WrongHosts(
          absl::StrCat("--server-hosts: ", host.name, " has slots or is there twice: servers are spread evenly", kTry));
    }
    names.push_back(host.name);
  }
  return names;
}

std::vector<HostRanks> WithServerHosts(std::vector<HostRanks> hosts, const std::vector<std::string>& servers) {
  const int ranks = hosts.empty() ? 0 : hosts.back().first + hosts.back().count;
  for (const std::string& server : servers) {
    if (std::ranges::count(hosts, server, &HostRanks::host) == 0) hosts.push_back({server, ranks, 0});
  }
  return hosts;
}

std::string RanksText(const HostRanks& ranks) {
  if (ranks.count == 0) return "no rank";
  if (ranks.count == 1) return absl::StrCat("rank ", ranks.first);
  return absl::StrCat("ranks ", ranks.first, "-", ranks.first + ranks.count - 1);
}

std::string_view WithoutByteOrderMark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

std::string_view WithoutUser(std::string_view host) {
  return host.substr(host.rfind('@') + 1);  // npos + 1: all of it
}

bool IsLoopbackName(std::string_view host) {
  return IsLoopback(Endpoint{std::string(WithoutUser(host)), 0});
}

}  // namespace gyre::launch
