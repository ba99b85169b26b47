#include "pattern.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace gyre::bench {

namespace {

// Calls `use` with a zero of the dtype's C++ type.
template <typename Use>
auto WithType(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kU8: return use(uint8_t{});
    case DType::kI8: return use(int8_t{});
    case DType::kI16: return use(int16_t{});
    case DType::kU16: return use(uint16_t{});
    case DType::kI32: return use(int32_t{});
    case DType::kI64: return use(int64_t{});
    case DType::kF16: return use(Float16{});
    case DType::kBF16: return use(BFloat16{});
    case DType::kF32: return use(float{});
    case DType::kF64: return use(double{});
    case DType::kBool: break;
  }
  return use(bool{});
}

template <typename T>
T FromInt(int value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
double ToDouble(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return static_cast<float>(value);
  } else {
    return static_cast<double>(value);
  }
}

bool IsFloating(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

// Values that are only moved: as many as every dtype but bool holds, and a prime number of them, so that segments
// (whose sizes are mostly powers of two) begin differently.
constexpr int kMoved = 127;

// One element: a vector of these is an array even for bool.
template <typename T>
struct Element {
  T value;
};

// Bit by bit: of floating-point numbers too.
bool SameBits(const void* a, const void* b, size_t bytes) {
  return std::memcmp(a, b, bytes) == 0;
}

// The repeated elements as `T`, so that the loops over buffers only copy and compare.
template <typename T>
std::vector<Element<T>> Typed(const std::vector<int>& cycle) {
  std::vector<Element<T>> typed(cycle.size());
  for (size_t i = 0; i < cycle.size(); ++i) typed[i].value = FromInt<T>(cycle[i]);
  return typed;
}

}  // namespace

Pattern::Cycle Pattern::Input(int rank) const {
  Cycle cycle;
  if (!Reduces(task_.operation)) {
    for (int i = 0; i < kMoved; ++i) cycle.push_back((5 * rank + 3 * i + 1) % kMoved);
  } else if (task_.op == ReduceOp::kProduct) {
    // One rank's element is 2 or 3, all others' are 1: no dtype overflows, however many the ranks.
    for (int i = 0; i < 2 * task_.ranks; ++i) cycle.push_back(i % task_.ranks == rank ? 2 + i / task_.ranks : 1);
  } else {
    for (int i = 0; i < 3; ++i) cycle.push_back((i + rank) % 3);
  }
  return cycle;
}

Pattern::Cycle Pattern::Reduced() const {
  Cycle reduced = Input(0);
  for (int rank = 1; rank < task_.ranks; ++rank) {
    const Cycle input = Input(rank);
    for (size_t i = 0; i < reduced.size(); ++i) {
      switch (task_.op) {
        case ReduceOp::kSum:
        case ReduceOp::kAverage: reduced[i] += input[i]; break;
        case ReduceOp::kMin: reduced[i] = std::min(reduced[i], input[i]); break;
        case ReduceOp::kMax: reduced[i] = std::max(reduced[i], input[i]); break;
        case ReduceOp::kProduct: reduced[i] *= input[i]; break;
        case ReduceOp::kAdasum: break;  // Sweep refuses it
      }
    }
  }
  return reduced;
}

void Pattern::Fill(std::byte* send) const {
  const Cycle cycle = Input(task_.rank);
  WithType(task_.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto values = Typed<T>(cycle);
    for (int64_t i = 0, at = 0; i < task_.send_count(); ++i) {
      std::memcpy(send + i * DTypeSize(task_.dtype), &values[static_cast<size_t>(at)], sizeof(T));
      if (++at == std::ssize(cycle)) at = 0;
    }
  });
}

int64_t Pattern::CountWrong(const std::byte* result, int64_t count, const Cycle& expected, int64_t phase) const {
  const bool average = Reduces(task_.operation) && task_.op == ReduceOp::kAverage;
  const bool rounds = average && IsFloating(task_.dtype);
  return WithType(task_.dtype, [&](auto zero) {
    using T = decltype(zero);
    Cycle whole = expected;
    if (average && !rounds) std::ranges::for_each(whole, [&](int& value) { value /= task_.ranks; });
    const auto values = Typed<T>(whole);
    int64_t wrong = 0;
    for (int64_t i = 0, at = phase % std::ssize(expected); i < count; ++i) {
      T got;
      std::memcpy(&got, result + i * DTypeSize(task_.dtype), sizeof(T));
      if (rounds) {
        const double exact = static_cast<double>(expected[static_cast<size_t>(at)]) / task_.ranks;
        wrong += std::abs(ToDouble(got) - exact) <= exact / 100 ? 0 : 1;
      } else {
        wrong += SameBits(&got, &values[static_cast<size_t>(at)], sizeof(T)) ? 0 : 1;
      }
      if (++at == std::ssize(expected)) at = 0;
    }
    return wrong;
  });
}

int64_t Pattern::CountWrong(const std::byte* result) const {
  switch (task_.operation) {
    case Operation::kAllReduce: return CountWrong(result, task_.count, Reduced(), 0);
    case Operation::kReduceScatter: return CountWrong(result, task_.count, Reduced(), task_.rank * task_.count);
    case Operation::kBroadcast: return CountWrong(result, task_.count, Input(task_.root), 0);
    case Operation::kCopy: return CountWrong(result, task_.count, Input(task_.rank), 0);
    case Operation::kAllGather:
    case Operation::kAllToAll: break;
  }
  int64_t wrong = 0;
  for (int from = 0; from < task_.ranks; ++from) {
    const int64_t phase = task_.operation == Operation::kAllToAll ? task_.rank * task_.count : 0;
    const std::byte* const segment = result + from * task_.count * DTypeSize(task_.dtype);
    wrong += CountWrong(segment, task_.count, Input(from), phase);
  }
  return wrong;
}

}  // namespace gyre::bench
