#include <cstring>

#include "contender.h"
#include "gyre/status_macros.h"

namespace gyre::bench {

namespace {

class CopyContender final : public Contender {
 public:
  explicit CopyContender(Runtime& runtime) : runtime_(runtime) {}

  std::string name() const override { return "copy"; }
  std::string buffers() const override { return "arena"; }

  absl::Status Prepare(const Task& task) override {
    if (task.operation != Operation::kCopy) return absl::UnimplementedError("a copy is no collective");
    task_ = task;
    in_ = Buffer();  // first: both may not fit at once
    out_ = Buffer();
    ASSIGN_OR_RETURN(in_, runtime_.Allocate(task.send_bytes()));
    ASSIGN_OR_RETURN(out_, runtime_.Allocate(task.receive_bytes()));
    return absl::OkStatus();
  }

  bool Supports(bool in_place) const override { return !in_place; }

  Ends ends(bool /*in_place*/) override {
    return {static_cast<std::byte*>(in_.data()), static_cast<std::byte*>(out_.data())};
  }

  absl::Status Run(bool /*in_place*/) override {
    std::memcpy(out_.data(), in_.data(), static_cast<size_t>(task_.send_bytes()));
    return absl::OkStatus();
  }

 private:
  Runtime& runtime_;
  Task task_;
  Buffer in_, out_;
};

}  // namespace

std::unique_ptr<Contender> MakeCopy(Runtime& runtime) {
  return std::make_unique<CopyContender>(runtime);
}

}  // namespace gyre::bench
