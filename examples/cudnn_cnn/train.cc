#include "train.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu.h"
#include "gyre/gyre.h"
#include "gyre/status_macros.h"
#include "images.h"
#include "network.h"
#include "nlohmann/json.hpp"
#include "shapes.h"

namespace cudnn_cnn {

namespace {

// Of the batches of all ranks.
struct Score {
  double loss = 0;      // mean
  double accuracy = 0;  // percent
};

// One rank's training.
class Trainer {
 public:
  Trainer(const Options& options, gyre::Communicator& world) : options_(options), world_(world) {}

  absl::Status Prepare();
  absl::Status Run();

 private:
  using Clock = std::chrono::steady_clock;

  // What of a step is still needed while the GPU does it. The host may be as many steps ahead as there are of these.
  struct InFlight {
    OwnedPinned indices{};  // on the host
    OwnedMemory memory{};   // on the GPU
    OwnedEvent computed{}, reduced{}, done{};
    bool used = false;
  };

  absl::Status LoadImages();
  absl::Status MakeReducer();
  absl::Status Step(int step);
  absl::Status Finish(InFlight& step);
  absl::Status Drain();
  absl::StatusOr<Score> ScoreOfLast();
  absl::Status Report(int step);
  absl::Status End();
  absl::StatusOr<std::vector<int64_t>> Hashes();
  int share() const { return options_.batch / world_.size(); }

  const Options options_;
  gyre::Communicator& world_;
  Gpu gpu_;
  Images images_;  // without pixels and labels, which lie on the GPU
  OwnedMemory pixels_, labels_;
  NetworkShape shape_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<gyre::GradientReducer> reducer_;
  std::unique_ptr<Sampler> sampler_;
  std::array<InFlight, 4> in_flight_;

  Score first_, last_;
  // Since the first report, or the start if there was none: time, steps, and how much of the GPU's time went by from
  // the end of the backward pass until the results of the last gradients were there.
  Clock::time_point since_;
  int timed_steps_ = 0;
  double exposed_ = 0;
};

absl::StatusOr<OwnedEvent> MakeEvent() {
  cudaEvent_t event = nullptr;
  RETURN_IF_ERROR(Check(cudaEventCreate(&event), "making an event"));
  return OwnedEvent(event);
}

absl::Status Trainer::LoadImages() {
  if (options_.image_file.empty()) {
    images_ = GenerateImages(options_.seed, options_.images, options_.side);
  } else {
    ASSIGN_OR_RETURN(images_, ReadIdx(options_.image_file, options_.label_file));
  }
  if (images_.count < options_.batch) {
    return absl::InvalidArgumentError(absl::StrCat("--batch ", options_.batch, " of ", images_.count, " images"));
  }
  const size_t labels = images_.labels.size() * sizeof(int32_t);
  ASSIGN_OR_RETURN(pixels_, AllocateBytes(static_cast<int64_t>(images_.pixels.size())));
  ASSIGN_OR_RETURN(labels_, AllocateBytes(static_cast<int64_t>(labels)));
  RETURN_IF_ERROR(Check(cudaMemcpy(pixels_.get(), images_.pixels.data(), images_.pixels.size(), cudaMemcpyDefault),
                        "copying images"));
  RETURN_IF_ERROR(Check(cudaMemcpy(labels_.get(), images_.labels.data(), labels, cudaMemcpyDefault), "copying labels"));
  RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "copying images"));
  images_.pixels = {};
  images_.labels = {};
  return absl::OkStatus();
}

// Gradients are written where ranks exchange them: no copies.
absl::Status Trainer::MakeReducer() {
  ASSIGN_OR_RETURN(reducer_, gyre::GradientReducer::Create(world_));
  const gyre::Device device{.gpu = gpu_.ordinal, .stream = gpu_.stream.get()};
  for (const Parameter& each : network_->parameters()) {
    const gyre::DType dtype = each.narrow ? gyre::DType::kBF16 : gyre::DType::kF32;
    RETURN_IF_ERROR(reducer_->Register(each.name, each.shape, dtype, device).status());
  }
  RETURN_IF_ERROR(reducer_->Start());
  std::vector<void*> gradients;
  for (int i = 0; i < reducer_->size(); ++i) gradients.push_back(reducer_->gradient(i).data);
  return network_->UseGradients(gradients);
}

absl::Status Trainer::Prepare() {
  if (options_.batch % world_.size() != 0) {
    return absl::InvalidArgumentError("--batch must be a multiple of the number of ranks");
  }
  ASSIGN_OR_RETURN(gpu_, OpenGpu(world_.local_rank()));
  RETURN_IF_ERROR(LoadImages());
  sampler_ = std::make_unique<Sampler>(options_.seed, images_.count, options_.batch);
  shape_ = MakeNetworkShape(images_.height, images_.width, images_.classes, options_.width, options_.blocks);
  ASSIGN_OR_RETURN(network_, Network::Make(gpu_, shape_, share(), options_));
  RETURN_IF_ERROR(MakeReducer());
  const auto bytes = static_cast<size_t>(share()) * sizeof(int32_t);
  for (InFlight& each : in_flight_) {
    void* pinned = nullptr;
    RETURN_IF_ERROR(Check(cudaMallocHost(&pinned, bytes), "pinned memory"));
    each.indices.reset(pinned);
    ASSIGN_OR_RETURN(each.memory, AllocateBytes(static_cast<int64_t>(bytes)));
    ASSIGN_OR_RETURN(each.computed, MakeEvent());
    ASSIGN_OR_RETURN(each.reduced, MakeEvent());
    ASSIGN_OR_RETURN(each.done, MakeEvent());
  }
  if (world_.rank() != 0) return absl::OkStatus();
  std::printf("cudnn_cnn: %d ranks, rank 0 on %s; %d images of %d x %d x %d, %d classes; %lld parameters, %s\n",
              world_.size(), gpu_.name.c_str(), images_.count, images_.height, images_.width, images_.channels,
              images_.classes, static_cast<long long>(shape_.parameters()),
              options_.precision == Precision::kBf16 ? "bf16" : "f32");
  std::fflush(stdout);
  return absl::OkStatus();
}

// Blocks until the GPU has done the step that was put there last, and takes its time.
absl::Status Trainer::Finish(InFlight& step) {
  if (!step.used) return absl::OkStatus();
  step.used = false;
  RETURN_IF_ERROR(Check(cudaEventSynchronize(step.done.get()), "waiting for a step"));
  float milliseconds = 0;
  RETURN_IF_ERROR(
      Check(cudaEventElapsedTime(&milliseconds, step.computed.get(), step.reduced.get()), "reading a time"));
  exposed_ += static_cast<double>(milliseconds) * 1e-3;
  return absl::OkStatus();
}

absl::Status Trainer::Drain() {
  for (InFlight& each : in_flight_) RETURN_IF_ERROR(Finish(each));
  return absl::OkStatus();
}

absl::Status Trainer::Step(int step) {
  cudaStream_t const stream = gpu_.stream.get();
  InFlight& current = in_flight_[static_cast<size_t>(step) % in_flight_.size()];
  RETURN_IF_ERROR(Finish(current));
  const std::vector<int32_t> drawn = sampler_->Draw(step, world_.rank(), world_.size());
  const size_t bytes = drawn.size() * sizeof(int32_t);
  std::memcpy(current.indices.get(), drawn.data(), bytes);
  RETURN_IF_ERROR(
      Check(cudaMemcpyAsync(current.memory.get(), current.indices.get(), bytes, cudaMemcpyHostToDevice, stream),
            "copying indices"));
  const Data data{.pixels = static_cast<const uint8_t*>(pixels_.get()),
                  .labels = static_cast<const int32_t*>(labels_.get()),
                  .channels = images_.channels};
  RETURN_IF_ERROR(network_->Forward(data, static_cast<const int32_t*>(current.memory.get())));
  std::vector<int> late;
  RETURN_IF_ERROR(network_->Backward([&](int parameter) {
    if (options_.overlap) return reducer_->Ready(parameter);
    late.push_back(parameter);
    return absl::OkStatus();
  }));
  RETURN_IF_ERROR(Check(cudaEventRecord(current.computed.get(), stream), "recording an event"));
  for (const int parameter : late) RETURN_IF_ERROR(reducer_->Ready(parameter));
  RETURN_IF_ERROR(reducer_->Wait().status());
  RETURN_IF_ERROR(Check(cudaEventRecord(current.reduced.get(), stream), "recording an event"));
  RETURN_IF_ERROR(network_->Update(LearningRate(options_.learning_rate, step, options_.steps), options_.momentum));
  RETURN_IF_ERROR(Check(cudaEventRecord(current.done.get(), stream), "recording an event"));
  current.used = true;
  ++timed_steps_;
  return absl::OkStatus();
}

absl::StatusOr<Score> Trainer::ScoreOfLast() {
  const auto count = static_cast<size_t>(share());
  std::vector<float> losses(count);
  std::vector<int32_t> right(count);
  RETURN_IF_ERROR(Check(cudaStreamSynchronize(gpu_.stream.get()), "waiting for the GPU"));
  RETURN_IF_ERROR(
      Check(cudaMemcpy(losses.data(), network_->losses(), count * sizeof(float), cudaMemcpyDefault), "copying losses"));
  RETURN_IF_ERROR(
      Check(cudaMemcpy(right.data(), network_->right(), count * sizeof(int32_t), cudaMemcpyDefault), "copying scores"));
  std::array<double, 2> sums = {0, 0};
  for (const float loss : losses) sums[0] += static_cast<double>(loss);
  for (const int32_t each : right) sums[1] += each;
  RETURN_IF_ERROR(world_.AllReduce(sums));
  return Score{.loss = sums[0] / options_.batch, .accuracy = 100 * sums[1] / options_.batch};
}

absl::Status Trainer::Report(int step) {
  RETURN_IF_ERROR(Drain());
  ASSIGN_OR_RETURN(last_, ScoreOfLast());
  if (step == 1) first_ = last_;
  const double seconds = std::chrono::duration<double>(Clock::now() - since_).count();
  if (world_.rank() == 0) {
    std::printf("step %d/%d: loss %.4f, %.1f %% right, %.0f images/s\n", step, options_.steps, last_.loss,
                last_.accuracy, timed_steps_ * static_cast<double>(options_.batch) / seconds);
    std::fflush(stdout);
  }
  if (step != 1 && step != options_.report_every) return absl::OkStatus();
  if (step == options_.steps) return absl::OkStatus();
  since_ = Clock::now();  // what comes first of all is slower
  timed_steps_ = 0;
  exposed_ = 0;
  return absl::OkStatus();
}

absl::Status Trainer::Run() {
  RETURN_IF_ERROR(world_.Barrier());
  since_ = Clock::now();
  for (int step = 0; step < options_.steps; ++step) {
    RETURN_IF_ERROR(Step(step));
    const int done = step + 1;
    if (done == 1 || done == options_.steps || done % options_.report_every == 0) RETURN_IF_ERROR(Report(done));
  }
  return End();
}

// Of all weights, by rank.
absl::StatusOr<std::vector<int64_t>> Trainer::Hashes() {
  std::array<int64_t, 1> hash = {0};
  for (const Parameter& each : network_->parameters()) {
    std::vector<float> weights(static_cast<size_t>(each.count));
    const size_t bytes = weights.size() * sizeof(float);
    RETURN_IF_ERROR(Check(cudaMemcpy(weights.data(), each.weight, bytes, cudaMemcpyDefault), "copying weights"));
    hash[0] = static_cast<int64_t>(XXH3_64bits_withSeed(weights.data(), bytes, static_cast<XXH64_hash_t>(hash[0])));
  }
  std::vector<int64_t> all(static_cast<size_t>(world_.size()));
  RETURN_IF_ERROR(world_.AllGather(hash, all));
  return all;
}

absl::Status Trainer::End() {
  const double seconds = std::chrono::duration<double>(Clock::now() - since_).count();
  const double images = timed_steps_ * static_cast<double>(options_.batch) / seconds;
  std::array<double, 1> exposed = {exposed_ / seconds};
  RETURN_IF_ERROR(world_.AllReduce(exposed, {.op = gyre::ReduceOp::kMax}));
  ASSIGN_OR_RETURN(const std::vector<int64_t> hashes, Hashes());
  const bool identical = std::ranges::count(hashes, hashes[0]) == std::ssize(hashes);
  if (world_.rank() == 0) {
    const nlohmann::ordered_json line = {{"ranks", world_.size()},
                                         {"gpu", gpu_.name},
                                         {"precision", options_.precision == Precision::kBf16 ? "bf16" : "f32"},
                                         {"steps", options_.steps},
                                         {"batch", options_.batch},
                                         {"parameters", shape_.parameters()},
                                         {"overlap", options_.overlap},
                                         {"first_loss", first_.loss},
                                         {"last_loss", last_.loss},
                                         {"last_accuracy", last_.accuracy},
                                         {"images_per_s", images},
                                         {"tflops", images * shape_.flops() * 1e-12},
                                         {"exposed_communication", exposed[0]},
                                         {"weights", absl::StrCat(absl::Hex(hashes[0], absl::kZeroPad16))},
                                         {"replicas_identical", identical}};
    if (options_.json) std::printf("%s\n", line.dump().c_str());
    std::printf(
        "cudnn_cnn: loss %.4f to %.4f, %.1f %% right; %.0f images/s, %.2f TFLOP/s; %.1f %% of the time waits for "
        "communication; weights %016llx, replicas %s\n",
        first_.loss, last_.loss, last_.accuracy, images, images * shape_.flops() * 1e-12, 100 * exposed[0],
        static_cast<unsigned long long>(hashes[0]), identical ? "identical" : "DIFFER");
  }
  return identical ? absl::OkStatus() : absl::InternalError("replicas differ");
}

}  // namespace

absl::Status Train(const Options& options) {
  ASSIGN_OR_RETURN(auto runtime, gyre::Runtime::Create());
  Trainer trainer(options, runtime->world());
  RETURN_IF_ERROR(trainer.Prepare());
  return trainer.Run();
}

}  // namespace cudnn_cnn
