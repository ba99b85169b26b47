// Gradients: where a step's gradients are, and how they get from there into what is reduced and back. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "device/gpu_graph.h"
#include "fusion/layout.h"
#include "fusion/plan.h"
#include "gyre/tensor.h"

namespace gyre::fusion {

// Every gradient has a home in one piece of memory, and may be given in memory of the program's own instead. Then it is
// copied home, and the result back; or it is reduced where it is, if it is large and has a call of its own.
//
// Give and GiveZeros may be called for different tensors at once; everything else needs the object to itself.
class Gradients {
 public:
  // `memory` has layout.bytes, zero, and must outlive it. `own_call_bytes`: as given to MakeParts. `accumulate`: how
  // many gradients of each tensor are added up before the sum is reduced.
  Gradients(std::vector<TensorInfo> tensors, const Layout& layout, std::byte* memory, int64_t own_call_bytes,
            int accumulate);
  virtual ~Gradients() = default;
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const Layout& layout() const { return layout_; }

  virtual TensorView home(int tensor) const;

  // Whether what is given now is only added up.
  bool only_adds() const { return given_ + 1 < accumulate_; }

  // The gradient is at home, or in `view`, which has as many elements.
  virtual void Give(int tensor);
  virtual void Give(int tensor, TensorView view);
  virtual void GiveZeros(int tensor);

  // The part's tensors were given: BufferOf(part) is about to be reduced.
  virtual absl::Status Prepare(const Part& /*part*/) { return absl::OkStatus(); }

  // What is to be reduced in place for this part, once its tensors were given.
  virtual TensorView BufferOf(const Part& part) const;

  // The graph that the part's reduction is in (collectives/gpu_backend.h), since Prepare; null: in none.
  virtual std::shared_ptr<device::GpuGraph> GraphOf(const Part& /*part*/) const { return nullptr; }

  // The part was reduced: results go to where the gradients came from, those of pieces with the last one.
  virtual void Deliver(const Part& part);

  // Where the tensor's gradient was given, and its result is.
  TensorView result(int tensor) const;

  // The result in the dtype that it travelled in: the same bits on all ranks, which `result` need not be, as each rank
  // chooses the dtype of the memory that it gives.
  TensorView common_result(int tensor) const;

  // All were given: from now on it is the next step's turn, or the next one's to be added.
  void Restart();

 protected:
  // With so much memory for sums: another class may keep them elsewhere.
  Gradients(std::vector<TensorInfo> tensors, const Layout& layout, std::byte* memory, int64_t own_call_bytes,
            int accumulate, int64_t sum_bytes);
  const std::vector<TensorView>& given_views() const { return given_views_; }  // by tensor; null: given at home
  void SetGiven(int tensor, const TensorView& view) { given_views_[static_cast<size_t>(tensor)] = view; }
  int accumulate() const { return accumulate_; }
  int given() const { return given_; }  // gradients of each tensor that are in the sums
  std::byte* memory() const { return memory_; }

 private:
  bool StaysWithProgram(const Part& part) const;
  bool IsLarge(int tensor) const { return tensors_[static_cast<size_t>(tensor)].bytes() >= own_call_bytes_; }
  TensorView sum(int tensor);
  void Accumulate(int tensor, TensorView from, TensorView to);

  const std::vector<TensorInfo> tensors_;
  const Layout layout_;
  std::byte* const memory_;
  const int64_t own_call_bytes_;
  const int accumulate_;
  int given_ = 0;                        // how many gradients of each tensor are in the sums
  std::vector<TensorView> given_views_;  // by tensor; data is null where it is at home
  std::vector<std::byte> sums_;          // laid out like the memory; empty where nothing is added up
};

}  // namespace gyre::fusion
