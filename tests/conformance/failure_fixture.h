// What conformance tests of failures share.
#pragma once

#include <chrono>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using support::HostSizes;
using support::IsOk;
using support::JobOptions;
using support::JoinJob;
using support::MatchesStatus;
using support::Mode;
using support::Rank;

inline double SecondsSince(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

// Run over threads and over processes.
class Failure : public testing::TestWithParam<Mode> {};

// Likewise, their ranks on several hosts.
class OverHosts : public testing::TestWithParam<Mode> {
 protected:
  // Joins a job over these hosts on each of its ranks.
  static void OnHosts(const HostSizes& hosts, const std::function<void(const Rank&, Runtime&)>& body);
};

}  // namespace gyre
