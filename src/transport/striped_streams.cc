#include "transport/striped_streams.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"

namespace gyre {

absl::StatusOr<size_t> StripedStreams::Write(int peer, std::span<const Bytes> pieces) {
  int64_t& passed = passed_[peer].written;
  absl::InlinedVector<Bytes, 4> now;  // as much as the stripe has room for
  auto room = static_cast<size_t>(LeftOf(passed));
  for (const Bytes& piece : pieces) {
    const size_t part = std::min(piece.size(), room);
    if (part > 0) now.push_back(piece.first(part));
    room -= part;
  }
  auto written = channels_[ChannelOf(passed)]->Write(peer, now);
  if (written.ok()) passed += static_cast<int64_t>(*written);
  return written;
}

absl::StatusOr<size_t> StripedStreams::Read(int peer, MutableBytes into) {
  int64_t& passed = passed_[peer].read;
  const size_t part = std::min(into.size(), static_cast<size_t>(LeftOf(passed)));
  auto got = channels_[ChannelOf(passed)]->Read(peer, into.first(part));
  if (got.ok()) passed += static_cast<int64_t>(*got);
  return got;
}

// Bytes come in order: no other connection than the one whose turn it is lets anything go on.
void StripedStreams::AddWaits(int peer, bool to_read, bool to_write, std::vector<pollfd>& waits) const {
  const auto found = passed_.find(peer);
  const Passed passed = found == passed_.end() ? Passed() : found->second;
  const size_t reading = ChannelOf(passed.read), writing = ChannelOf(passed.written);
  if (to_read && to_write && reading == writing) return channels_[reading]->AddWaits(peer, true, true, waits);
  if (to_read) channels_[reading]->AddWaits(peer, true, false, waits);
  if (to_write) channels_[writing]->AddWaits(peer, false, true, waits);
}

}  // namespace gyre
