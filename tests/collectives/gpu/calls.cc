#include "collectives/gpu/calls.h"

#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "collectives/hierarchical/random_call.h"
#include "gtest/gtest.h"

namespace gyre {

namespace {

// Memory that is what it is to be only once a stream has come to it.
class Late {
 public:
  Late(device::Gpu& gpu, device::Gpu::Stream stream) : gpu_(gpu), stream_(stream) {}

  void Fill(void* data, int64_t bytes) {
    contents_.assign(static_cast<char*>(data), static_cast<char*>(data) + bytes);
    if (bytes > 0) std::memset(data, 0x5a, static_cast<size_t>(bytes));
    EXPECT_TRUE(gpu_.Copy(data, contents_.data(), bytes, stream_).ok());
  }

  void Take(void* data, int64_t bytes) {
    contents_.resize(static_cast<size_t>(bytes));
    EXPECT_TRUE(gpu_.Copy(contents_.data(), data, bytes, stream_).ok());
    EXPECT_TRUE(gpu_.Synchronize(stream_).ok());
    if (bytes > 0) std::memcpy(data, contents_.data(), static_cast<size_t>(bytes));
  }

 private:
  device::Gpu& gpu_;
  device::Gpu::Stream stream_;
  std::vector<char> contents_;
};

}  // namespace

std::string RunRandomCall(RanksOnGpus& ranks, const Backends& backends,
                          const std::function<bool(const internal::Call&)>& taken) {
  std::optional<RandomCall> drawn;
  do {
    drawn.emplace(ranks.random(), ranks.size());
  } while (!drawn->refusal().empty() || !taken(drawn->Of(0)));
  RandomCall& call = *drawn;
  RanksOnGpus::Operations operations(static_cast<size_t>(ranks.size()));
  std::vector<Late> inputs;
  for (int r = 0; r < ranks.size(); ++r) inputs.emplace_back(*ranks.gpu(r), ranks.stream(r));
  for (int r = 0; r < ranks.size(); ++r) {
    if (!call.TakesPart(r)) continue;
    internal::Call of_rank = call.Of(r);
    of_rank.timeout = std::chrono::seconds(10);
    const auto index = static_cast<size_t>(r);
    inputs[index].Fill(const_cast<void*>(of_rank.in.data), of_rank.in.bytes());
    operations[index] = backends[index]->Make(ranks.OnGpu(r, of_rank));
  }
  std::string wrong = ranks.Run(operations) ? "" : "a rank has not ended";
  for (int r = 0; r < ranks.size(); ++r) {
    const auto& operation = operations[static_cast<size_t>(r)];
    if (operation == nullptr) continue;
    const TensorView out = call.Of(r).out;
    Late(*ranks.gpu(r), ranks.stream(r)).Take(out.data, out.bytes());
    if (wrong.empty() && !operation->status().ok()) {
      wrong = absl::StrCat("rank ", r, ": ", operation->status().ToString());
    }
    if (wrong.empty()) wrong = call.Wrong(r);
  }
  return wrong;
}

Sum::Sum(RanksOnGpus& ranks, int64_t count) : ranks_(ranks) {
  for (int r = 0; r < ranks.size(); ++r) values_.emplace_back(static_cast<size_t>(count), static_cast<float>(r + 1));
}

Sum::~Sum() {
  ranks_.Settle();
}

internal::GpuCall Sum::Of(int rank, std::chrono::milliseconds timeout) {
  auto& values = values_[static_cast<size_t>(rank)];
  return ranks_.OnGpu(rank, {.kind = internal::CallKind::kAllReduce, .in = values, .out = values, .timeout = timeout});
}

RanksOnGpus::Operations Sum::Make(const Backends& backends, std::chrono::milliseconds timeout) {
  RanksOnGpus::Operations operations;
  for (int r = 0; r < ranks_.size(); ++r) {
    operations.push_back(backends[static_cast<size_t>(r)]->Make(Of(r, timeout)));
    operations.back()->StartClock(std::chrono::steady_clock::now());
  }
  return operations;
}

void Sum::ExpectRight() {
  const int size = ranks_.size();
  for (int r = 0; r < size; ++r) {
    EXPECT_TRUE(ranks_.gpu(r)->Synchronize(ranks_.stream(r)).ok());
    for (const float value : values_[static_cast<size_t>(r)]) {
      ASSERT_EQ(value, static_cast<float>(size * (size + 1)) / 2) << "of rank " << r;
    }
  }
}

}  // namespace gyre
