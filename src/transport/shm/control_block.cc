#include "transport/shm/control_block.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

namespace gyre::shm {

void LastWords::Write(int rank, std::string_view text) {
  uint32_t expected = kEmpty;
  if (!state_.compare_exchange_strong(expected, kWriting)) return;
  rank_ = rank;
  length_ = static_cast<uint32_t>(std::min(text.size(), sizeof(text_)));
  std::memcpy(text_, text.data(), length_);
  state_.store(kWritten, std::memory_order_seq_cst);
}

std::optional<LastWords::Content> LastWords::Read() const {
  if (!written()) return std::nullopt;
  const size_t length = std::min<size_t>(length_, sizeof(text_));  // the writer is another process
  return Content{rank_, std::string(text_, length)};
}

void Doorbell::Wake() {
  rings.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace gyre::shm
