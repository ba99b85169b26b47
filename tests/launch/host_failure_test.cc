#include "launch/host_failure.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "launch/report.h"

namespace gyre::launch {

namespace {

HostFailure Refused(const std::string& host, int attempts = 1) {
  return {"remote shell", absl::StrCat("ssh: ", host, ": refused"), absl::StrCat("ssh ", host), 69, host, attempts};
}

TEST(HostFailureTest, OneHost) {
  EXPECT_EQ(NotStartedLine({Refused("b")}, ""),
            "host b: remote shell: ssh: b: refused; the job was not started; try: ssh b");
  EXPECT_EQ(NotStartedLine({Refused("b", 3)}, "1 of 2 hosts were late"),
            "host b: remote shell: ssh: b: refused (3 attempts); 1 of 2 hosts were late; the job was not started; "
            "try: ssh b");
  EXPECT_EQ(NotStartedLine({{"agent", "its connection ended", "", 69, "b"}}, ""),
            "host b: agent: its connection ended; the job was not started; try: --verbose, which shows all that the "
            "hosts say");
}

TEST(HostFailureTest, TheSameTroubleIsToldOnce) {
  EXPECT_EQ(
      NotStartedLine({Refused("b", 2), Refused("me@c"), Refused("c", 3), Refused("e")}, ""),
      "hosts b, c, e: remote shell: ssh: b: refused (2 attempts); host me@c: remote shell: ssh: me@c: refused; the "
      "job was not started; try: ssh b");
}

// "a" and "no" are in what is said of all of them, not only where they are named.
TEST(HostFailureTest, NamesThatAreWordsOrPartsOfThem) {
  std::vector<HostFailure> failures;
  for (const char* host : {"a", "no", "s", ""}) failures.push_back({"agent", "says nothing", "more time", 69, host});
  EXPECT_EQ(NotStartedLine(failures, ""),
            "hosts a, no, s, : agent: says nothing; the job was not started; try: more time");
}

TEST(HostFailureTest, ManyTroublesAndHostsAreCounted) {
  std::vector<HostFailure> failures;
  for (int i = 1; i <= 5; ++i) {
    failures.push_back({"agent", absl::StrCat("cause ", i), "", 69, absl::StrCat("h", i)});
  }
  EXPECT_TRUE(NotStartedLine(failures, "")
                  .starts_with("host h1: agent: cause 1; host h2: agent: cause 2; host h3: agent: cause 3; hosts h4, "
                               "h5: other causes; the job "))
      << NotStartedLine(failures, "");
  failures.clear();
  for (int i = 1; i <= 10'000; ++i) failures.push_back(Refused(absl::StrCat("h", i)));
  EXPECT_TRUE(NotStartedLine(failures, "")
                  .starts_with("hosts h1, h2, h3, h4, h5, h6, h7, h8, h9, h10, h11, h12, h13, h14, h15, h16 and 9984 "
                               "more: remote shell: ssh: h1"))
      << NotStartedLine(failures, "");
}

TEST(HostFailureTest, WhatOthersWroteIsOneLine) {
  EXPECT_EQ(OneLine("a\nb\r\n\x1b[2J\x7f\xc3\xa4"), "a b   [2J \xc3\xa4");
  EXPECT_EQ(OneLine(std::string(1000, 'x')), std::string(1000, 'x'));
  EXPECT_EQ(OneLine(std::string(1001, 'x')), std::string(1000, 'x') + "...");
}

}  // namespace

}  // namespace gyre::launch
