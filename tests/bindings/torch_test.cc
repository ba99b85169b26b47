#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gyre/torch/tensor_traits.h"
#include "gyre/torch/torch_optimizer.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::JoinJob;
using support::MatchesStatus;
using support::Rank;
using support::RunThreads;

constexpr int64_t kShare = 6;  // samples a rank and step

// A convolution whose weights do not lie one after the other, two layers, one that only rank 0 reaches, one that nobody
// does, and a parameter that is frozen, which each rank draws for itself.
struct Net : torch::nn::Module {
  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(2, 3, 3))};
  torch::nn::Linear hidden{register_module("hidden", torch::nn::Linear(3 * 4 * 4, 7))};
  torch::nn::Linear extra{register_module("extra", torch::nn::Linear(torch::nn::LinearOptions(7, 7).bias(false)))};
  torch::nn::Linear idle{register_module("idle", torch::nn::Linear(3, 3))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(7, 1))};
  torch::Tensor fixed = register_parameter("fixed", 1 + 0.1 * torch::rand({1}), /*requires_grad=*/false);

  Net() { conv->weight.set_data(conv->weight.detach().to(at::MemoryFormat::ChannelsLast)); }

  torch::Tensor forward(const torch::Tensor& x, bool use_extra) {
    torch::Tensor y = torch::tanh(hidden(torch::tanh(conv(x)).flatten(1)));
    if (use_extra) y = y + extra(y);
    return last(y) * fixed;
  }
};

// Ranks are threads here, and a BLAS may take one thread for granted (OpenBLAS built without threads mixes up the
// buffers of two that multiply at once, with wrong products): modules compute one at a time.
template <typename Work>
auto Alone(Work&& work) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return work();
}

// With weights drawn from `seed`.
std::unique_ptr<Net> NetOf(uint64_t seed) {
  return Alone([&] {
    torch::manual_seed(seed);
    return std::make_unique<Net>();
  });
}

// Samples of one step: the same for whoever asks.
struct Samples {
  torch::Tensor inputs, targets;
};

Samples SamplesOf(int step, int64_t first, int64_t count) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step) + 100);
  const torch::Tensor inputs = torch::randn({2 * kShare, 2, 6, 6}, generator);
  const torch::Tensor targets = inputs.mean({1, 2, 3}).unsqueeze(1) * 3;
  return {inputs.narrow(0, first, count), targets.narrow(0, first, count)};
}

torch::Tensor LossOf(Net& net, const Samples& samples, bool use_extra) {
  return torch::mse_loss(net.forward(samples.inputs, use_extra), samples.targets);
}

std::vector<torch::Tensor> Copies(const torch::nn::Module& net) {
  std::vector<torch::Tensor> copies;
  for (const torch::Tensor& parameter : net.parameters()) copies.push_back(parameter.detach().clone());
  return copies;
}

void SetParameters(const torch::nn::Module& net, const std::vector<torch::Tensor>& to) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < to.size(); ++i) net.parameters()[i].copy_(to[i]);
}

// Step after step, the averages of two ranks' gradients are the gradients of their samples together, so a module that
// sees them all goes the same way.
TEST(TorchOptimizer, TrainsLikeOneProcessOnTheJointBatch) {
  at::set_num_threads(1);
  constexpr int kSteps = 12;
  std::vector<torch::Tensor> initial;
  std::vector<std::vector<torch::Tensor>> final(2);
  std::vector<float> losses;
  RunThreads(2, [&](const Rank& rank) {
    const std::unique_ptr<Net> own = NetOf(static_cast<uint64_t>(rank.rank));
    Net& net = *own;
    if (rank == 0) initial = Copies(net);
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    const auto runtime = JoinJob(rank);
    auto created = TorchOptimizer::Create(runtime->world(), net, sgd, {.bucket_bytes = 512});
    ASSERT_THAT(created, IsOk());
    for (int step = 0; step < kSteps; ++step) {
      if (step % 2 == 1) net.zero_grad(/*set_to_none=*/true);  // also of parameters that this rank does not reach
      const float loss = Alone([&] {
        const torch::Tensor tensor = LossOf(net, SamplesOf(step, rank.rank * kShare, kShare), rank == 0);
        tensor.backward();
        return tensor.item<float>();
      });
      const auto summary = (*created)->Step();
      ASSERT_THAT(summary, IsOk());
      EXPECT_EQ(summary->control_messages, step == 1 ? 1 : 0);
      if (rank == 0) losses.push_back(loss);
    }
    final[static_cast<size_t>(rank.rank)] = Copies(net);
  });
  ASSERT_EQ(final[0].size(), final[1].size());
  for (size_t p = 0; p < final[0].size(); ++p) EXPECT_TRUE(torch::equal(final[0][p], final[1][p])) << p;
  ASSERT_EQ(losses.size(), size_t{kSteps});
  EXPECT_LT(losses.back(), 0.5f * losses.front());

  Net joint;
  SetParameters(joint, initial);
  torch::optim::SGD sgd(joint.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    const torch::Tensor one = LossOf(joint, SamplesOf(step, 0, kShare), true);
    const torch::Tensor other = LossOf(joint, SamplesOf(step, kShare, kShare), false);
    ((one + other) / 2).backward();
    sgd.step();
  }
  const std::vector<std::string> names = joint.named_parameters().keys();
  for (size_t p = 0; p < final[0].size(); ++p) {
    EXPECT_TRUE(torch::allclose(joint.parameters()[p], final[0][p], 1e-4, 1e-5)) << p;
    const std::string& name = names[p];
    EXPECT_EQ(torch::equal(initial[p], final[0][p]), name == "fixed" || name.starts_with("idle")) << name;
  }
}

// Micro-batches, and gradients that the program has put elsewhere.
TEST(TorchOptimizer, AddsUpMicroBatches) {
  RunThreads(2, [](const Rank& rank) {
    torch::nn::Linear net(torch::nn::LinearOptions(3, 1).bias(false));
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1));
    const auto runtime = JoinJob(rank);
    auto created = TorchOptimizer::Create(runtime->world(), *net, sgd, {.accumulate = 2});
    ASSERT_THAT(created, IsOk());
    const torch::Tensor before = net->weight.detach().clone();
    const torch::Tensor x = torch::tensor({1.0f, 2.0f, 3.0f}) * static_cast<float>(rank.rank + 1);
    for (const bool last : {false, true}) {
      if (last) net->weight.mutable_grad() = torch::Tensor();  // what a set_to_none would do
      Alone([&] { net->forward(x).sum().backward(); });
      const auto summary = (*created)->Step();
      ASSERT_THAT(summary, IsOk());
      EXPECT_EQ(summary->reduced, last);
    }
    EXPECT_TRUE(torch::allclose(net->weight, before - torch::tensor({1.5f, 3.0f, 4.5f})));
    EXPECT_EQ(net->weight.grad().data_ptr(), (*created)->reducer().gradient(0).data);
    EXPECT_EQ(net->weight.grad().abs().sum().item<float>(), 0);
    created->reset();
    EXPECT_FALSE(net->weight.grad().defined());
    Alone([&] { net->forward(x).sum().backward(); });  // nobody listens any more
    EXPECT_TRUE(net->weight.grad().defined());
  });
}

// Rank 0 has trained before; the other takes over its buffers and its Adam's state.
TEST(TorchOptimizer, StartsFromRankZero) {
  RunThreads(2, [](const Rank& rank) {
    torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
    net->register_buffer("spread", torch::arange(3).view({3, 1}).add(rank.rank).expand({3, 4}));
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(rank == 0 ? 0.01 : 0.5));
    for (int step = 0; step < 3 && rank == 0; ++step) {
      adam.zero_grad();
      net->forward(torch::randn({5, 4})).pow(2).sum().backward();
      adam.step();
    }
    const auto runtime = JoinJob(rank);
    auto created = TorchOptimizer::Create(runtime->world(), *net, adam);
    ASSERT_THAT(created, IsOk());
    std::vector<torch::Tensor> all = net->parameters();
    for (const torch::Tensor& buffer : net->buffers()) all.push_back(buffer);
    for (const torch::Tensor& parameter : net->parameters()) {
      const auto& state = adam.state().at(c10::guts::to_string(parameter.unsafeGetTensorImpl()));
      const auto& of_adam = static_cast<const torch::optim::AdamParamState&>(*state);
      EXPECT_EQ(of_adam.step(), 3);
      all.push_back(of_adam.exp_avg());
      all.push_back(of_adam.exp_avg_sq());
    }
    for (const torch::Tensor& tensor : all) {
      const torch::Tensor mine = tensor.detach().to(torch::kDouble).flatten().contiguous();
      std::vector<double> values(mine.data_ptr<double>(), mine.data_ptr<double>() + mine.numel()), zeros = values;
      ASSERT_THAT(runtime->world().Broadcast(zeros, 0), IsOk());
      EXPECT_EQ(values, zeros);
    }
    EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 3);
    if (rank == 1) net->named_buffers()["1.running_mean"].fill_(7);
    ASSERT_THAT((*created)->BroadcastBuffers(), IsOk());
    EXPECT_NE(net->named_buffers()["1.running_mean"][0].item<float>(), 7);
  });
}

// The other has trained before, rank 0 has not: a moment that only one rank has would set them apart.
TEST(TorchOptimizer, StateThatRankZeroHasNotIsForgotten) {
  RunThreads(2, [](const Rank& rank) {
    torch::nn::Linear net(4, 3);
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.01));
    if (rank == 1) {
      Alone([&] { net->forward(torch::ones({5, 4})).pow(2).sum().backward(); });
      adam.step();
      ASSERT_EQ(adam.state().size(), 2u);
    }
    const auto runtime = JoinJob(rank);
    ASSERT_THAT(TorchOptimizer::Create(runtime->world(), *net, adam), IsOk());
    EXPECT_TRUE(adam.state().empty());
  });
}

TEST(TorchOptimizer, AllParametersMayBeFrozen) {
  RunThreads(2, [](const Rank& rank) {
    torch::nn::Linear net(1, 1);
    net->weight.set_requires_grad(false).fill_(rank.rank + 3);
    net->bias.set_requires_grad(false);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1));
    const auto runtime = JoinJob(rank);
    auto created = TorchOptimizer::Create(runtime->world(), *net, sgd);
    ASSERT_THAT(created, IsOk());
    EXPECT_THAT((*created)->Step(), IsOk());
    EXPECT_EQ(net->weight.item<float>(), 3);
  });
}

// Nothing has been updated when Step finds them: once they are gone, it goes on.
TEST(TorchOptimizer, FindsParametersThatAreTrainedLater) {
  RunThreads(1, [](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    torch::nn::Linear net(3, 2), other(5, 4);
    net->bias.set_requires_grad(false);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1));
    auto created = TorchOptimizer::Create(runtime->world(), *net, sgd);
    ASSERT_THAT(created, IsOk());
    const std::vector<torch::Tensor> before = Copies(*net);
    const auto pass = [&] { net->forward(torch::ones({1, 3})).sum().backward(); };

    net->bias.set_requires_grad(true);
    pass();
    EXPECT_THAT((*created)->Step(),
                MatchesStatus(StatusCode::kFailedPrecondition, "parameter \"bias\", which is not reduced"));
    net->bias.set_requires_grad(false);  // its gradient is still there
    EXPECT_THAT((*created)->Step(), MatchesStatus(StatusCode::kFailedPrecondition, "parameter \"bias\""));
    for (size_t p = 0; p < before.size(); ++p) EXPECT_TRUE(torch::equal(net->parameters()[p], before[p])) << p;
    net->bias.mutable_grad() = torch::Tensor();
    EXPECT_THAT((*created)->Step(), IsOk());
    EXPECT_TRUE(torch::allclose(net->weight, before[0] - 1));
    EXPECT_TRUE(torch::equal(net->bias, before[1]));

    created->reset();
    net->bias.set_requires_grad(true);
    created = TorchOptimizer::Create(runtime->world(), *net, sgd);
    ASSERT_THAT(created, IsOk());
    pass();
    EXPECT_THAT((*created)->Step(), IsOk());
    EXPECT_TRUE(torch::allclose(net->bias, before[1] - 1));

    sgd.add_param_group(torch::optim::OptimizerParamGroup({other->weight}));
    EXPECT_THAT((*created)->Step(),
                MatchesStatus(StatusCode::kFailedPrecondition, "a parameter of shape [4, 5], which is not reduced"));
  });
}

TEST(TorchOptimizer, RefusesWhatCannotBeReduced) {
  RunThreads(1, [](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    torch::nn::Linear net(3, 2), other(5, 4);
    std::vector<torch::Tensor> both = net->parameters();
    both.push_back(other->weight);
    torch::optim::SGD sgd(both, torch::optim::SGDOptions(1));
    EXPECT_THAT(TorchOptimizer::Create(runtime->world(), *net, sgd),
                MatchesStatus(StatusCode::kInvalidArgument, "[4, 5]"));
    net->to(torch::kComplexFloat);
    torch::optim::SGD of_complex(net->parameters(), torch::optim::SGDOptions(1));
    EXPECT_THAT(TorchOptimizer::Create(runtime->world(), *net, of_complex),
                MatchesStatus(StatusCode::kInvalidArgument, "\"weight\" is ComplexFloat"));
    torch::optim::SGD of_undefined(other->parameters(), torch::optim::SGDOptions(1));
    of_undefined.param_groups()[0].params().emplace_back();
    EXPECT_THAT(TorchOptimizer::Create(runtime->world(), *other, of_undefined),
                MatchesStatus(StatusCode::kInvalidArgument, "the optimizer has an undefined parameter"));
    torch::optim::LBFGS lbfgs(other->parameters());
    EXPECT_THAT(TorchOptimizer::Create(runtime->world(), *other, lbfgs),
                MatchesStatus(StatusCode::kInvalidArgument, "LBFGS"));
    torch::optim::SGD of_frozen(other->parameters(), torch::optim::SGDOptions(1));
    other->bias.mutable_grad() = torch::ones({4});
    other->bias.set_requires_grad(false);
    EXPECT_THAT(TorchOptimizer::Create(runtime->world(), *other, of_frozen),
                MatchesStatus(StatusCode::kInvalidArgument, "parameter \"bias\", which is not reduced"));
  });
}

TEST(TorchOptimizer, ASecondBackwardPassIsAnError) {
  RunThreads(1, [](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    torch::nn::Linear net(3, 2);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1));
    auto created = TorchOptimizer::Create(runtime->world(), *net, sgd);
    ASSERT_THAT(created, IsOk());
    for (int pass = 0; pass < 2; ++pass) net->forward(torch::ones({1, 3})).sum().backward();
    EXPECT_THAT((*created)->Step(), MatchesStatus(StatusCode::kFailedPrecondition, "ready in this step already"));
  });
}

TEST(TorchOptimizer, RanksWithOtherModulesFindOut) {
  RunThreads(2, [](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    torch::nn::Linear net(3, rank.rank + 2);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1));
    EXPECT_THAT(TorchOptimizer::Create(runtime->world(), *net, sgd),
                MatchesStatus(StatusCode::kInvalidArgument, "\"bias\" is f32 [2] on rank 0 and f32 [3] on rank 1"));
  });
}

// --- Where tensors are ---

at::Device Cuda(int index) {
  return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
}

// A tensor there that nothing is computed with: LibTorch has no CUDA here.
torch::Tensor Placed(at::Device device, at::ScalarType type = at::kFloat) {
  static std::array<double, 4> memory;
  return at::for_blob(memory.data(), {2})
      .target_device(device)
      .options(at::TensorOptions(device).dtype(type))
      .make_tensor();
}

TEST(TensorTraits, SayWhatAndWhere) {
  const std::vector<std::pair<at::ScalarType, DType>> types = {
      {at::kByte, DType::kU8},    {at::kChar, DType::kI8},  {at::kShort, DType::kI16},     {at::kInt, DType::kI32},
      {at::kLong, DType::kI64},   {at::kHalf, DType::kF16}, {at::kBFloat16, DType::kBF16}, {at::kFloat, DType::kF32},
      {at::kDouble, DType::kF64}, {at::kBool, DType::kBool}};
  int stream = 0;
  for (const auto& [type, dtype] : types) {
    const auto on_host = TensorTraitsOf("x", torch::zeros({3}, type), &stream);
    ASSERT_THAT(on_host, IsOk());
    EXPECT_EQ(on_host->dtype, dtype);
    EXPECT_EQ(on_host->device, Device());
    const auto on_gpu = TensorTraitsOf("x", Placed(Cuda(3), type), &stream);
    ASSERT_THAT(on_gpu, IsOk());
    EXPECT_EQ(on_gpu->dtype, dtype);
    EXPECT_EQ(on_gpu->device, (Device{.gpu = 3, .stream = &stream}));
  }
  EXPECT_THAT(TensorTraitsOf("x", Placed(Cuda(0), at::kComplexFloat)),
              MatchesStatus(StatusCode::kInvalidArgument, "tensor \"x\" is ComplexFloat, Strided, on cuda:0"));
  EXPECT_THAT(TensorTraitsOf("x", torch::empty({2}, at::kMeta)),
              MatchesStatus(StatusCode::kInvalidArgument, "tensor \"x\" is Float, Strided, on meta"));
  EXPECT_THAT(TensorTraitsOf("x", torch::ones({2}).to_sparse()),
              MatchesStatus(StatusCode::kInvalidArgument, "tensor \"x\" is Float, Sparse, on cpu"));
}

struct Parts : torch::nn::Module {
  explicit Parts(const std::vector<torch::Tensor>& tensors) {
    for (size_t t = 0; t < tensors.size(); ++t)
      register_parameter(std::string(1, static_cast<char>('a' + t)), tensors[t]);
  }
};

TEST(TorchOptimizer, ParametersAreOnOneDevice) {
  RunThreads(1, [](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    const auto error_of = [&](const std::vector<torch::Tensor>& tensors) {
      const Parts parts(tensors);
      torch::optim::SGD sgd(parts.parameters(), torch::optim::SGDOptions(1));
      return TorchOptimizer::Create(runtime->world(), parts, sgd).status();
    };
    EXPECT_THAT(error_of({Placed(Cuda(0)), Placed(Cuda(1))}),
                MatchesStatus(StatusCode::kInvalidArgument, "gradient \"b\" is on GPU 1, those before it on GPU 0"));
    EXPECT_THAT(error_of({torch::ones({2}), Placed(Cuda(0))}),
                MatchesStatus(StatusCode::kInvalidArgument, "gradient \"b\" is on GPU 0, those before it on the host"));
    EXPECT_THAT(error_of({torch::empty({2}, at::kMeta)}),
                MatchesStatus(StatusCode::kInvalidArgument, "\"a\" is Float, Strided, on meta"));
    EXPECT_THAT(error_of({Placed(Cuda(0))}), MatchesStatus(StatusCode::kInternal, "LibTorch: the current stream: "));
  });
}

}  // namespace
}  // namespace gyre
