// The two buffers of a task on a GPU, and copies of them on the host to fill and to look at.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gpu/cuda.h"
#include "gyre/status_macros.h"
#include "task.h"

namespace gyre::bench::gpu {

class Mirrored {
 public:
  // `in` of send_bytes and `out` of receive_bytes, on the GPU; outlive it.
  void Attach(const Task& task, std::byte* in, std::byte* out) {
    task_ = task;
    in_ = in;
    out_ = out;
    host_in_.assign(static_cast<size_t>(task.send_bytes()), std::byte{});
    host_out_.assign(static_cast<size_t>(task.receive_bytes()), std::byte{});
  }

  Ends on_gpu(bool in_place) const { return EndsOf(task_, in_, out_, in_place); }
  Ends on_host(bool in_place) { return EndsOf(task_, host_in_.data(), host_out_.data(), in_place); }

  // Both buffers, whichever of them the form uses. Block.
  absl::Status Upload() {
    RETURN_IF_ERROR(Copy(in_, host_in_.data(), host_in_.size()));
    return Copy(out_, host_out_.data(), host_out_.size());
  }
  absl::Status Download() {
    RETURN_IF_ERROR(Copy(host_in_.data(), in_, host_in_.size()));
    return Copy(host_out_.data(), out_, host_out_.size());
  }

 private:
  static absl::Status Copy(void* to, const void* from, size_t bytes) {
    if (bytes == 0) return absl::OkStatus();
    RETURN_IF_ERROR(Check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), absl::StrCat("copying ", bytes, " bytes")));
    return Check(cudaDeviceSynchronize(), "waiting for the GPU");
  }

  Task task_;
  std::byte *in_ = nullptr, *out_ = nullptr;
  std::vector<std::byte> host_in_, host_out_;
};

}  // namespace gyre::bench::gpu
