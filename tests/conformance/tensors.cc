#include <cstring>
#include <utility>

#include "conformance/collectives_fixture.h"
#include "support/fill.h"
#include "support/status_matchers.h"

namespace gyre {

using support::IsOk;

Tensor::Tensor(Runtime& runtime, Place place, DType dtype, int64_t count) {
  const int64_t bytes = count * DTypeSize(dtype);
  const bool arena = place == Place::kArena || (place == Place::kMixed && runtime.world().rank() % 2 == 1);
  if (arena) {
    auto buffer = runtime.Allocate(bytes);
    EXPECT_THAT(buffer, IsOk());
    buffer_ = *std::move(buffer);
    view_ = TensorView(buffer_.data(), count, dtype);
  } else {
    heap_.resize(static_cast<size_t>(bytes) + 17, '\x5a');
    view_ = TensorView(heap_.data() + (place == Place::kUnaligned ? 1 : 0), count, dtype);
  }
  std::memset(view_.data, 0x11, static_cast<size_t>(bytes));
}

Tensor::~Tensor() {
  if (heap_.empty()) return;
  const char* const begin = static_cast<const char*>(view_.data);
  const char* const end = begin + view_.bytes();
  for (const char& byte : heap_) {
    if (&byte < begin || &byte >= end) {
      EXPECT_EQ(byte, '\x5a') << "written beside the elements";
    }
  }
}

TensorView Tensor::view() const {
  return view_;
}

void Tensor::Fill(const std::function<void(const TensorView&)>& write) {
  write(view_);
}

TensorView Tensor::elements() const {
  return view_;
}

double Tensor::at(int64_t index) const {
  return support::ReadElement(elements(), index);
}

}  // namespace gyre
