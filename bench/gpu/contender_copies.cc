#include <memory>
#include <utility>

#include "gpu/collective.h"
#include "gpu/mirrored.h"
#include "gyre/status_macros.h"

namespace gyre::bench::gpu {

namespace {

// A copy of a task's bytes in the place of each call: what the results are, nobody looks at.
class Copies : public Contender {
 public:
  bool computes() const override { return false; }
  bool Supports(bool /*in_place*/) const override { return true; }
  Ends ends(bool in_place) override { return mirrored_.on_host(in_place); }

  absl::Status Prepare(const Task& task) override {
    bytes_ = static_cast<size_t>(task.bytes());
    from_ = Memory();  // first: both may not fit at once
    to_ = Memory();
    ASSIGN_OR_RETURN(from_, Memory::Make(task.bytes()));
    ASSIGN_OR_RETURN(to_, Memory::Make(task.bytes()));
    mirrored_.Attach(task, from_.data(), to_.data());
    return absl::OkStatus();
  }

 protected:
  size_t bytes_ = 0;
  Memory from_, to_;

 private:
  Mirrored mirrored_;
};

class CopyOnGpu final : public Copies {
 public:
  explicit CopyOnGpu(Stream stream) : stream_(std::move(stream)) {}

  std::string name() const override { return "copy"; }
  absl::Status Finish() override { return stream_.Synchronize(); }
  absl::Status Run(bool /*in_place*/) override {
    return Check(cudaMemcpyAsync(to_.data(), from_.data(), bytes_, cudaMemcpyDeviceToDevice, stream_.get()), "copying");
  }

 private:
  const Stream stream_;
};

// To pinned memory and, at the same time, from there.
class CopyByHost final : public Copies {
 public:
  CopyByHost(Stream out, Stream back) : out_(std::move(out)), back_(std::move(back)) {}

  std::string name() const override { return "host-copy"; }

  absl::Status Prepare(const Task& task) override {
    RETURN_IF_ERROR(Copies::Prepare(task));
    for (Pinned& pinned : pinned_) {
      pinned.reset();
      void* made = nullptr;
      RETURN_IF_ERROR(Check(cudaMallocHost(&made, bytes_), "pinned memory"));
      pinned.reset(made);
    }
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    RETURN_IF_ERROR(out_.Synchronize());
    return back_.Synchronize();
  }

  absl::Status Run(bool /*in_place*/) override {
    RETURN_IF_ERROR(Check(cudaMemcpyAsync(pinned_[0].get(), from_.data(), bytes_, cudaMemcpyDeviceToHost, out_.get()),
                          "copying out"));
    return Check(cudaMemcpyAsync(to_.data(), pinned_[1].get(), bytes_, cudaMemcpyHostToDevice, back_.get()),
                 "copying back");
  }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFreeHost(memory); }
  };
  using Pinned = std::unique_ptr<void, Free>;

  const Stream out_, back_;
  Pinned pinned_[2];
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contender>> MakeCopyOnGpu() {
  ASSIGN_OR_RETURN(Stream stream, Stream::Make());
  return std::make_unique<CopyOnGpu>(std::move(stream));
}

absl::StatusOr<std::unique_ptr<Contender>> MakeCopyByHost() {
  ASSIGN_OR_RETURN(Stream out, Stream::Make());
  ASSIGN_OR_RETURN(Stream back, Stream::Make());
  return std::make_unique<CopyByHost>(std::move(out), std::move(back));
}

}  // namespace gyre::bench::gpu
