#include "conformance/collectives_fixture.h"

#include <cctype>
#include <cstring>
#include <numeric>
#include <string>

#include "support/fill.h"
#include "support/status_matchers.h"

namespace gyre {

using support::HostSizes;
using support::IsOk;
using support::Mode;

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

double Tensor::at(int64_t index) const {
  return support::ReadElement(view_, index);
}

void Conformance::Run(const std::function<void(Runtime&, Communicator&)>& body) {
  const HostSizes& hosts = std::get<1>(GetParam());
  const int size = std::accumulate(hosts.begin(), hosts.end(), 0);
  support::RunRanks(std::get<0>(GetParam()), size, [&](const support::Rank& rank) {
    auto runtime = support::JoinJob(rank, support::JobOptions(rank, hosts));
    ASSERT_NE(runtime, nullptr);
    ASSERT_EQ(runtime->world().node_count(), static_cast<int>(hosts.size()));
    body(*runtime, runtime->world());
    EXPECT_THAT(runtime->world().Barrier(), IsOk()) << "the group did not stay in step";
  });
}

namespace {

std::string Name(const testing::TestParamInfo<std::tuple<Mode, HostSizes>>& info) {
  std::string name = support::ModeName(std::get<0>(info.param));
  for (const int size : std::get<1>(info.param))
    name += (std::isdigit(name.back()) ? "and" : "") + std::to_string(size);
  return name;
}

std::vector<HostSizes> OneHost(const std::vector<int>& sizes) {
  std::vector<HostSizes> hosts;
  for (const int size : sizes) hosts.push_back({size});
  return hosts;
}

INSTANTIATE_TEST_SUITE_P(All, Conformance,
                         testing::Combine(testing::Values(Mode::kThreads),
                                          testing::ValuesIn(OneHost({1, 2, 3, 4, 5, 8}))),
                         Name);
INSTANTIATE_TEST_SUITE_P(Spread, Conformance,
                         testing::Combine(testing::Values(Mode::kProcesses), testing::ValuesIn(OneHost({1, 2, 4, 7}))),
                         Name);
INSTANTIATE_TEST_SUITE_P(Hosts, Conformance,
                         testing::Combine(testing::Values(Mode::kThreads),
                                          testing::Values(HostSizes{1, 1}, HostSizes{2, 2}, HostSizes{3, 1},
                                                          HostSizes{1, 1, 1, 1}, HostSizes{1, 2, 2})),
                         Name);
INSTANTIATE_TEST_SUITE_P(SpreadHosts, Conformance,
                         testing::Combine(testing::Values(Mode::kProcesses),
                                          testing::Values(HostSizes{2, 2}, HostSizes{3, 1})),
                         Name);

}  // namespace

}  // namespace gyre
