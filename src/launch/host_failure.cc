#include "launch/host_failure.h"

#include <algorithm>
#include <functional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/first_and_more.h"
#include "launch/hosts.h"

namespace gyre::launch {

namespace {

constexpr size_t kToldTroubles = 3;
constexpr size_t kToldHosts = 16;

struct Trouble {
  std::string kind;  // the same for hosts that are in the same trouble
  HostFailure first;
  std::vector<std::string> hosts;
};

bool IsWordAt(std::string_view text, size_t at) {
  return at < text.size() && absl::ascii_isalnum(static_cast<unsigned char>(text[at])) != 0;
}

// Remote shells name the host in what they say: its name is left out.
std::string KindOf(const HostFailure& failure) {
  const std::string_view name = WithoutUser(failure.host);
  std::string kind = absl::StrCat(failure.stage, ": ", failure.cause);
  for (size_t at = 0; !name.empty() && (at = kind.find(name, at)) != std::string::npos;) {
    const bool whole = !IsWordAt(kind, at - 1) && !IsWordAt(kind, at + name.size());  // at - 1 may be npos: no word
    if (whole) kind.erase(at, name.size());
    if (!whole) at += name.size();
  }
  return kind;
}

std::vector<Trouble> Grouped(const std::vector<HostFailure>& failures) {
  std::vector<Trouble> troubles;
  for (const HostFailure& failure : failures) {
    std::string kind = KindOf(failure);
    auto known = std::ranges::find(troubles, kind, &Trouble::kind);
    if (known == troubles.end()) known = troubles.insert(known, {std::move(kind), failure, {}});
    known->hosts.push_back(failure.host);
  }
  return troubles;
}

std::string HostNames(const std::vector<std::string>& hosts) {
  return absl::StrCat(hosts.size() == 1 ? "host " : "hosts ", FirstAndMore(hosts, kToldHosts, std::identity()));
}

std::string Told(const Trouble& trouble) {
  const HostFailure& first = trouble.first;
  std::string text = absl::StrCat(HostNames(trouble.hosts), ": ", first.stage, ": ", first.cause);
  if (first.attempts > 1) absl::StrAppend(&text, " (", first.attempts, " attempts)");
  return text;
}

}  // namespace

std::string StageOf(std::string_view said) {
  struct Sign {
    const char* text;
    const char* stage;
  };
  constexpr Sign kSigns[] = {{"Could not resolve hostname", "resolve"}, {"Connection refused", "connect"},
                             {"Connection timed out", "connect"},       {"No route to host", "connect"},
                             {"Network is unreachable", "connect"},     {"Permission denied", "login"},
                             {"Host key verification failed", "login"}};
  for (const Sign& sign : kSigns) {
    if (said.find(sign.text) != std::string_view::npos) return sign.stage;
  }
  return "remote shell";
}

std::string NotStartedLine(const std::vector<HostFailure>& failures, std::string_view summary) {
  const std::vector<Trouble> troubles = Grouped(failures);
  std::vector<std::string> parts;
  std::vector<std::string> others;
  for (const Trouble& trouble : troubles) {
    if (parts.size() < kToldTroubles) {
      parts.push_back(Told(trouble));
    } else {
      others.insert(others.end(), trouble.hosts.begin(), trouble.hosts.end());
    }
  }
  if (!others.empty()) parts.push_back(absl::StrCat(HostNames(others), ": other causes"));
  if (!summary.empty()) parts.emplace_back(summary);
  parts.emplace_back("the job was not started");
  const std::string& next = failures.front().next;
  parts.push_back(absl::StrCat("try: ", next.empty() ? "--verbose, which shows all that the hosts say" : next));
  return absl::StrJoin(parts, "; ");
}

}  // namespace gyre::launch
