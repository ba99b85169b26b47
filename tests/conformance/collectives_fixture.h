// What the collectives' conformance tests share: tensors in all kinds of places, the definitions of the reductions, and
// a suite that runs over threads and over processes (collectives_fixture.cc), or on every rank of a job that a launcher
// has started (job_fixture.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <vector>

#include "conformance/definitions.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "support/job.h"
#include "support/ranks.h"

namespace gyre {

enum class Place { kPlain, kArena, kMixed, kUnaligned };

inline constexpr DType kAllTypes[] = {DType::kU8,  DType::kI8,   DType::kI16, DType::kU16, DType::kI32, DType::kI64,
                                      DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kBool};

// Counts around every border of the algorithms: inline data, the slot's line, direct, one chunk, several chunks.
inline const std::vector<int64_t> kCounts = {0, 1, 2, 3, 4, 5, 17, 250, 1023, 4096, 4097, 65536, 65537, 200001};

// Elements somewhere: on the heap, in the arena, off alignment, or (kMixed) in the arena of odd ranks only.
class Tensor {
 public:
  Tensor(Runtime& runtime, Place place, DType dtype, int64_t count);
  ~Tensor();  // nothing may have been written beside the elements
  Tensor(Tensor&&) = default;

  TensorView view() const;  // what calls take

  // Has `write` write all elements. After what calls have done until now, and before what they do next.
  void Fill(const std::function<void(const TensorView&)>& write);
  // The elements, as all calls until now have made them, where the host can read them: not to be written.
  TensorView elements() const;
  double at(int64_t index) const;

 private:
  Buffer buffer_;
  std::vector<char> heap_;
  TensorView view_;

  // Of a tensor on a GPU.
  std::shared_ptr<void> stream_;  // that its operations are in the order of
  std::unique_ptr<std::byte[]> mirror_;
  std::function<void(void* to, const void* from, int64_t bytes)> copy_;  // in that order; waits for it
};

class Conformance : public testing::TestWithParam<std::tuple<support::Mode, support::HostSizes>> {
 protected:
  // `body` on every rank, then a barrier.
  void Run(const std::function<void(Runtime&, Communicator&)>& body);

  // How large what is to be large is.
  static int64_t LargeBytes();
};

}  // namespace gyre
