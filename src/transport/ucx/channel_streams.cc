#include "transport/ucx/channel_streams.h"

#include <sys/eventfd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::ucx {

ChannelStreams::ChannelStreams(std::shared_ptr<Exchange> exchange, uint64_t channel, const std::vector<int>& peers)
    : exchange_(std::move(exchange)), channel_(channel) {
  bell_.fd.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  for (const int peer : peers) {
    if (Exchange::Slot* const slot = exchange_->Enter(channel, peer, &bell_); slot != nullptr) slots_[peer] = slot;
  }
}

ChannelStreams::~ChannelStreams() {
  std::vector<Exchange::Slot*> slots;
  for (const auto& [peer, slot] : slots_) slots.push_back(slot);
  exchange_->Leave(slots);
}

absl::StatusOr<Exchange::Slot*> ChannelStreams::Find(int peer) const {
  const auto found = slots_.find(peer);
  if (found != slots_.end()) return found->second;
  return absl::InvalidArgumentError(absl::StrCat("rank ", peer, " is no peer of channel ", channel_));
}

absl::StatusOr<size_t> ChannelStreams::Write(int peer, std::span<const Bytes> pieces) {
  ASSIGN_OR_RETURN(Exchange::Slot* const slot, Find(peer));
  return exchange_->Write(*slot, pieces);
}

absl::StatusOr<size_t> ChannelStreams::Read(int peer, MutableBytes into) {
  ASSIGN_OR_RETURN(Exchange::Slot* const slot, Find(peer));
  return exchange_->Read(*slot, into);
}

void ChannelStreams::AddWaits(int peer, bool to_read, bool to_write, std::vector<pollfd>& waits) const {
  const auto found = slots_.find(peer);
  if (found != slots_.end()) exchange_->AddWaits(*found->second, to_read, to_write, waits);
}

}  // namespace gyre::ucx
