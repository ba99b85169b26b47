#include "fusion/gradients.h"

#include <cstring>
#include <utility>

#include "fusion/arithmetic.h"

namespace gyre::fusion {

Gradients::Gradients(std::vector<TensorInfo> tensors, const Layout& layout, std::byte* memory, int64_t own_call_bytes,
                     int accumulate)
    : Gradients(std::move(tensors), layout, memory, own_call_bytes, accumulate, accumulate > 1 ? layout.bytes : 0) {}

Gradients::Gradients(std::vector<TensorInfo> tensors, const Layout& layout, std::byte* memory, int64_t own_call_bytes,
                     int accumulate, int64_t sum_bytes)
    : tensors_(std::move(tensors)),
      layout_(layout),
      memory_(memory),
      own_call_bytes_(own_call_bytes),
      accumulate_(accumulate),
      given_views_(tensors_.size()),
      sums_(static_cast<size_t>(sum_bytes)) {}

TensorView Gradients::home(int tensor) const {
  const auto index = static_cast<size_t>(tensor);
  return {memory_ + layout_.begins[index], tensors_[index].count, tensors_[index].dtype};
}

TensorView Gradients::sum(int tensor) {
  const auto index = static_cast<size_t>(tensor);
  return {sums_.data() + layout_.begins[index], tensors_[index].count, tensors_[index].dtype};
}

// What is in `from` goes into the tensor's sum; with the last, the sum goes to `to`.
void Gradients::Accumulate(int tensor, TensorView from, TensorView to) {
  if (only_adds()) {
    if (given_ == 0) return Convert(from, sum(tensor));
    return Add(from, sum(tensor));
  }
  Convert(from, to);
  if (accumulate_ > 1) Add(sum(tensor), to);
}

void Gradients::Give(int tensor) {
  given_views_[static_cast<size_t>(tensor)] = {};
  Accumulate(tensor, home(tensor), home(tensor));
}

void Gradients::Give(int tensor, TensorView view) {
  const auto index = static_cast<size_t>(tensor);
  given_views_[index] = view;
  const bool same_dtype = view.dtype == tensors_[index].dtype;
  if (!same_dtype) Convert(view, home(tensor));
  Accumulate(tensor, same_dtype ? view : home(tensor), same_dtype && IsLarge(tensor) ? view : home(tensor));
}

void Gradients::GiveZeros(int tensor) {
  given_views_[static_cast<size_t>(tensor)] = {};
  const TensorView zeros = home(tensor);
  if (zeros.count > 0) std::memset(zeros.data, 0, static_cast<size_t>(zeros.bytes()));
  Accumulate(tensor, zeros, zeros);
}

// Whether it is reduced where the program gave it.
bool Gradients::StaysWithProgram(const Part& part) const {
  if (part.tensors.size() != 1 || !IsLarge(part.tensors[0])) return false;
  const TensorView& view = given_views_[static_cast<size_t>(part.tensors[0])];
  return view.data != nullptr && view.dtype == part.dtype;
}

TensorView Gradients::BufferOf(const Part& part) const {
  if (!StaysWithProgram(part)) return {memory_ + part.begin, part.count, part.dtype};
  const auto tensor = static_cast<size_t>(part.tensors[0]);
  std::byte* const data = static_cast<std::byte*>(given_views_[tensor].data);
  return {data + (part.begin - layout_.begins[tensor]), part.count, part.dtype};
}

void Gradients::Deliver(const Part& part) {
  if (!part.last || StaysWithProgram(part)) return;
  for (const int tensor : part.tensors) {
    const TensorView& view = given_views_[static_cast<size_t>(tensor)];
    if (view.data != nullptr) Convert(home(tensor), view);
  }
}

TensorView Gradients::result(int tensor) const {
  const TensorView& view = given_views_[static_cast<size_t>(tensor)];
  return view.data != nullptr ? view : home(tensor);
}

TensorView Gradients::common_result(int tensor) const {
  const TensorView& view = given_views_[static_cast<size_t>(tensor)];
  return view.data != nullptr && view.dtype == tensors_[static_cast<size_t>(tensor)].dtype ? view : home(tensor);
}

void Gradients::Restart() {
  given_ = only_adds() ? given_ + 1 : 0;
}

}  // namespace gyre::fusion
