// What tests of servers and workers over real connections, disks and time stand on: they are threads of one process.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ps/process/client.h"
#include "ps/pull_codec.h"
#include "ps/push_codec.h"
#include "serving.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::ps {

class ProcessTest : public testing::Test {
 protected:
  void StartServers(int servers) {
    for (int server = 0; server < servers; ++server) {
      servers_.push_back(std::make_unique<Serving>(server, folder_->path() / std::to_string(server)));
    }
    for (const auto& server : servers_) server->Start(Endpoints());
  }

  std::vector<Endpoint> Endpoints() const {
    std::vector<Endpoint> endpoints;
    for (const auto& server : servers_) endpoints.push_back(server->endpoint());
    return endpoints;
  }

  // As large as an odd number, smaller than a partition, and larger.
  static std::vector<Tensor> Tensors() { return {{"a", 7}, {"b", 0}, {"c", (kPartitionBytes / 4) + 3}, {"d", 1}}; }
  static size_t Elements() { return static_cast<size_t>(kPartitionBytes / 4) + 11; }

  std::unique_ptr<Client> Worker(int worker, std::vector<float>& model, uint64_t life = 1) {
    ClientOptions options;
    options.servers = Endpoints();
    options.job_id = "job";
    options.secret = kSecret;
    options.host = host_;
    options.worker.worker = worker;
    options.worker.epoch = 3;
    options.worker.incarnation = life;
    options.worker.retain = retain_;
    options.worker.has_first_values = worker == 0;
    options.worker.compression = compression_;
    options.setup = {.tensors = Tensors(),
                     .tables = tables_,
                     .workers = workers_,
                     .consistency = consistency_,
                     .rule = Momentum{.learning_rate = 0.5f},
                     .snapshot_interval = std::chrono::milliseconds(200),
                     .values_as = values_as_,
                     .replicas = replicas_};
    model.assign(Elements(), worker == 0 ? 2.0f : -1.0f);
    std::vector<std::span<float>> weights;
    size_t offset = 0;
    for (const Tensor& tensor : Tensors()) {
      weights.push_back(std::span(model).subspan(offset, static_cast<size_t>(tensor.count)));
      offset += static_cast<size_t>(tensor.count);
    }
    return *Client::Create(std::move(options), weights);
  }

  static float RateOf(int step) { return 0.1f / static_cast<float>(1 + step); }

  // The gradient depends on the model: values that are late or lost show.
  static absl::Status Step(Client& client, int worker, int step, const std::vector<float>& model,
                           std::vector<float>& gradient) {
    RETURN_IF_ERROR(client.Begin(Soon()).status());
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = model[i] * 0.5f + static_cast<float>((i + static_cast<size_t>(worker)) % 7);
    }
    return client.End(gradient, RateOf(step));
  }

  // All workers' steps, each on a thread; then the model that they all agree on.
  std::vector<float> Train(int steps, const std::function<void(int worker, int step)>& between) {
    std::vector<std::vector<float>> models(static_cast<size_t>(workers_));
    std::vector<std::thread> threads;
    for (int worker = 0; worker < workers_; ++worker) {
      threads.emplace_back([&, worker] {
        std::vector<float>& model = models[static_cast<size_t>(worker)];
        auto client = Worker(worker, model);
        std::vector<float> gradient(Elements());
        for (int step = 0; step < steps; ++step) {
          ASSERT_THAT(Step(*client, worker, step, model, gradient), support::IsOk()) << worker << " " << step;
          // What is acknowledged is at the next server, so that one may be lost now.
          if (replicas_ > 0) {
            ASSERT_THAT(client->Deliver(Soon()), support::IsOk());
          }
          between(worker, step);
        }
        ASSERT_THAT(client->Begin(Soon()), support::IsOk());
        ASSERT_THAT(client->Deliver(Soon()), support::IsOk());
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& model : models) EXPECT_EQ(model, models[0]);
    return models[0];
  }

  // What workers have after so many steps: of the servers' values what they are rounded to.
  std::vector<float> Reference(int steps) const {
    const Layout layout = *Layout::Create(Tensors(), 1);
    std::vector<PushCodec> codecs;
    for (int worker = 0; worker < workers_; ++worker) {
      codecs.push_back(*PushCodec::Create(compression_, layout, worker));
    }
    std::vector<float> model(Elements(), 2.0f), sum(Elements()), pulled = Rounded(model, layout);
    const auto count = static_cast<int64_t>(Elements());
    Optimizer optimizer = *Optimizer::Create(Momentum{.learning_rate = 0.5f}, std::span(&count, 1));
    for (int step = 0; step < steps; ++step) {
      sum.assign(sum.size(), 0.0f);
      for (int worker = 0; worker < workers_; ++worker) {
        const std::vector<float> pushed = Pushed(codecs[static_cast<size_t>(worker)], layout, worker, step, pulled);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += pushed[i];
      }
      for (float& mean : sum) mean *= 1.0f / static_cast<float>(workers_);
      EXPECT_THAT(optimizer.SetLearningRate(RateOf(step)), support::IsOk());
      EXPECT_THAT(optimizer.Step(0, model, sum), support::IsOk());
      pulled = Rounded(model, layout);
    }
    return pulled;
  }

  static std::span<float> PartOf(std::vector<float>& all, const Partition& partition) {
    return std::span(all).subspan(static_cast<size_t>(partition.offset), static_cast<size_t>(partition.count));
  }

  // A worker's gradient, as servers are to read it.
  static std::vector<float> Pushed(PushCodec& codec, const Layout& layout, int worker, int step,
                                   const std::vector<float>& model) {
    std::vector<float> gradient(model.size());
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = model[i] * 0.5f + static_cast<float>((i + static_cast<size_t>(worker)) % 7);
    }
    EXPECT_THAT(codec.BeginStep(static_cast<uint64_t>(step), gradient), support::IsOk());
    PushDecoder decoder;
    for (size_t i = 0; i < layout.partitions().size(); ++i) {
      const std::span<float> part = PartOf(gradient, layout.partitions()[i]);
      const PushCodec::Encoded encoded = codec.Encode(i, part);
      const Floats read = encoded.payload ? decoder.Decode(encoded.bytes, part.size()) : Floats::CopyOf(encoded.bytes);
      EXPECT_EQ(read.size(), part.size());
      std::ranges::copy(read.span(), part.begin());
    }
    return gradient;
  }

  std::vector<float> Rounded(std::vector<float> model, const Layout& layout) const {
    for (const Partition& partition : layout.partitions()) {
      if (values_as_ == compression::PayloadKind::kF32) continue;
      const std::span<float> part = PartOf(model, partition);
      ValueEncoder encoder;
      const ValueEncoder::Encoded& encoded = encoder.Encode(values_as_, part, 0, MakePrivate);
      EXPECT_TRUE(encoded.bytes == 0 || DecodeValues(encoded.words.bytes().first(encoded.bytes), part));
    }
    return model;
  }

  // Of servers' disks. In memory, since a busy machine's disk takes up to seconds to write one file for good.
  static std::unique_ptr<support::TemporaryDirectory> NewFolder() {
    return std::make_unique<support::TemporaryDirectory>(support::MemoryFolder());
  }

  std::unique_ptr<support::TemporaryDirectory> folder_ = NewFolder();
  int workers_ = 2;
  Consistency consistency_{};
  PushCompression compression_{};
  compression::PayloadKind values_as_ = compression::PayloadKind::kF32;
  size_t retain_ = 64;
  int replicas_ = 0;
  std::string host_;  // the workers'; the servers' is empty
  std::vector<Table> tables_;
  std::vector<std::unique_ptr<Serving>> servers_;
};

}  // namespace gyre::ps
