#include "transport/shm/control_block.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

namespace gyre::shm {

void LastWords::Write(const Content& content) {
  uint32_t expected = kEmpty;
  if (!state_.compare_exchange_strong(expected, kWriting)) return;
  rank_ = content.rank;
  code_ = static_cast<int32_t>(content.code);
  length_ = static_cast<uint32_t>(std::min(content.text.size(), sizeof(text_)));
  std::memcpy(text_, content.text.data(), length_);
  state_.store(kWritten, std::memory_order_seq_cst);
}

std::optional<LastWords::Content> LastWords::Read() const {
  if (!written()) return std::nullopt;
  // The writer is another process: nothing of this need be as it should.
  const size_t length = std::min<size_t>(length_, sizeof(text_));
  const bool error = code_ > 0 && code_ <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  return Content{rank_, std::string(text_, length),
                 error ? static_cast<absl::StatusCode>(code_) : absl::StatusCode::kAborted};
}

void LossLedger::Append(int rank) {
  const int32_t index = size_.load(std::memory_order_relaxed);
  if (index >= kCapacity) return;
  ranks_[index].store(rank, std::memory_order_relaxed);
  size_.store(index + 1, std::memory_order_release);
}

// The writer is another process: this need not be as it should.
int LossLedger::size() const {
  return std::clamp<int32_t>(size_.load(std::memory_order_acquire), 0, kCapacity);
}

void Doorbell::Wake() {
  rings.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace gyre::shm
