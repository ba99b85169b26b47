// Lists of elements on GPUs, the emulated one and, where there is one, a real one: beside loops over them.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/gpu_codecs.h"
#include "device/gpu_under_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::device {
namespace {

using support::IsOk;

class GpuScatterTest : public GpuUnderTest {};

float ValueOf(size_t i) {
  return std::sin(static_cast<float>(i) * 1.7f) * (i % 3 == 0 ? 1e-4f : 1e3f);
}

std::vector<float> ValuesOf(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = ValueOf(i);
  return values;
}

// Also zeros of either sign.
TEST_P(GpuScatterTest, PutsElementsWhereTheyBelong) {
  for (const size_t count : {0, 1, 5, 1000, 200'003}) {
    SCOPED_TRACE(std::to_string(count) + " elements");
    std::vector<float> expected = ValuesOf(3 * count + 7), values;
    float* const to = Put(expected);
    std::vector<uint32_t> elements;
    for (size_t i = 0; i < count; ++i) {
      elements.push_back(static_cast<uint32_t>(3 * i + i % 3));
      values.push_back(i % 5 == 0 ? -0.0f : ValueOf(i + 11));
      expected[elements.back()] = values.back();
    }
    const kernels::ElementList list{Put(elements), Put(values), static_cast<int64_t>(count)};
    ASSERT_THAT(gpu_->codecs().PutElements(list, to, nullptr), IsOk());
    const std::vector<float> got = Get(to, expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i])) << i;
    }
  }
}

// Elements that come twice or more often: the sum's last bits tell in which order they were added.
TEST_P(GpuScatterTest, TakesBackInTheListsOrder) {
  for (const size_t count : {0, 1, 5, 1000, 200'003}) {
    for (const bool has_momentum : {false, true}) {
      SCOPED_TRACE(std::to_string(count) + (has_momentum ? " elements with u" : " elements"));
      std::vector<float> v = ValuesOf(2 * count + 3), u = ValuesOf(v.size());
      const std::vector<float> momenta = ValuesOf(count + 17), values = ValuesOf(count + 29);
      kernels::ReturnedList list{.list = {nullptr, Put(values), static_cast<int64_t>(count)},
                                 .entries = nullptr,
                                 .momenta = has_momentum ? Put(momenta) : nullptr,
                                 .momentum = has_momentum ? Put(u) : nullptr,
                                 .velocity = Put(v)};
      std::vector<uint32_t> elements, entries;
      for (uint32_t element = 0; elements.size() < count; element += 1 + element % 3) {
        for (uint32_t times = 0; times < 1 + element % 4 && elements.size() < count; ++times) {
          const auto entry = static_cast<uint32_t>(elements.size() + 17);
          elements.push_back(element);
          entries.push_back(times == 1 || element % 5 == 0 ? kernels::kNoEntry : entry);
          v[element] = v[element] + values[elements.size() - 1];
          if (has_momentum && entries.back() != kernels::kNoEntry) u[element] = momenta[entry];
        }
      }
      list.list.elements = Put(elements);
      if (has_momentum) list.entries = Put(entries);
      ASSERT_THAT(gpu_->codecs().TakeBack(list, nullptr), IsOk());
      EXPECT_EQ(Get(list.velocity, v.size()), v);
      if (has_momentum) {
        EXPECT_EQ(Get(list.momentum, u.size()), u);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuScatterTest, ::testing::Values("fake", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gyre::device
