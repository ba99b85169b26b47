#include "launch/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/build_info.h"
#include "base/status.h"
#include "gyre/version.h"
#include "launch/rank_environment.h"
#include "launch/remote_command.h"

namespace gyre::launch {

namespace {

std::string ShellQuoted(const std::string& word) {
  constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

std::string RankLines(const Options& options, int ranks, std::string_view store) {
  std::string text;
  for (const std::string& entry : options.exports) absl::StrAppend(&text, "every rank: ", ShellQuoted(entry), "\n");
  const JobIdentity job{ranks, std::string(store), "RANDOM", "DESCRIPTOR", /*epoch=*/0};
  for (int rank = 0; rank < ranks; ++rank) {
    absl::StrAppend(&text, "rank ", rank, ": ", absl::StrJoin(IdentityVariables(job, rank), " "), " ",
                    QuotedCommand(options.command), "\n");
  }
  return text;
}

std::string AndServers(int servers) {
  return servers == 0 ? "" : absl::StrCat(" and ", servers, " parameter server", servers == 1 ? "" : "s");
}

}  // namespace

std::string QuotedCommand(const std::vector<std::string>& command) {
  return absl::StrJoin(command, " ", [](std::string* out, const std::string& word) { out->append(ShellQuoted(word)); });
}

std::string OneLine(std::string_view text) {
  constexpr size_t kLongest = 1000;
  std::string line(text.substr(0, kLongest));
  for (char& byte : line) {
    if (static_cast<unsigned char>(byte) < ' ' || byte == '\x7f') byte = ' ';
  }
  if (line.size() < text.size()) line += "...";
  return line;
}

std::string BuildReport() {
  std::string text = "gyre " GYRE_VERSION_STRING "\n";
  for (const BuildPart& part : kBuildParts) {
    absl::StrAppend(&text, ToAbsl(part.name), part.present ? ": yes" : ": no");
    if (part.present && !part.version.empty()) absl::StrAppend(&text, " ", ToAbsl(part.version));
    if (!part.present) absl::StrAppend(&text, " (", ToAbsl(part.reason), ")");
    text += '\n';
  }
  return text;
}

std::string DryRunReport(const Options& options, const std::string& path) {
  return absl::StrCat("would start ", options.ranks, options.ranks == 1 ? " rank" : " ranks", " of ", path,
                      AndServers(options.ServersFor(options.ranks)), "\n",
                      RankLines(options, options.ranks, "127.0.0.1:PORT"));
}

std::string DryRunReport(const Options& options, const std::vector<HostRanks>& rank_hosts) {
  const std::vector<HostRanks> hosts = WithServerHosts(rank_hosts, options.server_hosts);
  const int ranks = hosts.back().first + hosts.back().count;
  std::string text = absl::StrCat("would start ", ranks, ranks == 1 ? " rank" : " ranks", " of ", options.command[0],
                                  AndServers(options.ServersFor(ranks)), " on ", hosts.size(),
                                  hosts.size() == 1 ? " host" : " hosts", "\n");
  const std::vector<HostServers> servers =
      PlaceServers(hosts, options.ServersFor(ranks), options.colocate_servers, options.server_hosts);
  for (size_t i = 0; i < hosts.size(); ++i) {
    const HostRanks& host = hosts[i];
    absl::StrAppend(&text, "host ", host.host, ": ", RanksText(host), AndServers(servers[i].count), ": ",
                    QuotedCommand(RemoteCommand(options, host.host)), "\n");
  }
  return text + RankLines(options, ranks, "ADDRESS:PORT");
}

}  // namespace gyre::launch
