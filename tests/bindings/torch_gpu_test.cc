// TorchOptimizer on GPUs, by fakes of LibTorch's CUDA (bindings/fake_torch_cuda.h) and of a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "bindings/fake_torch_cuda.h"
#include "gyre/torch/torch_optimizer.h"
#include "runtime/gpu_fixture.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::JoinJob;
using support::MatchesStatus;
using support::Rank;
using support::RunThreads;
using support::SetTorchGpu;
using support::SetTorchStream;

at::Device Cuda(int index) {
  return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
}

// Rank r's GPU is cuda:r, for LibTorch and for Gyre.
struct GpuRank {
  Rank rank;
  std::unique_ptr<Runtime> runtime;
  std::shared_ptr<device::FakeGpu> gpu = nullptr;
  void* stream = nullptr;  // LibTorch's current one

  at::Device device() const { return Cuda(rank.rank); }
  void MakeCurrent(void* which) const { SetTorchStream(rank.rank, which); }
};

template <typename Body>
void RunOnTorchGpus(int ranks, unsigned seed, bool default_stream, Body&& body) {
  RunThreads(ranks, [&](const Rank& rank) {
    GpuRank one{.rank = rank, .runtime = JoinJob(rank)};
    ASSERT_NE(one.runtime, nullptr);
    one.gpu = std::make_shared<device::FakeGpu>(seed * 10 + static_cast<unsigned>(rank.rank), rank.rank);
    internal::Gpus& gpus = internal::Gpus::Of(one.runtime->world());
    gpus.OpenBy([gpu = one.gpu](int ordinal) -> absl::StatusOr<std::shared_ptr<device::Gpu>> {
      if (ordinal != gpu->ordinal()) return absl::InvalidArgumentError("there is no such GPU");
      return gpu;
    });
    gpus.StageBy(support::kSmallSlots);
    if (!default_stream) one.stream = *one.gpu->CreateStream();
    SetTorchGpu(rank.rank, one.gpu.get());
    one.MakeCurrent(one.stream);
    body(one);
    SetTorchGpu(rank.rank, nullptr);
  });
}

constexpr int kSteps = 6;

// Weights that do not lie one after the other, a layer that only rank 0 reaches, a frozen parameter, a buffer beside
// the weights, and one that stays on the host.
struct Net : torch::nn::Module {
  torch::nn::Linear hidden{register_module("hidden", torch::nn::Linear(4, 6))};
  torch::nn::Linear extra{register_module("extra", torch::nn::Linear(torch::nn::LinearOptions(6, 6).bias(false)))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(6, 1))};
  torch::Tensor scale = register_parameter("scale", torch::zeros({1}), /*requires_grad=*/false);
  torch::Tensor offset = register_buffer("offset", torch::zeros({1}));
  torch::Tensor count = register_buffer("count", torch::zeros({1}, at::kLong));

  Net(int rank, at::Device device) {
    int64_t number = rank;
    for (torch::Tensor& parameter : parameters()) {
      const torch::Tensor values = torch::arange(parameter.numel(), at::kFloat) * 0.37 + static_cast<double>(++number);
      parameter.set_data(values.sin().mul(0.5).view_as(parameter));
    }
    hidden->weight.set_data(hidden->weight.detach().t().contiguous().t());
    to(device);
    offset.set_data(torch::full({1}, 0.25 * (rank + 1)).to(device));
    count.set_data(torch::full({1}, rank + 5, at::kLong));
  }

  torch::Tensor forward(const torch::Tensor& x, bool use_extra) {
    torch::Tensor y = torch::tanh(hidden(x));
    if (use_extra) y = y + extra(y);
    return last(y) * (scale + 2) + offset;
  }

  torch::Tensor LossOf(int rank, int step) {
    const torch::Tensor x = (torch::arange(12, at::kFloat) * 0.7 + (3.0 * step + rank)).sin().view({3, 4});
    const torch::Tensor error = forward(x.to(hidden->weight.device()), rank == 0) - 1;
    return (error * error).mean();
  }
};

// One module at a time: torch_test says why.
void PassBackward(Net& net, int rank, int step) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  net.LossOf(rank, step).backward();
}

std::vector<torch::Tensor> OnHost(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copies;
  for (const torch::Tensor& tensor : tensors) copies.push_back(tensor.detach().cpu().clone());
  return copies;
}

// The parameters and buffers after training, copied to the host.
std::vector<torch::Tensor> Train(Communicator& world, at::Device device, void* stream) {
  const int rank = world.rank();
  Net net(rank, device);
  torch::optim::Adam adam(net.parameters(), torch::optim::AdamOptions(0.01));
  for (int step = 0; step < 2 && rank == 0; ++step) {  // others have to get its state
    PassBackward(net, rank, step);
    adam.step();
    adam.zero_grad();
  }
  auto created = TorchOptimizer::Create(world, net, adam, {.bucket_bytes = 64}, stream);
  EXPECT_THAT(created, IsOk());
  if (!created.ok()) return {};
  for (int step = 0; step < kSteps; ++step) {
    if (step % 2 == 1) net.zero_grad(/*set_to_none=*/true);
    PassBackward(net, rank, step);
    const auto summary = (*created)->Step();
    EXPECT_THAT(summary, IsOk());
  }
  if (rank == 1) net.offset.fill_(7);
  EXPECT_THAT((*created)->BroadcastBuffers(), IsOk());
  std::vector<torch::Tensor> all = net.parameters();
  for (const torch::Tensor& buffer : net.buffers()) all.push_back(buffer);
  return OnHost(all);
}

TEST(TorchOptimizerOnFakeGpus, TrainsAsOnTheHost) {
  at::set_num_threads(1);
  std::array<std::vector<torch::Tensor>, 2> expected;
  RunThreads(2, [&](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    expected[static_cast<size_t>(rank.rank)] = Train(runtime->world(), at::kCPU, nullptr);
  });
  ASSERT_EQ(expected[0].size(), 8u);
  EXPECT_EQ(expected[1][7].item<int64_t>(), 5);  // rank 0's count
  for (size_t t = 0; t < 6; ++t) EXPECT_TRUE(torch::equal(expected[0][t], expected[1][t])) << t;
  const Net before(0, at::kCPU);
  EXPECT_TRUE(torch::equal(before.scale, expected[0][0]));
  EXPECT_FALSE(torch::allclose(before.hidden->weight, expected[0][1], 1e-2));
  for (unsigned seed = 0; seed < 6; ++seed) {
    std::array<std::vector<torch::Tensor>, 2> trained;
    RunOnTorchGpus(2, seed, /*default_stream=*/seed % 2 == 1, [&](const GpuRank& rank) {
      trained[static_cast<size_t>(rank.rank.rank)] = Train(rank.runtime->world(), rank.device(), rank.stream);
    });
    for (const std::vector<torch::Tensor>& of_rank : trained) {
      ASSERT_EQ(of_rank.size(), expected[0].size());
      for (size_t t = 0; t < of_rank.size(); ++t) {
        EXPECT_TRUE(torch::allclose(of_rank[t], expected[0][t], 1e-5, 1e-6)) << "seed " << seed << ", tensor " << t;
        EXPECT_TRUE(torch::equal(of_rank[t], trained[0][t])) << "seed " << seed << ", tensor " << t;
      }
    }
  }
}

// Of one parameter, on whatever stream the program computes: gradients come on the stream of Create.
TEST(TorchOptimizerOnFakeGpus, OtherStreamsAreFoundOut) {
  RunOnTorchGpus(1, 1, /*default_stream=*/false, [](const GpuRank& rank) {
    void* const other = *rank.gpu->CreateStream();
    torch::nn::Linear net(torch::nn::LinearOptions(3, 1).bias(false));
    net->to(rank.device());
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1));
    Communicator& world = rank.runtime->world();
    EXPECT_THAT(TorchOptimizer::Create(world, *net, sgd),
                MatchesStatus(StatusCode::kInvalidArgument,
                              "current stream on cuda:0 is not the default one; the one that was given is"));
    rank.MakeCurrent(nullptr);
    EXPECT_THAT(TorchOptimizer::Create(world, *net, sgd, {}, rank.stream),
                MatchesStatus(StatusCode::kInvalidArgument,
                              "current stream on cuda:0 is the default one; the one that was given is not"));

    rank.MakeCurrent(rank.stream);
    auto created = TorchOptimizer::Create(world, *net, sgd, {}, rank.stream);
    ASSERT_THAT(created, IsOk());
    const torch::Tensor x = torch::ones({3}).to(rank.device());
    rank.MakeCurrent(other);
    net->forward(x).sum().backward();
    EXPECT_THAT((*created)->Step(), MatchesStatus(StatusCode::kFailedPrecondition, "Step is called on another stream"));
    EXPECT_THAT((*created)->BroadcastBuffers(),
                MatchesStatus(StatusCode::kFailedPrecondition, "BroadcastBuffers is called on another stream"));
    rank.MakeCurrent(rank.stream);
    EXPECT_THAT((*created)->Step(), IsOk());
    created->reset();

    // A graph that is older than Create has tied the gradient to its own stream.
    rank.MakeCurrent(other);
    const torch::Tensor loss = net->forward(x).sum();
    rank.MakeCurrent(rank.stream);
    created = TorchOptimizer::Create(world, *net, sgd, {}, rank.stream);
    ASSERT_THAT(created, IsOk());
    loss.backward();
    EXPECT_THAT((*created)->Step(),
                MatchesStatus(StatusCode::kFailedPrecondition,
                              "parameter \"weight\": its gradient was accumulated on another stream"));
  });
}

TEST(TorchOptimizerOnFakeGpus, AllParametersMayBeFrozen) {
  RunOnTorchGpus(2, 1, /*default_stream=*/false, [](const GpuRank& rank) {
    torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
    net->weight.set_requires_grad(false).fill_(rank.rank.rank + 3);
    net->to(rank.device());
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1));
    Communicator& world = rank.runtime->world();
    ASSERT_THAT(TorchOptimizer::Create(world, *net, sgd, {}, rank.stream), IsOk());
    EXPECT_EQ(net->weight.cpu().item<float>(), 3);
  });
}

TEST(TorchOptimizerOnFakeGpus, BuffersAreWhereTheParametersAre) {
  RunOnTorchGpus(1, 1, /*default_stream=*/true, [](const GpuRank& rank) {
    torch::nn::Linear net(3, 1);
    net->to(rank.device());
    std::array<float, 2> memory = {};
    net->register_buffer(
        "elsewhere",
        at::for_blob(memory.data(), {2}).target_device(Cuda(1)).options(at::TensorOptions(Cuda(1))).make_tensor());
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1));
    EXPECT_THAT(
        TorchOptimizer::Create(rank.runtime->world(), *net, sgd),
        MatchesStatus(StatusCode::kInvalidArgument, "tensor \"elsewhere\" is on cuda:1, the parameters are on cuda:0"));
  });
}

}  // namespace
}  // namespace gyre
