#include "net/endpoint.h"

#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::IsOk;
using support::MatchesStatus;

TEST(Endpoint, ParsesAndPrints) {
  for (const char* text : {"localhost:80", "127.0.0.1:65535", "[::1]:1", "node-3.cluster:0", "[fe80::1]:4000"}) {
    const auto endpoint = ParseEndpoint(text);
    ASSERT_THAT(endpoint, IsOk()) << text;
    EXPECT_EQ(ToString(*endpoint), text);
  }
  EXPECT_EQ(ParseEndpoint("[::1]:7")->host, "::1");
  EXPECT_EQ(ParseEndpoint("host:7")->port, 7);
}

TEST(Endpoint, RefusesWhatIsNone) {
  for (const char* text : {"", "host", "host:", ":80", "host:65536", "host:-1", "host:8o", "host:99999999999999999999",
                           "::1:80", "[::1]", "[]:80", "a b:1", "host:1 ", "host: 1", "host:+1"}) {
    EXPECT_THAT(ParseEndpoint(text), MatchesStatus(absl::StatusCode::kInvalidArgument, text)) << text;
  }
  EXPECT_FALSE(ParseEndpoint(std::string(1000, 'a') + ":1").ok());
  EXPECT_FALSE(ParseEndpoint(std::string_view("a\nb:1")).ok());
  EXPECT_FALSE(ParseEndpoint(std::string_view("127.0.0.1\0.example:1", 20)).ok());
}

TEST(Endpoint, KnowsAddresses) {
  for (const char* host : {"127.0.0.1", "10.0.0.1", "::", "fe80::1", "fe80::1%eth0"}) {
    EXPECT_TRUE(IsAddress({host, 1})) << host;
  }
  for (const char* host : {"localhost", "1.2.3", "1.2.3.4.5", "1.2.3.4%eth0", "%eth0", "10.0.0.0/8"}) {
    EXPECT_FALSE(IsAddress({host, 1})) << host;
  }
}

TEST(Endpoint, KnowsLoopback) {
  for (const char* host : {"localhost", "127.0.0.1", "127.9.9.9", "::1"}) EXPECT_TRUE(IsLoopback({host, 1})) << host;
  for (const char* host : {"128.0.0.1", "0.0.0.0", "::", "example.org", "127.0.0.1.example.org", "fe80::1"}) {
    EXPECT_FALSE(IsLoopback({host, 1})) << host;
  }
}

}  // namespace
}  // namespace gyre
