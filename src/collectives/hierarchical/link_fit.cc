#include "collectives/hierarchical/link_fit.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "device/reduce.h"

namespace gyre::internal {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSmallTransfer = 64 << 10, kLargeTransfer = 512 << 10, kLast = -1;
constexpr double kBudget = 0.06, kQuick = 0.004;  // seconds
constexpr int kRoundTrips = 20, kTransfers = 5;

// A link that is shaped lets some pass at once before its own rate shows: only what comes behind that counts, if any.
constexpr int64_t kBurst = 1 << 20;

double SecondsSince(TimePoint start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Waits until the stream may go on, a millisecond at most: it need not have a descriptor yet.
void Rest(const Streams& streams, int peer, bool to_read) {
  std::vector<pollfd> waits;
  streams.AddWaits(peer, to_read, !to_read, waits);
  poll(waits.data(), waits.size(), 1);
}

bool WriteAll(Streams& streams, int peer, Bytes bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    const auto written = streams.Write(peer, {&bytes, 1});
    if (!written.ok() || (*written == 0 && Clock::now() >= deadline)) return false;
    if (*written == 0) Rest(streams, peer, false);
    bytes = bytes.subspan(*written);
  }
  return true;
}

bool ReadAll(Streams& streams, int peer, MutableBytes bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    const auto got = streams.Read(peer, bytes);
    if (!got.ok() || (*got == 0 && Clock::now() >= deadline)) return false;
    if (*got == 0) Rest(streams, peer, true);
    bytes = bytes.subspan(*got);
  }
  return true;
}

// Both ends are of one build (the ranks have compared versions), but perhaps not of one byte order.
using Count = std::array<std::byte, 8>;
Count Encode(int64_t value) {
  Count encoded;
  for (size_t i = 0; i < encoded.size(); ++i) encoded[i] = static_cast<std::byte>(value >> (8 * i));
  return encoded;
}
int64_t Decode(const Count& encoded) {
  uint64_t value = 0;
  for (size_t i = 0; i < encoded.size(); ++i) value |= static_cast<uint64_t>(encoded[i]) << (8 * i);
  return static_cast<int64_t>(value);
}

// Seconds until the peer has said that so many bytes are there.
std::optional<double> Transfer(Streams& streams, int peer, int64_t bytes, TimePoint deadline) {
  static constexpr std::array<std::byte, 64 << 10> kPiece{};
  const TimePoint start = Clock::now();
  Count count = Encode(bytes);
  if (!WriteAll(streams, peer, count, deadline)) return std::nullopt;
  for (int64_t sent = 0; sent < bytes; sent += static_cast<int64_t>(kPiece.size())) {
    const auto piece = static_cast<size_t>(std::min<int64_t>(kPiece.size(), bytes - sent));
    if (!WriteAll(streams, peer, Bytes(kPiece).first(piece), deadline)) return std::nullopt;
  }
  if (!ReadAll(streams, peer, count, deadline) || Decode(count) != bytes) return std::nullopt;
  return SecondsSince(start);
}

}  // namespace

std::optional<LinkFit> LeadLinkFit(Streams& streams, int peer, TimePoint deadline) {
  // The peer may come late: it has another link to measure first where the number of hosts is odd.
  if (!Transfer(streams, peer, 0, deadline)) return std::nullopt;
  const TimePoint start = Clock::now();
  double trip = std::numeric_limits<double>::infinity(), each = trip;  // seconds, a transfer's by the byte
  for (int i = 0; i < kRoundTrips && (i == 0 || SecondsSince(start) < kBudget / 3); ++i) {
    const auto seconds = Transfer(streams, peer, 0, deadline);
    if (!seconds) return std::nullopt;
    trip = std::min(trip, *seconds);
  }
  int64_t bytes = kSmallTransfer, passed = 0;
  double longest = 0;
  bool behind = false;  // the burst, with a whole transfer
  for (int i = 0; i < kTransfers && (i == 0 || SecondsSince(start) + longest < kBudget); ++i) {
    const auto seconds = Transfer(streams, peer, bytes, deadline);
    if (!seconds) return std::nullopt;
    // Never above what the whole time would show by a factor that is noise of the round trip.
    const double now = std::max(*seconds - trip, *seconds / 8) / static_cast<double>(bytes);
    each = behind ? std::min(each, now) : now;
    behind = passed > kBurst;
    passed += bytes;
    if (*seconds < kQuick) bytes = kLargeTransfer;
    longest = now * static_cast<double>(bytes) + trip;
  }
  if (!WriteAll(streams, peer, Encode(kLast), deadline)) return std::nullopt;
  return LinkFit{trip / 2, 1 / each};
}

void FollowLinkFit(Streams& streams, int peer, TimePoint deadline) {
  std::vector<std::byte> piece(kSmallTransfer);
  for (Count count{}; ReadAll(streams, peer, count, deadline);) {
    const int64_t bytes = Decode(count);
    if (bytes < 0 || bytes > kLargeTransfer) return;
    for (int64_t left = bytes; left > 0;) {
      const auto next = static_cast<size_t>(std::min(left, kSmallTransfer));
      if (!ReadAll(streams, peer, MutableBytes(piece).first(next), deadline)) return;
      left -= static_cast<int64_t>(next);
    }
    if (!WriteAll(streams, peer, count, deadline)) return;
  }
}

std::optional<int> FindUnreached(Streams& streams, std::span<const int> peers, TimePoint deadline) {
  Count count = Encode(kLast);
  for (const int peer : peers) {
    if (!WriteAll(streams, peer, count, deadline)) return peer;
  }
  for (const int peer : peers) {
    if (!ReadAll(streams, peer, count, deadline) || Decode(count) != kLast) return peer;
  }
  return std::nullopt;
}

double MeasureReduction() {
  constexpr int64_t kCount = 64 << 10;  // what the executor reduces at once stays in cache as well
  std::vector<float> into(kCount, 1.0f), arrived(kCount, 1.0f);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 6; ++i) {
    const std::array<const void*, 2> sources = {into.data(), arrived.data()};
    void* const destination = into.data();
    const TimePoint start = Clock::now();
    device::Reduce({.dtype = DType::kF32, .op = ReduceOp::kSum}, sources, {&destination, 1}, kCount);
    best = std::min(best, std::max(SecondsSince(start), 1e-9));
  }
  return static_cast<double>(kCount * 4) / best;
}

}  // namespace gyre::internal
