// A rank of embedding_test: trains a small model with an embedding, through servers, or by allreduce where there are
// none. A sample is some words, frequent ones more often; its target is what those words are worth together. The model
// learns a vector for each word (a table at the servers, rows of its own by allreduce) and a direction that they are
// read along.
//
//   embedding_rank STEPS PATH      at half of the steps rank 0 says "halfway", and goes on when there is a file PATH
//
// In the end rank 0 prints the mean loss of its first and its last ten steps, and all weights' sum of squares.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "gyre/gyre.h"
#include "gyre/status_macros.h"

namespace {

constexpr int64_t kWords = 300, kColumns = 8;
constexpr int kSamples = 16, kWordsOfSample = 3;
constexpr float kFirst = 0.1f;  // of all embeddings

struct Sample {
  std::vector<int64_t> words;
  float target = 0;
};

// Of a rank's step: whoever makes it, and again, gets the same.
std::vector<Sample> Draw(int rank, int64_t step) {
  std::mt19937 random(static_cast<uint32_t>(1000 * step + rank));
  std::vector<Sample> samples(kSamples);
  for (Sample& sample : samples) {
    for (int i = 0; i < kWordsOfSample; ++i) {
      const auto frequent = static_cast<int64_t>(random() % 20);
      sample.words.push_back(random() % 4 == 0 ? static_cast<int64_t>(random() % kWords) : frequent);
      sample.target += static_cast<float>(sample.words.back() % 7) - 3;
    }
  }
  return samples;
}

class Model {
 public:
  static absl::StatusOr<std::unique_ptr<Model>> Create(gyre::Communicator& world) {
    std::unique_ptr<Model> model(new Model);
    ASSIGN_OR_RETURN(model->optimizer_,
                     gyre::DistributedOptimizer::Create(world, gyre::Adagrad{.learning_rate = 0.2f}));
    gyre::DistributedOptimizer& optimizer = *model->optimizer_;
    for (size_t i = 0; i < model->direction_.size(); ++i) model->direction_[i] = i % 2 == 0 ? 0.5f : -0.25f;
    ASSIGN_OR_RETURN(model->direction_index_, optimizer.Register("direction", model->direction_));
    if (gyre::ParameterServerClient* const servers = optimizer.servers()) {
      ASSIGN_OR_RETURN(model->table_, servers->RegisterTable("words", kWords, kColumns, gyre::ConstantRows{kFirst}));
    } else {
      model->embeddings_.assign(kWords * kColumns, kFirst);
      ASSIGN_OR_RETURN(model->table_, optimizer.RegisterRows("words", model->embeddings_, kWords));
    }
    RETURN_IF_ERROR(optimizer.Start());
    return model;
  }

  int64_t step() const { return optimizer_->step(); }

  // Returns the mean loss.
  absl::StatusOr<float> Step(const std::vector<Sample>& samples) {
    std::vector<int64_t> words;
    for (const Sample& sample : samples) words.insert(words.end(), sample.words.begin(), sample.words.end());
    std::vector<float> values(words.size() * kColumns), gradients(values.size());
    RETURN_IF_ERROR(Read(words, values));
    std::vector<float> direction(kColumns);
    float loss = 0;
    for (size_t s = 0; s < samples.size(); ++s) {
      const size_t begin = s * kWordsOfSample * kColumns, end = begin + kWordsOfSample * kColumns;
      float error = -samples[s].target;
      for (size_t i = begin; i < end; ++i) error += values[i] * direction_[i % kColumns];
      loss += error * error / kSamples;
      for (size_t i = begin; i < end; ++i) {
        gradients[i] = 2 * error * direction_[i % kColumns] / kSamples;
        direction[i % kColumns] += 2 * error * values[i] / kSamples;
      }
    }
    if (gyre::ParameterServerClient* const servers = optimizer_->servers()) {
      RETURN_IF_ERROR(servers->PushRows(table_, words, gradients));
    } else {
      const gyre::ConstTensorView view{gradients.data(), std::ssize(gradients), gyre::DType::kF32};
      RETURN_IF_ERROR(optimizer_->ReadyRows(table_, words, view));
    }
    RETURN_IF_ERROR(optimizer_->Ready(direction_index_, direction));
    RETURN_IF_ERROR(optimizer_->Step().status());
    return loss;
  }

  absl::StatusOr<double> SumOfSquares() {
    std::vector<int64_t> words(kWords);
    for (int64_t i = 0; i < kWords; ++i) words[static_cast<size_t>(i)] = i;
    std::vector<float> values(kWords * kColumns);
    RETURN_IF_ERROR(Read(words, values));
    double sum = 0;
    for (const float value : values) sum += double{value} * value;
    for (const float value : direction_) sum += double{value} * value;
    return sum;
  }

 private:
  Model() = default;

  absl::Status Read(std::span<const int64_t> words, std::span<float> values) {
    if (gyre::ParameterServerClient* const servers = optimizer_->servers()) {
      return servers->PullRows(table_, words, values);
    }
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = embeddings_[static_cast<size_t>(words[i / kColumns]) * kColumns + i % kColumns];
    }
    return absl::OkStatus();
  }

  std::vector<float> direction_ = std::vector<float>(kColumns);
  std::vector<float> embeddings_;  // by allreduce
  std::unique_ptr<gyre::DistributedOptimizer> optimizer_;
  int direction_index_ = 0, table_ = 0;
};

void WaitFor(const char* path) {
  std::puts("halfway");
  std::fflush(stdout);
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // tells nobody
}

absl::Status Train(int64_t steps, const char* path) {
  ASSIGN_OR_RETURN(auto runtime, gyre::Runtime::Create());
  gyre::Communicator& world = runtime->world();
  ASSIGN_OR_RETURN(auto model, Model::Create(world));
  constexpr int64_t kMean = 10;
  double first = 0, last = 0;
  while (model->step() < steps) {  // a rank that was started again goes on where the others are
    const int64_t step = model->step();
    if (step == steps / 2 && world.rank() == 0) WaitFor(path);
    ASSIGN_OR_RETURN(const float loss, model->Step(Draw(world.rank(), step)));
    if (step < kMean) first += loss / kMean;
    if (step >= steps - kMean) last += loss / kMean;
  }
  ASSIGN_OR_RETURN(const double sum, model->SumOfSquares());
  if (world.rank() == 0) std::printf("losses %.9g %.9g weights %.17g\n", first, last, sum);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = Train(std::atoll(argv[1]), argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 3;
}
