#include "net/interfaces.h"

#include <algorithm>

#include "base/clock.h"
#include "net/socket.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

const std::vector<InterfaceAddress> kInterfaces = {
    {"lo", "127.0.0.1", 8},     {"lo", "::1", 128},          {"eth0", "fe80::1%eth0", 64}, {"eth0", "fd00:77::2", 64},
    {"eth0", "10.77.0.2", 24},  {"eth1", "169.254.3.4", 16}, {"eth1", "10.78.0.2", 24},    {"eth1", "10.78.0.3", 24},
    {"ib0", "fe80::2%ib0", 64}, {"ib0", "fd00:88::2", 64},
};

std::string Choose(std::string_view choice) {
  const auto chosen = ChooseAddress(choice, kInterfaces);
  return chosen.ok() ? *chosen : "none";
}

TEST(Interfaces, ByName) {
  EXPECT_EQ(Choose("lo"), "127.0.0.1");
  EXPECT_EQ(Choose("eth0"), "10.77.0.2");  // before IPv6
  EXPECT_EQ(Choose("eth1"), "10.78.0.2");  // the first, and not link-local
  EXPECT_EQ(Choose("ib0"), "fd00:88::2");
}

TEST(Interfaces, BySubnet) {
  EXPECT_EQ(Choose("10.77.0.0/24"), "10.77.0.2");
  EXPECT_EQ(Choose("10.0.0.0/8"), "10.77.0.2");
  EXPECT_EQ(Choose("10.78.0.3/31"), "10.78.0.2");  // bits after the prefix do not count
  EXPECT_EQ(Choose("10.78.0.3/32"), "10.78.0.3");
  EXPECT_EQ(Choose("fd00:88::/32"), "fd00:88::2");
  EXPECT_EQ(Choose("fe80::/10"), "fe80::1%eth0");
  EXPECT_EQ(Choose("169.254.0.0/16"), "169.254.3.4");
  EXPECT_EQ(Choose("0.0.0.0/0"), "127.0.0.1");
  EXPECT_EQ(Choose("10.79.0.0/24"), "none");
}

TEST(Interfaces, ByAddress) {
  EXPECT_EQ(Choose("10.78.0.3"), "10.78.0.3");
  EXPECT_EQ(Choose("fd00:77:0::2"), "fd00:77::2");
  EXPECT_EQ(Choose("10.78.0.4"), "none");
}

TEST(Interfaces, WhatThereIsNotIsToldWithWhatThereIs) {
  for (const char* choice :
       {"eth7", "", "10.77.0.0/33", "10.77.0.0/", "10.77.0.0/x", "10.77.0/24", "/8", "fd00::/129"}) {
    const auto chosen = ChooseAddress(choice, kInterfaces);
    EXPECT_THAT(chosen, MatchesStatus(StatusCode::kInvalidArgument, "eth0 10.77.0.2/24, eth1 169.254.3.4/16"))
        << choice;
    EXPECT_THAT(chosen, MatchesStatus(StatusCode::kInvalidArgument, std::string("\"") + choice + "\"")) << choice;
  }
}

TEST(Interfaces, OfThisMachine) {
  const auto interfaces = ListInterfaces();
  ASSERT_THAT(interfaces, IsOk());
  const auto loopback = std::ranges::find(*interfaces, "127.0.0.1", &InterfaceAddress::address);
  ASSERT_NE(loopback, interfaces->end());
  EXPECT_EQ(loopback->prefix, 8);
  EXPECT_EQ(FindAddress(loopback->interface).value_or(""), "127.0.0.1");
  EXPECT_EQ(FindAddress("127.0.0.0/8").value_or(""), "127.0.0.1");
}

TEST(Interfaces, OfASocket) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    Endpoint any;
    any.host = host;
    const auto listener = ListenTcp(any, 1, TimePoint::max());
    ASSERT_THAT(listener, IsOk());
    EXPECT_EQ(LocalAddressOf(listener->get()).value_or(""), host);
    const auto endpoint = LocalEndpoint(listener->get());
    ASSERT_THAT(endpoint, IsOk());
    const auto client = ConnectTcp(*endpoint, std::chrono::steady_clock::now() + std::chrono::seconds(5));
    ASSERT_THAT(client, IsOk());
    EXPECT_EQ(PeerAddressOf(client->get()).value_or(""), host);
    EXPECT_FALSE(PeerAddressOf(listener->get()).ok());
  }
  EXPECT_FALSE(LocalAddressOf(0).ok());
}

}  // namespace
}  // namespace gyre
