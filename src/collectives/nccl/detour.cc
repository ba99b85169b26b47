#include "collectives/nccl/detour.h"

#include <algorithm>
#include <cstddef>

namespace gyre::internal::nccl {

namespace {

constexpr int64_t kDetourAlignment = 256;  // bytes

// Of one transfer in one round: whole elements. A group has as many tensors as two for each rank, at most.
int64_t PieceBytes(int size) {
  return std::max<int64_t>(kDetourBytes / (int64_t{2} * size) / kDetourAlignment, 1) * kDetourAlignment;
}

}  // namespace

int64_t DetourRounds(int64_t most, int size) {
  const int64_t piece = PieceBytes(size);
  return std::max<int64_t>((most + piece - 1) / piece, 1);
}

DetourRound DetourRoundOf(std::span<const Transfer> group, int64_t round, int size, void* scratch,
                          const std::function<bool(const void*)>& registered) {
  const int64_t piece = PieceBytes(size), begin = round * piece;
  auto* next = static_cast<std::byte*>(scratch);
  const auto take = [&] {
    std::byte* const taken = next;
    next += piece;
    return taken;
  };
  DetourRound result;
  for (const Transfer& whole : group) {
    const int64_t width = DTypeSize(whole.dtype), bytes = std::min(piece, whole.count * width - begin);
    if (bytes <= 0) continue;
    Transfer part = whole;
    part.count = bytes / width;
    if (whole.in != nullptr) {
      part.in = static_cast<const std::byte*>(whole.in) + begin;
      if (registered(whole.in)) {
        std::byte* const copy = take();
        result.before.push_back({copy, part.in, bytes});
        part.in = copy;
      }
    }
    if (whole.out != nullptr) {
      auto* const out = static_cast<std::byte*>(whole.out) + begin;
      part.out = out;
      if (registered(whole.out)) {
        part.out = whole.in == whole.out ? const_cast<void*>(part.in) : take();
        result.after.push_back({out, part.out, bytes});
      }
    }
    result.group.push_back(part);
  }
  return result;
}

}  // namespace gyre::internal::nccl
