#include "transport/striped_streams.h"

#include <random>

#include "gtest/gtest.h"
#include "support/status_matchers.h"
#include "transport/sim/network.h"

namespace gyre {
namespace {

using support::IsOk;

std::unique_ptr<StripedStreams> Open(sim::SimNetwork& network, int rank, int stripes) {
  std::vector<std::unique_ptr<Streams>> channels;
  for (int stripe = 0; stripe < stripes; ++stripe) {
    channels.push_back(network.Open(rank, 100 + static_cast<uint64_t>(stripe)));
  }
  return std::make_unique<StripedStreams>(std::move(channels));
}

std::vector<std::byte> Random(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Both ways at once, in pieces of all sizes, through streams that hold less than a stripe.
TEST(StripedStreams, BytesArriveInTheirOrder) {
  for (const int stripes : {1, 2, 3, 5}) {
    sim::SimNetwork network({.ranks = 2, .window = 50'000});
    const std::unique_ptr<StripedStreams> ends[] = {Open(network, 0, stripes), Open(network, 1, stripes)};
    const std::vector<std::byte> sent[] = {Random(1'000'003, 1), Random(700'001, 2)};
    std::vector<std::byte> received[] = {std::vector<std::byte>(sent[1].size()),
                                         std::vector<std::byte>(sent[0].size())};
    size_t written[2] = {}, read[2] = {};
    std::mt19937 random(3);
    while (read[0] < received[0].size() || read[1] < received[1].size()) {
      for (const int end : {0, 1}) {
        const Bytes left = Bytes(sent[end]).subspan(written[end]);
        const size_t cut = std::min<size_t>(left.size(), random() % 200'000);
        const Bytes pieces[] = {left.first(cut), left.subspan(cut)};
        const auto wrote = ends[end]->Write(1 - end, pieces);
        ASSERT_THAT(wrote, IsOk());
        written[end] += *wrote;
        const auto got = ends[end]->Read(
            1 - end, MutableBytes(received[end])
                         .subspan(read[end])
                         .first(std::min<size_t>(received[end].size() - read[end], 1 + random() % 300'000)));
        ASSERT_THAT(got, IsOk());
        read[end] += *got;
      }
      network.Advance(network.now() + std::chrono::milliseconds(1));
    }
    EXPECT_EQ(received[0], sent[1]);
    EXPECT_EQ(received[1], sent[0]);
  }
}

TEST(StripedStreams, SayWhenThePeerIsGone) {
  sim::SimNetwork network({.ranks = 2});
  const auto left = Open(network, 0, 3), right = Open(network, 1, 3);
  std::vector<std::byte> bytes(10);
  const Bytes last(bytes);
  EXPECT_THAT(right->Write(0, {&last, 1}), IsOk());
  network.Kill(1);
  absl::StatusOr<size_t> got = 0;
  for (int tries = 0; tries < 100 && got.ok(); ++tries) {
    got = left->Read(1, bytes);
    network.Advance(network.now() + std::chrono::milliseconds(100));
  }
  EXPECT_THAT(got, support::MatchesStatus(absl::StatusCode::kUnavailable, ""));
}

// A stand-in with a descriptor of its own, which takes and gives whatever is asked for.
class Described final : public Streams {
 public:
  explicit Described(int fd) : fd_(fd) {}
  absl::StatusOr<size_t> Write(int, std::span<const Bytes> pieces) override {
    size_t bytes = 0;
    for (const Bytes& piece : pieces) bytes += piece.size();
    return bytes;
  }
  absl::StatusOr<size_t> Read(int, MutableBytes into) override { return into.size(); }
  void AddWaits(int, bool to_read, bool to_write, std::vector<pollfd>& waits) const override {
    waits.push_back({fd_, static_cast<short>((to_read ? POLLIN : 0) | (to_write ? POLLOUT : 0)), 0});
  }

 private:
  const int fd_;
};

TEST(StripedStreams, WaitForTheConnectionWhoseTurnItIs) {
  std::vector<std::unique_ptr<Streams>> channels;
  for (const int fd : {10, 11}) channels.push_back(std::make_unique<Described>(fd));
  StripedStreams streams(std::move(channels));
  const auto waits = [&] {
    std::vector<pollfd> result;
    streams.AddWaits(7, true, true, result);
    return result;
  };
  ASSERT_EQ(waits().size(), 1u);
  EXPECT_EQ(waits()[0].fd, 10);
  const std::vector<std::byte> bytes(StripedStreams::kStripe + 5);
  const Bytes piece(bytes);
  EXPECT_EQ(*streams.Write(7, {&piece, 1}), static_cast<size_t>(StripedStreams::kStripe));  // no further
  ASSERT_EQ(waits().size(), 2u);
  EXPECT_EQ(waits()[0].fd, 10);
  EXPECT_EQ(waits()[0].events, POLLIN);
  EXPECT_EQ(waits()[1].fd, 11);
  EXPECT_EQ(waits()[1].events, POLLOUT);
}

}  // namespace
}  // namespace gyre
