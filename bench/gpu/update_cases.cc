// Cases of the optimizers' rules: 256 MiB of weights, and as many of each array beside them.
#include <array>
#include <variant>

#include "absl/strings/str_cat.h"
#include "device/gpu_update.h"
#include "gpu/cases.h"
#include "gpu/check.h"
#include "gyre/status_macros.h"

namespace gyre::bench::gpu {

namespace {

using device::UpdateRule;
using device::kernels::Weights;

// Weights, gradient, and the accumulators that the rule has.
using RuleArrays = std::vector<std::vector<float>>;

int AccumulatorsOf(const UpdateRule& rule) {
  return std::visit([](const auto& of) { return of.kAccumulators; }, rule);
}

RuleArrays Made(const Window& window, int accumulators) {
  RuleArrays made;
  for (int i = 0; i < 2 + accumulators; ++i) made.push_back(Noise(window.count, static_cast<uint64_t>(i) + 1));
  for (size_t i = 2; i < made.size(); ++i) {
    for (float& value : made[i]) value *= value;  // sums of squares, in some rules
  }
  return made;
}

// Each weight by itself, on the host.
void Update(const UpdateRule& rule, RuleArrays& arrays) {
  float none = 0;
  for (size_t i = 0; i < arrays[0].size(); ++i) {
    const auto accumulator = [&](size_t which) -> float& { return which < arrays.size() ? arrays[which][i] : none; };
    std::visit([&](const auto& of) { of.Update(arrays[0][i], arrays[1][i], accumulator(2), accumulator(3)); }, rule);
  }
}

absl::Status CheckRule(Cases& cases, const UpdateRule& rule, const std::array<float*, 4>& there, int64_t count,
                       const Run& run) {
  const int accumulators = AccumulatorsOf(rule);
  for (const Window& window : WindowsOf(count)) {
    const RuleArrays made = Made(window, accumulators);
    for (size_t i = 0; i < made.size(); ++i) RETURN_IF_ERROR(cases.Put(there[i] + window.first, made[i]));
  }
  RETURN_IF_ERROR(run());
  for (const Window& window : WindowsOf(count)) {
    RuleArrays expected = Made(window, accumulators);
    Update(rule, expected);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSIGN_OR_RETURN(const auto got, cases.Get<float>(there[i] + window.first, window.count));
      RETURN_IF_ERROR(CheckSame(i == 0 ? "weights" : i == 1 ? "the gradient" : "an accumulator", got, expected[i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddUpdates(Cases& cases) {
  using device::kernels::AdagradRule, device::kernels::AdamRule, device::kernels::HeavyBallRule,
      device::kernels::NesterovRule, device::kernels::SgdRule;
  struct Named {
    const char* name;
    UpdateRule rule;
  };
  const Named rules[] = {
      {"SGD", SgdRule{.rate = 0.01f, .decay = 1e-4f}},
      {"momentum", HeavyBallRule{.rate = 0.01f, .decay = 1e-4f, .momentum = 0.9f}},
      {"Nesterov", NesterovRule{.rate = 0.01f, .decay = 1e-4f, .momentum = 0.9f}},
      {"Adam", AdamRule{.rate = 0.001f,
                        .epsilon = 1e-8f,
                        .decay = 1e-4f,
                        .beta1 = 0.9f,
                        .rest1 = 0.1f,
                        .beta2 = 0.999f,
                        .rest2 = 0.001f}},
      {"Adagrad", AdagradRule{.rate = 0.01f, .epsilon = 1e-10f, .decay = 1e-4f}},
  };
  std::array<float*, 4> there = {};
  for (size_t i = 0; i < there.size(); ++i) {
    ASSIGN_OR_RETURN(std::byte* const buffer, cases.Buffer(i));
    there[i] = reinterpret_cast<float*>(buffer);
  }
  const int64_t count = cases.buffer_bytes() / DTypeSize(DType::kF32);
  for (const auto& [name, rule] : rules) {
    const int accumulators = AccumulatorsOf(rule);
    const Weights weights{.weights = there[0],
                          .gradient = there[1],
                          .first = accumulators > 0 ? there[2] : nullptr,
                          .second = accumulators > 1 ? there[3] : nullptr,
                          .count = count};
    // The gradient is read, all else read and written.
    cases.Add({"updates", absl::StrCat("update, ", name), (3 + 2 * accumulators) * cases.buffer_bytes(),
               [=, &cases, rule = rule] {
                 return cases.gpu().Update(rule, {&weights, 1}, cases.stream());
               },
               [=, &cases, rule = rule](const Run& run) { return CheckRule(cases, rule, there, count, run); }});
  }
  return absl::OkStatus();
}

}  // namespace gyre::bench::gpu
