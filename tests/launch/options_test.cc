#include "launch/options.h"

#include "gtest/gtest.h"
#include "launch/hosts.h"
#include "launch/remote_command.h"
#include "launch/report.h"

namespace gyre::launch {

namespace {

using Words = std::vector<std::string>;

// The message of the error; empty if there is none.
std::string ErrorOf(const Words& arguments) {
  const auto options = ParseOptions(arguments);
  return options.ok() ? "" : std::string(options.status().message());
}

TEST(OptionsTest, Defaults) {
  const auto options = ParseOptions({"-np", "3", "prog"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->ranks, 3);
  EXPECT_EQ(options->command, Words{"prog"});
  EXPECT_EQ(options->settle, std::chrono::seconds(2));
  EXPECT_EQ(options->grace, std::chrono::seconds(5));
  EXPECT_FALSE(options->timeout || options->tag_output || options->timestamp_output || options->verbose);
  EXPECT_TRUE(options->exports.empty() && options->output_dir.empty() && !options->answer);
}

TEST(OptionsTest, All) {
  const auto options =
      ParseOptions({"--np", "2", "-x", "A", "-x", "B=1 2", "--tag-output", "--timestamp-output", "--output-dir", "d",
                    "--timeout", "1.5", "--settle", "0", "--grace", "0.25", "--verbose", "--dry-run", "prog"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->exports, (Words{"A", "B=1 2"}));
  EXPECT_TRUE(options->tag_output && options->timestamp_output && options->verbose && options->dry_run);
  EXPECT_EQ(options->output_dir, "d");
  EXPECT_EQ(options->timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(options->settle, std::chrono::milliseconds(0));
  EXPECT_EQ(options->grace, std::chrono::milliseconds(250));
}

TEST(OptionsTest, Servers) {
  const auto options = ParseOptions({"-np", "2", "--servers", "3", "--restart-rank", "4", "prog"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->servers, 3);
  EXPECT_EQ(options->restart_rank, 4);
  EXPECT_NE(ErrorOf({"-np", "2", "--restart-rank", "1", "prog"}).find("--restart-rank is for"), std::string::npos);
  EXPECT_EQ(ParseOptions({"-H", "a:2", "--servers", "1", "prog"})->ServersFor(2), 1);
  EXPECT_EQ(ParseOptions({"-H", "a:2", "--colocate-servers", "--restart-rank", "1", "prog"})->ServersFor(2), 2);
  EXPECT_NE(ErrorOf({"-np", "2", "--servers", "1", "--colocate-servers", "prog"}).find("excludes"), std::string::npos);
  EXPECT_NE(ErrorOf({"-np", "257", "--colocate-servers", "prog"}).find("256 ranks at most"), std::string::npos);
  EXPECT_FALSE(ErrorOf({"-np", "2", "--servers", "257", "prog"}).empty());
  const auto apart = ParseOptions({"-H", "a:2", "--servers", "2", "--server-hosts", "c,d", "prog"});
  ASSERT_TRUE(apart.ok());
  EXPECT_EQ(apart->server_hosts, (std::vector<std::string>{"c", "d"}));
  EXPECT_NE(ErrorOf({"-H", "a:2", "--server-hosts", "c", "prog"}).find("--servers 2"), std::string::npos);
  EXPECT_NE(ErrorOf({"-H", "a:2", "--servers", "1", "--server-hosts", "c,d", "prog"}).find("2 hosts for 1 server"),
            std::string::npos);
  EXPECT_NE(ErrorOf({"-H", "a:2", "--servers", "1", "--server-hosts", "", "prog"}).find("server-hosts"),
            std::string::npos);
  EXPECT_NE(ErrorOf({"-np", "2", "--servers", "1", "--server-hosts", "c", "prog"}).find("ranks on hosts"),
            std::string::npos);
  const auto replicas = ParseOptions({"-np", "2", "--servers", "2", "--replicas", "1", "-x", "GYRE_STRATEGY=ps", "p"});
  ASSERT_TRUE(replicas.ok()) << replicas.status();
  EXPECT_EQ(replicas->exports.back(), "GYRE_STRATEGY=ps,replicas=1");
  EXPECT_NE(ErrorOf({"-np", "2", "--servers", "1", "--replicas", "1", "p"}).find("two servers"), std::string::npos);
}

TEST(OptionsTest, OverHosts) {
  const auto options = ParseOptions({"-H", "a:2,b", "--remote-shell", "rsh -x", "--remote-gyrerun", "/g", "--interface",
                                     "eth0", "--start-timeout", "7", "--host-timeout", "0.5", "prog"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->ranks, 0);
  EXPECT_EQ(options->host_list, "a:2,b");
  EXPECT_EQ(options->interface, "eth0");
  EXPECT_EQ(options->start_timeout, std::chrono::seconds(7));
  EXPECT_EQ(options->host_timeout, std::chrono::milliseconds(500));
  EXPECT_FALSE(options->agent);
  EXPECT_EQ(RemoteCommand(*options, "b"), (Words{"rsh", "-x", "b", "/g", "--agent"}));
  EXPECT_EQ(ParseOptions({"-np", "3", "--hostfile", "f", "prog"})->hostfile, "f");
  EXPECT_TRUE(ParseOptions({"--agent"})->agent);
}

TEST(OptionsTest, HorovodrunsSpellings) {
  const auto options = ParseOptions({"-np",
                                     "8",
                                     "--min-np",
                                     "4",
                                     "--max-np",
                                     "12",
                                     "--host-discovery-script",
                                     "./d",
                                     "-p",
                                     "2222",
                                     "-i",
                                     "/k y",
                                     "--reset-limit",
                                     "3",
                                     "--network-interfaces",
                                     "eth1",
                                     "--start-timeout",
                                     "30",
                                     "--output-filename",
                                     "o",
                                     "--timeline-filename",
                                     "/t",
                                     "--fusion-threshold-mb",
                                     "1.5",
                                     "--cycle-time-ms",
                                     "3.5",
                                     "--log-level",
                                     "TRACE",
                                     "--slots-per-host",
                                     "2",
                                     "--verbose",
                                     "prog"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->least_ranks, 4);
  EXPECT_EQ(options->most_ranks, 12);
  EXPECT_EQ(options->ssh_options, (Words{"-p", "2222", "-i", "/k y"}));
  const Words shell = RemoteCommand(*options, "b");
  EXPECT_EQ(Words(shell.end() - 7, shell.end() - 2), (Words{"-p", "2222", "-i", "/k y", "b"}));
  EXPECT_EQ(options->max_restarts, 3);
  EXPECT_EQ(options->interface, "eth1");
  EXPECT_EQ(options->output_dir, "o");
  EXPECT_EQ(options->timeline, "/t");
  EXPECT_EQ(options->exports, (Words{"GYRE_FUSION_BYTES=1572864", "GYRE_LOG_LEVEL=debug", "GYRE_TIMELINE=/t"}));
  ASSERT_EQ(options->notes.size(), 1u);
  EXPECT_EQ(options->notes[0].substr(0, 16), "--cycle-time-ms ");
  EXPECT_EQ(ParseOptions({"-H", "a:9", "--min-np", "2", "prog"})->most_ranks, kMaxJobRanks);
  EXPECT_EQ(ParseOptions({"-np", "3", "-H", "a:9", "--max-np", "5", "prog"})->least_ranks, 3);
  EXPECT_EQ(ParseOptions({"-np", "3", "-H", "a:9", "prog"})->least_ranks, 0);
  for (const Words& wrong : std::vector<Words>{{"-np", "2", "-p", "22", "prog"},
                                               {"-H", "a", "--remote-shell", "rsh", "-p", "22", "prog"},
                                               {"-H", "a", "-p", "70000", "prog"},
                                               {"-np", "2", "--min-np", "1", "prog"},
                                               {"-H", "a:9", "--min-np", "5", "--max-np", "4", "prog"},
                                               {"-np", "2", "--fusion-threshold-mb", "0", "prog"},
                                               {"-np", "2", "--log-level", "loud", "prog"}}) {
    EXPECT_NE(ErrorOf(wrong).find("; try: "), std::string::npos) << testing::PrintToString(wrong);
  }
}

TEST(OptionsTest, DryRunOverHostsNamesThemAndTheRemoteShell) {
  auto options = ParseOptions({"-H", "a:2,b", "prog"});
  ASSERT_TRUE(options.ok()) << options.status();
  options->remote_gyrerun = "/with blank/gyrerun";
  const std::string report = DryRunReport(*options, {{"a", 0, 2}, {"b", 2, 1}});
  EXPECT_NE(report.find("3 ranks of prog on 2 hosts\n"), std::string::npos) << report;
  EXPECT_NE(report.find("host a: ranks 0-1: ssh "), std::string::npos) << report;
  EXPECT_NE(report.find("BatchMode=yes"), std::string::npos) << report;
  EXPECT_NE(report.find("rank 2: GYRE_RANK=2 GYRE_SIZE=3 "), std::string::npos) << report;
}

TEST(OptionsTest, WhatFollowsTheProgramIsItsOwn) {
  const auto options = ParseOptions({"-n", "2", "prog", "-np", "7", "--verbose", "--", "-x", ""});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->ranks, 2);
  EXPECT_FALSE(options->verbose);
  EXPECT_EQ(options->command, (Words{"prog", "-np", "7", "--verbose", "--", "-x", ""}));
}

TEST(OptionsTest, TwoDashesMayPrecedeTheProgram) {
  const auto options = ParseOptions({"-np", "2", "--", "prog", "-np"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->command, (Words{"prog", "-np"}));
  const auto dashed = ParseOptions({"-np", "2", "--", "-foo", "--", "-np", "3"});
  ASSERT_TRUE(dashed.ok()) << dashed.status();
  EXPECT_EQ(dashed->command, (Words{"-foo", "--", "-np", "3"}));
  EXPECT_EQ(dashed->ranks, 2);
}

TEST(OptionsTest, ErrorsAreOneLineThatEndsWithWhatToTry) {
  const std::vector<Words> wrong = {{},
                                    {"-np", "2"},
                                    {"-np", "0", "prog"},
                                    {"-np", "-1", "prog"},
                                    {"-np", "two", "prog"},
                                    {"-np", "4097", "prog"},
                                    {"-np", "99999999999", "prog"},
                                    {"-np"},
                                    {"prog"},
                                    {"--nonsense", "-np", "2", "prog"},
                                    {"-np", "2", "--nonsense", "prog"},
                                    {"-np", "2", "--"},
                                    {"-np", "2", "--nonsense", "--", "-x"},
                                    {"-np", "2", "--timeout", "0", "prog"},
                                    {"-np", "2", "--timeout", "nan", "prog"},
                                    {"-np", "2", "--grace", "-1", "prog"},
                                    {"-np", "2", "--settle", "soon", "prog"},
                                    {"-np", "2", "-x", "=1", "prog"},
                                    {"-H", "a", "--hostfile", "f", "prog"},
                                    {"-H", "", "prog"},
                                    {"--hostfile", "", "prog"},
                                    {"-np", "0", "-H", "a", "prog"},
                                    {"-np", "1000001", "-H", "a", "prog"},
                                    {"-H", "a", "--host-timeout", "0.2", "prog"},
                                    {"-H", "a", "--start-timeout", "-1", "prog"},
                                    {"-np", "2", "-x", "GYRE_RANK=1", "prog"}};
  for (const Words& arguments : wrong) {
    const std::string error = ErrorOf(arguments);
    EXPECT_NE(error.find("; try: "), std::string::npos) << error << testing::PrintToString(arguments);
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  EXPECT_EQ(ErrorOf({"-np", "0", "prog"}), "-np must be a number from 1 to 4096, not 0; try: gyrerun -np 2 PROGRAM");
  EXPECT_EQ(ErrorOf({"--nonsense", "-np", "2", "prog"}), "unknown option --nonsense; try: gyrerun --help");
}

TEST(OptionsTest, Answers) {
  EXPECT_NE(ParseOptions({"--help"})->answer->find("Exit code"), std::string::npos);
  EXPECT_EQ(ParseOptions({"--version"})->answer->substr(0, 8), "gyrerun ");
  const std::string build = *ParseOptions({"--check-build"})->answer;
  EXPECT_EQ(build.substr(0, 5), "gyre ");
  EXPECT_NE(build.find("\ncuda: "), std::string::npos);
  EXPECT_NE(build.find("\nucx: "), std::string::npos);
}

TEST(OptionsTest, DryRunNamesEveryRankAndQuotes) {
  const auto options = ParseOptions({"-np", "2", "-x", "A=b c", "prog", "it's", ""});
  ASSERT_TRUE(options.ok());
  const std::string report = DryRunReport(*options, "/bin/prog");
  EXPECT_NE(report.find("2 ranks of /bin/prog"), std::string::npos) << report;
  EXPECT_NE(report.find("'A=b c'"), std::string::npos) << report;
  EXPECT_NE(report.find("rank 1: GYRE_RANK=1 GYRE_SIZE=2 "), std::string::npos) << report;
  EXPECT_NE(report.find("prog 'it'\\''s' ''\n"), std::string::npos) << report;
}

}  // namespace

}  // namespace gyre::launch
