#include "base/process_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gyre {

namespace {

constexpr size_t kPage = 4096;

// A page that holds 1 here, and 0 in children. Null if the system has none.
const std::atomic<uint32_t>* MakePage() {
  void* const at = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  if (madvise(at, kPage, MADV_WIPEONFORK) != 0) {
    munmap(at, kPage);
    return nullptr;
  }
  return new (at) std::atomic<uint32_t>(1);
}

}  // namespace

ProcessMark::ProcessMark() : process_(getpid()), page_(MakePage()) {}

ProcessMark::~ProcessMark() {
  if (page_ != nullptr) munmap(const_cast<std::atomic<uint32_t>*>(page_), kPage);
}

bool ProcessMark::HasAnotherNumber() const {
  return getpid() != process_;
}

absl::Status ProcessMark::Refusal() const {
  return absl::FailedPreconditionError(
      absl::StrCat("process ", getpid(), " was forked from process ", process_,
                   ", which joined the job: only that one may use its Runtime and what belongs to it. Here, start "
                   "another program (exec), or make a Runtime after the fork"));
}

void KeepUntilExit(std::shared_ptr<void> object) {
  new std::shared_ptr<void>(std::move(object));  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): on purpose
}

}  // namespace gyre
