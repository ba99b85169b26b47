#include "ps/process/float_arena.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/pidfd.h"
#include "base/status.h"

namespace gyre::ps {

namespace {

constexpr size_t kTokenBytes = 16;
constexpr int64_t kHeadBytes = 4096;  // the token is there, by which a reader knows that it is this memory
constexpr size_t kAlignment = 64;

std::string MakeToken() {
  std::random_device random;
  std::string token;
  while (token.size() < kTokenBytes) token.push_back(static_cast<char>(random()));
  return token;
}

}  // namespace

struct FloatArena::Pool {
  shm::Segment segment;
  size_t used = kHeadBytes;
  std::map<size_t, std::vector<float*>> free{};  // by bytes

  float* Take(size_t bytes) {
    std::vector<float*>& same = free[bytes];
    if (!same.empty()) {
      float* const data = same.back();
      same.pop_back();
      return data;
    }
    if (bytes > static_cast<size_t>(segment.size()) - used) return nullptr;
    used += bytes;
    return reinterpret_cast<float*>(segment.data() + (used - bytes));
  }
};

absl::StatusOr<FloatArena> FloatArena::Create(int64_t bytes) {
  ASSIGN_OR_RETURN(shm::Segment segment, shm::Segment::Create("gyre-parameter-server", kHeadBytes + bytes));
  const std::string token = MakeToken();
  std::memcpy(segment.data(), token.data(), token.size());
  std::string offer = Written([&](WireWriter& writer) {
    writer.U32(static_cast<uint32_t>(getpid()));
    writer.U32(static_cast<uint32_t>(segment.fd()));
    writer.U64(static_cast<uint64_t>(segment.size()));
    writer.Raw(token);
  });
  return FloatArena(std::make_shared<Pool>(Pool{std::move(segment)}), std::move(offer));
}

Floats FloatArena::Make(size_t count) {
  const size_t bytes = (count * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  float* const data = pool_->Take(bytes);
  if (data == nullptr) return Floats(count);
  return Floats(std::shared_ptr<float[]>(data, [pool = pool_, bytes](float* own) { pool->free[bytes].push_back(own); }),
                count);
}

std::optional<uint64_t> FloatArena::OffsetOf(Bytes floats) const {
  const std::byte* const begin = pool_->segment.data();
  if (floats.data() < begin || floats.data() >= begin + pool_->segment.size()) return std::nullopt;
  return static_cast<uint64_t>(floats.data() - begin);
}

// A process of the same user may open what another one has open. Should its number mean another process here (of
// another host, or container), the token says so.
absl::StatusOr<std::shared_ptr<const MappedArena>> MappedArena::Map(std::string_view offer) {
  WireReader reader(offer);
  const uint32_t pid = reader.U32(), number = reader.U32();
  const uint64_t bytes = reader.U64();
  const std::string_view token = reader.Raw(kTokenBytes);
  if (!reader.AtEnd() || bytes < kHeadBytes || bytes > INT64_MAX) {
    return absl::InvalidArgumentError("a malformed offer of shared memory");
  }
  UniqueFd process = OpenPidfd(static_cast<pid_t>(pid));
  const std::string path = absl::StrCat("/proc/", pid, "/fd/", number);
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return ErrnoStatus(path);
  ASSIGN_OR_RETURN(shm::Segment segment, shm::Segment::Map(std::move(fd), static_cast<int64_t>(bytes)));
  if (std::memcmp(segment.data(), token.data(), token.size()) != 0) {
    return absl::NotFoundError("it is the memory of another process");
  }
  segment.CloseFd();
  return std::make_shared<const MappedArena>(std::move(segment), std::move(process));
}

float* MappedArena::At(uint64_t offset, size_t count) const {
  const auto size = static_cast<uint64_t>(segment_.size());
  if (offset < kHeadBytes || offset % sizeof(float) != 0 || offset > size) return nullptr;
  if (count > (size - offset) / sizeof(float)) return nullptr;
  return reinterpret_cast<float*>(segment_.data() + offset);
}

}  // namespace gyre::ps
