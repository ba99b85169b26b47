// torch_cnn: what a LibTorch program has to do to train on several ranks: give its module and optimizer to a
// TorchOptimizer, take its share of each batch, and call Step where it called optimizer.step().
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <vector>

#include "gyre/gyre.h"
#include "gyre/status_macros.h"
#include "gyre/torch/torch_optimizer.h"
#include "options.h"
#include "patterns.h"

namespace torch_cnn {

namespace {

constexpr int kReports = 10;  // lines of progress

struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d first{register_module("first", torch::nn::Conv2d(1, 8, 5))};
  torch::nn::Conv2d second{register_module("second", torch::nn::Conv2d(8, 16, 3))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(16 * 2 * 2, kClasses))};

  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = torch::max_pool2d(torch::relu(first(images)), 2);  // 16 -> 12 -> 6
    x = torch::max_pool2d(torch::relu(second(x)), 2);                    // 6 -> 4 -> 2
    return last(x.flatten(1));
  }
};
TORCH_MODULE(Net);

struct Batch {
  torch::Tensor images, labels;
};

Batch DrawBatch(const Options& options, uint64_t seed, int64_t first, int64_t count) {
  Batch batch{torch::empty({count, 1, kSide, kSide}), torch::empty({count}, torch::kLong)};
  auto* pixels = batch.images.data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) {
    batch.labels.data_ptr<int64_t>()[i] =
        Draw(seed, first + i, options.noise, {pixels + i * kSide * kSide, size_t{kSide} * kSide});
  }
  return batch;
}

// The loss of the first and the last batch, over all ranks.
struct Losses {
  float first = 0;
  float last = 0;
};

absl::StatusOr<Losses> Train(const Options& options, gyre::Communicator& world, Net& net) {
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(options.learning_rate));
  ASSIGN_OR_RETURN(auto distributed, gyre::TorchOptimizer::Create(world, *net, optimizer));
  const int64_t share = options.batch / world.size();
  Losses losses;
  for (int step = 1; step <= options.steps; ++step) {
    const Batch batch = DrawBatch(options, options.seed, (int64_t{step} * world.size() + world.rank()) * share, share);
    const torch::Tensor loss = torch::cross_entropy_loss(net->forward(batch.images), batch.labels);
    loss.backward();
    RETURN_IF_ERROR(distributed->Step().status());
    if (step != 1 && step != options.steps && step % std::max(1, options.steps / kReports) != 0) continue;
    std::array<float, 1> mean = {loss.item<float>()};
    RETURN_IF_ERROR(world.AllReduce(mean, {.op = gyre::ReduceOp::kAverage}));
    (step == 1 ? losses.first : losses.last) = mean[0];
    if (world.rank() == 0) std::printf("step %d: loss %.4f\n", step, static_cast<double>(mean[0]));
  }
  return losses;
}

// In percent, on images that training has not seen; each rank looks at some of them.
absl::StatusOr<double> Accuracy(const Options& options, gyre::Communicator& world, Net& net) {
  const torch::NoGradGuard no_grad;
  const int64_t first = int64_t{options.test_images} * world.rank() / world.size();
  const int64_t end = int64_t{options.test_images} * (world.rank() + 1) / world.size();
  std::array<int64_t, 1> right = {0};
  if (end > first) {
    const Batch batch = DrawBatch(options, ~options.seed, first, end - first);
    right[0] = net->forward(batch.images).argmax(1).eq(batch.labels).sum().item<int64_t>();
  }
  RETURN_IF_ERROR(world.AllReduce(right));
  return 100.0 * static_cast<double>(right[0]) / options.test_images;
}

// Of all weights, by rank.
absl::StatusOr<std::vector<int64_t>> Hashes(gyre::Communicator& world, Net& net) {
  std::array<int64_t, 1> hash = {0};
  for (const torch::Tensor& parameter : net->parameters()) {
    hash[0] = static_cast<int64_t>(
        XXH3_64bits_withSeed(parameter.data_ptr(), parameter.nbytes(), static_cast<XXH64_hash_t>(hash[0])));
  }
  std::vector<int64_t> all(static_cast<size_t>(world.size()));
  RETURN_IF_ERROR(world.AllGather(hash, all));
  return all;
}

absl::Status Run(const Options& options) {
  ASSIGN_OR_RETURN(auto runtime, gyre::Runtime::Create());
  gyre::Communicator& world = runtime->world();
  if (options.batch % world.size() != 0) {
    return absl::InvalidArgumentError("--batch must be a multiple of the number of ranks");
  }
  at::set_num_threads(options.threads);
  torch::manual_seed(options.seed + static_cast<uint64_t>(world.rank()));  // all ranks get rank 0's weights
  Net net;
  ASSIGN_OR_RETURN(const Losses losses, Train(options, world, net));
  ASSIGN_OR_RETURN(const double accuracy, Accuracy(options, world, net));
  ASSIGN_OR_RETURN(const std::vector<int64_t> hashes, Hashes(world, net));
  const bool identical = std::ranges::count(hashes, hashes[0]) == std::ssize(hashes);
  if (world.rank() == 0) {
    std::printf("torch_cnn: %d ranks, loss %.4f to %.4f, accuracy %.1f %%, weights %016llx, replicas %s\n",
                world.size(), static_cast<double>(losses.first), static_cast<double>(losses.last), accuracy,
                static_cast<unsigned long long>(hashes[0]), identical ? "identical" : "DIFFER");
  }
  return identical ? absl::OkStatus() : absl::InternalError("replicas differ");
}

}  // namespace

}  // namespace torch_cnn

int main(int argc, char** argv) {
  torch_cnn::Options options;
  if (const auto exit_code = torch_cnn::ParseOptions(argc, argv, options)) return *exit_code;
  absl::Status status;
  try {
    status = torch_cnn::Run(options);
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  if (!status.ok()) std::fprintf(stderr, "torch_cnn: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
