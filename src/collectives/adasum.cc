#include "collectives/adasum.h"

#include <bit>
#include <cstring>

namespace gyre::internal {

namespace {

// From memory of any alignment.
template <typename Element, typename Value>
void Load(const void* data, int64_t length, double scale, Value* into) {
  for (int64_t i = 0; i < length; ++i) {
    Element element;
    std::memcpy(&element, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(Element)), sizeof(Element));
    into[i] = static_cast<Value>(static_cast<double>(static_cast<Value>(element)) * scale);
  }
}

template <typename Element, typename Value>
void Save(const std::vector<Value>& values, double scale, void* data) {
  char* to = static_cast<char*>(data);
  for (const Value value : values) {
    const Element element(static_cast<Value>(static_cast<double>(value) * scale));
    std::memcpy(to, &element, sizeof(Element));
    to += sizeof(Element);
  }
}

template <typename Value>
double Dot(const std::vector<Value>& a, const std::vector<Value>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

template <typename Value>
void CombineInto(std::vector<Value>& a, const std::vector<Value>& b) {
  const double both = Dot(a, b), of_a = Dot(a, a), of_b = Dot(b, b);
  const double keep_a = of_a > 0 ? 1 - both / (2 * of_a) : 1;
  const double keep_b = of_b > 0 ? 1 - both / (2 * of_b) : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<Value>(keep_a * static_cast<double>(a[i]) + keep_b * static_cast<double>(b[i]));
  }
}

}  // namespace

AdasumWork::AdasumWork(DType dtype, int ranks, int64_t count) : dtype_(dtype), count_(count) {
  const auto elements = static_cast<size_t>(count);
  if (dtype == DType::kF64) {
    doubles_.assign(static_cast<size_t>(ranks), std::vector<double>(elements));
  } else {
    floats_.assign(static_cast<size_t>(ranks), std::vector<float>(elements));
  }
  AddPairs(0, ranks);
}

void AdasumWork::AddPairs(int first, int ranks) {
  if (ranks < 2) return;
  const int half = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks)) / 2);
  AddPairs(first, half);
  AddPairs(first + half, ranks - half);
  pairs_.emplace_back(first, first + half);
}

void AdasumWork::Take(int rank, int64_t first, const void* data, int64_t length, double scale) {
  const auto index = static_cast<size_t>(rank);
  if (dtype_ == DType::kF64) return Load<double>(data, length, scale, doubles_[index].data() + first);
  float* const into = floats_[index].data() + first;
  if (dtype_ == DType::kF32) return Load<float>(data, length, scale, into);
  if (dtype_ == DType::kF16) return Load<Float16>(data, length, scale, into);
  Load<BFloat16>(data, length, scale, into);
}

bool AdasumWork::Combine() {
  if (next_ == pairs_.size()) return false;
  const auto a = static_cast<size_t>(pairs_[next_].first), b = static_cast<size_t>(pairs_[next_].second);
  ++next_;
  if (dtype_ == DType::kF64) {
    CombineInto(doubles_[a], doubles_[b]);
  } else {
    CombineInto(floats_[a], floats_[b]);
  }
  return true;
}

void AdasumWork::Store(void* data, double scale) const {
  if (count_ == 0) return;
  if (dtype_ == DType::kF64) return Save<double>(doubles_[0], scale, data);
  if (dtype_ == DType::kF32) return Save<float>(floats_[0], scale, data);
  if (dtype_ == DType::kF16) return Save<Float16>(floats_[0], scale, data);
  Save<BFloat16>(floats_[0], scale, data);
}

}  // namespace gyre::internal
