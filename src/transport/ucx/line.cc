#include "transport/ucx/line.h"

#include <algorithm>
#include <utility>

namespace gyre::ucx {

namespace {

constexpr uint64_t kTellFrom = kWindow / 4;  // a credit for less costs more than it helps
constexpr size_t kLeast = 16 << 10;          // nor is a smaller piece of something large worth a message

uint64_t ChargeOf(size_t bytes) {
  return bytes + kOverhead;
}

}  // namespace

size_t Line::Room(size_t wanted) const {
  const uint64_t room = granted_ + kWindow - charged_;
  if (room <= kOverhead) return 0;
  const size_t bytes = std::min({wanted, kMostBytes, static_cast<size_t>(room - kOverhead)});
  return bytes < std::min(wanted, kLeast) ? 0 : bytes;
}

uint64_t Line::CountSent(size_t bytes) {
  charged_ += ChargeOf(bytes);
  return sent_++;
}

bool Line::Grant(uint64_t charge) {
  granted_ = std::max(granted_, std::min(charge, charged_));
  return charge <= charged_;
}

bool Line::Accept(uint64_t number, size_t bytes) {
  if (bytes == 0 || bytes > kMostBytes || number < next_) return false;
  if (waiting_.contains(number) || coming_.contains(number)) return false;
  if (accepted_ + ChargeOf(bytes) > consumed_ + kWindow) return false;
  accepted_ += ChargeOf(bytes);
  coming_.insert(number);
  return true;
}

void Line::Take(uint64_t number, std::unique_ptr<Content> content) {
  coming_.erase(number);
  if (waiting_.try_emplace(number, std::move(content)).second) ++taken_;
}

Bytes Line::Front() const {
  if (waiting_.empty() || waiting_.begin()->first != next_) return {};
  return waiting_.begin()->second->bytes().subspan(read_);
}

std::optional<uint64_t> Line::Consume(size_t bytes) {
  read_ += bytes;
  const auto first = waiting_.begin();
  if (read_ < first->second->bytes().size()) return std::nullopt;
  consumed_ += ChargeOf(read_);
  waiting_.erase(first);
  ++next_;
  read_ = 0;
  if (consumed_ - told_ < kTellFrom) return std::nullopt;
  told_ = consumed_;
  return told_;
}

}  // namespace gyre::ucx
