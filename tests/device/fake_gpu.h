// A GPU that is none: its memory is the host's, and what is queued is done at once. It goes by the same tables of tiles
// as the kernels do, element by element.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "device/gpu.h"

namespace gyre::device {

class FakeGpu final : public Gpu {
 public:
  ~FakeGpu() override;

  std::string name() const override { return "fake"; }
  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  void Free(void* memory) override;
  absl::StatusOr<Stream> CreateStream() override { return Stream{}; }
  void DestroyStream(Stream /*stream*/) override {}
  absl::Status Synchronize(Stream /*stream*/) override { return absl::OkStatus(); }
  absl::Status Copy(void* to, const void* from, int64_t bytes, Stream stream) override;
  absl::StatusOr<std::unique_ptr<Table>> Upload(PackTable table) override;
  absl::Status Pack(const Table& table, void* buffer, double scale, Stream stream) override;
  absl::Status Unpack(const Table& table, const void* buffer, double scale, Stream stream) override;
  absl::Status Reduce(const Reduction& reduction, std::span<const void* const> sources,
                      std::span<void* const> destinations, int64_t count, Stream stream) override;
  absl::Status CountNonFinite(ConstTensorView view, uint64_t* found, Stream stream) override;

 private:
  std::set<void*> allocations_;
};

}  // namespace gyre::device
