// Endpoints, and ranks' descriptions of their places and networks (JSON).
#include <algorithm>

#include "fuzzers.h"
#include "net/endpoint.h"
#include "runtime/network_model.h"
#include "runtime/topology.h"

namespace gyre::fuzz {

std::string FuzzEndpoint(Mutator& random) {
  constexpr std::string_view kHosts[] = {
      "a", "host-1.example", "127.0.0.1", "[::1]", "[fe80::1%eth0]", "localhost", "[]", "::1", "10.0.0.256", ""};
  constexpr std::string_view kPorts[] = {":0", ":1", ":65535", ":65536", ":-1", ":", "", ":99999999999999999999",
                                         ":1x"};
  std::string text(kHosts[random.Below(std::size(kHosts))]);
  text += kPorts[random.Below(std::size(kPorts))];
  if (random.OneIn(2)) text = random.Mutated(std::move(text));
  if (random.OneIn(50)) text.insert(0, std::string(random.Below(400), 'h'));
  const auto parsed = ParseEndpoint(text);
  if (!parsed.ok()) return absl::IsInvalidArgument(parsed.status()) ? "" : "another error than kInvalidArgument";
  if (parsed->host.empty() || parsed->host.size() > 255) return "a host of " + std::to_string(parsed->host.size());
  if (std::ranges::any_of(parsed->host, [](unsigned char c) { return c <= ' ' || c == 0x7f; })) {
    return "a host with characters that no host has";
  }
  if (IsLoopback(*parsed) && parsed->host != "localhost" && !IsAddress(*parsed)) return "a loopback that is no address";
  return CheckDecoder(ToString(*parsed), /*valid=*/true, /*factor=*/4, ParseEndpoint,
                      [](const Endpoint& endpoint) { return ToString(endpoint); });
}

namespace {

std::string RandomName(Mutator& random) {
  if (random.OneIn(4)) return random.RandomBytes(random.Below(40));
  constexpr std::string_view kNames[] = {"host", "h\xc3\xb6st", "a\"b\\c", "\t\n", "0.1.0", "@gyre-1-2"};
  return std::string(kNames[random.Below(std::size(kNames))]);
}

// JSON that parsers stumble over.
std::string Trap(Mutator& random) {
  constexpr std::string_view kTraps[] = {
      "[",  "{\"a\":", "]",       "}",    "1e999", "-1e-999",    "184467440737095516160", "-0", "null", "\"\\u",
      "\\", "\"",      "\\ud800", "true", "\xff",  "{\"cpus\":", "\"cpus\":{}",           ","};
  const std::string_view trap = kTraps[random.Below(std::size(kTraps))];
  std::string text;
  for (uint64_t i = 0, times = random.OneIn(50) ? 2000 : 1 + random.Below(3); i < times; ++i) text += trap;
  return text;
}

// A member that nobody asked for, perhaps as deep as a value in the store can be.
std::string NestedMember(Mutator& random) {
  const size_t depth = random.OneIn(2000) ? 400'000 : random.Below(50);
  return "\"x\":" + std::string(depth, '[') + std::string(depth, ']') + ",";
}

}  // namespace

std::string FuzzRankPlace(Mutator& random) {
  internal::RankPlace place{RandomName(random), RandomName(random) + "x", RandomName(random), RandomName(random), {}};
  for (uint64_t i = random.Below(20); i > 0; --i) place.cpus.push_back(static_cast<int>(random.Number()));
  std::string text = Encode(place);
  const bool valid = random.OneIn(4);
  if (!valid && random.OneIn(2)) text = random.Mutated(std::move(text));
  if (!valid && random.OneIn(2)) text.insert(random.Below(text.size() + 1), Trap(random));
  if (!valid && random.OneIn(4)) text.insert(std::min<size_t>(text.size(), 1), NestedMember(random));
  // A value in JSON takes 16 bytes and what it holds; of nested ones each is a vector of one.
  return CheckDecoder(text, valid, /*factor=*/200, internal::DecodeRankPlace,
                      [](const internal::RankPlace& decoded) { return Encode(decoded); });
}

std::string FuzzNetworkReport(Mutator& random) {
  internal::NetworkReport report{.algorithms = random.OneIn(2) ? "allreduce=ring" : "",
                                 .streams = static_cast<int>(random.Below(20)),
                                 .reduced_per_second = static_cast<double>(random.Below(1'000'000))};
  if (random.OneIn(2)) report.slowest = internal::LinkFit{1e-5, static_cast<double>(random.Below(1'000'000))};
  std::string text = Encode(report);
  const bool valid = random.OneIn(4);
  if (!valid && random.OneIn(2)) text = random.Mutated(std::move(text));
  if (!valid && random.OneIn(2)) text.insert(random.Below(text.size() + 1), Trap(random));
  if (!valid && random.OneIn(4)) text.insert(std::min<size_t>(text.size(), 1), NestedMember(random));
  return CheckDecoder(text, valid, /*factor=*/200, internal::DecodeNetworkReport,
                      [](const internal::NetworkReport& decoded) { return Encode(decoded); });
}

}  // namespace gyre::fuzz
