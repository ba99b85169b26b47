// Servers and workers over real connections, disks and time, as threads of one process.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "net/socket.h"
#include "ps/process/client.h"
#include "ps/process/server_process.h"
#include "ps/process/setup.h"
#include "ps/pull_codec.h"
#include "ps/push_codec.h"
#include "support/mutator.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::ps {
namespace {

using std::chrono::milliseconds;
using support::IsOk;
using support::MatchesStatus;

constexpr char kSecret[] = "0123456789abcdef0123456789abcdef";

TimePoint Soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(20);
}

// A server as a thread. Its listener is kept beside it, as gyrerun does: so a new life is found where the old one was.
class Serving {
 public:
  Serving(int server, std::string folder) : server_(server), folder_(std::move(folder)) {
    listener_ = *ListenTcp({"127.0.0.1", 0}, 16, Soon());
    std::filesystem::create_directory(folder_);
  }
  ~Serving() { Kill(); }

  Endpoint endpoint() const { return *LocalEndpoint(listener_.get()); }

  // `servers`: where all are, if they have to know.
  void Start(std::vector<Endpoint> servers = {}) {
    process_ = *ServerProcess::Create({.server = server_,
                                       .incarnation = ++lives_,
                                       .job_id = "job",
                                       .epoch = 3,
                                       .secret = kSecret,
                                       .folder = folder_,
                                       .servers = std::move(servers),
                                       .listener = UniqueFd(fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0))});
    thread_ = std::thread([process = process_.get()] { EXPECT_THAT(process->Run(), IsOk()); });
  }

  // Nobody is told, as if it were killed.
  void Kill() {
    if (process_ == nullptr) return;
    process_->Stop();
    thread_.join();
    process_.reset();
  }

  void LoseDisk() const {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }

 private:
  const int server_;
  const std::string folder_;
  UniqueFd listener_;
  uint64_t lives_ = 0;
  std::unique_ptr<ServerProcess> process_;
  std::thread thread_;
};

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
    ClientOptions options{.servers = {},
                          .job_id = "job",
                          .secret = kSecret,
                          .host = host_,
                          .worker = {.worker = worker,
                                     .epoch = 3,
                                     .incarnation = life,
                                     .retain = retain_,
                                     .has_first_values = worker == 0},
                          .setup = {.tensors = Tensors(),
                                    .tables = tables_,
                                    .workers = workers_,
                                    .consistency = consistency_,
                                    .rule = Momentum{.learning_rate = 0.5f},
                                    .snapshot_interval = milliseconds(200),
                                    .values_as = values_as_,
                                    .replicas = replicas_}};
    options.worker.compression = compression_;
    options.servers = Endpoints();
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
          ASSERT_THAT(Step(*client, worker, step, model, gradient), IsOk()) << worker << " " << step;
          // What is acknowledged is at the next server, so that one may be lost now.
          if (replicas_ > 0) {
            ASSERT_THAT(client->Deliver(Soon()), IsOk());
          }
          between(worker, step);
        }
        ASSERT_THAT(client->Begin(Soon()), IsOk());
        ASSERT_THAT(client->Deliver(Soon()), IsOk());
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
      EXPECT_THAT(optimizer.SetLearningRate(RateOf(step)), IsOk());
      EXPECT_THAT(optimizer.Step(0, model, sum), IsOk());
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
    EXPECT_THAT(codec.BeginStep(static_cast<uint64_t>(step), gradient), IsOk());
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

  std::unique_ptr<support::TemporaryDirectory> folder_ = std::make_unique<support::TemporaryDirectory>();
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

// How often memory for floats is mapped in this process: once by who made it, and once by each that reads it.
int64_t Mappings() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("gyre-parameter-server") != std::string::npos;
  return count;
}

TEST_F(ProcessTest, SynchronousTrainingIsTheOptimizersToTheBit) {
  StartServers(3);
  std::atomic<int64_t> mappings = 0;
  const auto count = [&](int, int step) { mappings = step == 4 ? Mappings() : mappings.load(); };
  EXPECT_EQ(Train(6, count), Reference(6));
  EXPECT_EQ(mappings, 3 * (2 * 2 + 1 + 2));  // by server: those of two workers twice, and its own thrice
}

TEST_F(ProcessTest, WithoutSharedMemoryItIsTheSame) {
  host_ = "another host";
  StartServers(3);
  std::atomic<int64_t> mappings = 0;
  const auto count = [&](int, int step) { mappings = step == 4 ? Mappings() : mappings.load(); };
  EXPECT_EQ(Train(6, count), Reference(6));
  EXPECT_EQ(mappings, 3 * (2 + 1));
}

TEST_F(ProcessTest, AServerThatDiesAndComesBackCostsNoStep) {
  StartServers(2);
  const auto strike = [&](int worker, int step) {
    if (worker != 1 || (step != 2 && step != 5)) return;
    Serving& server = *servers_[step == 2 ? 0 : 1];
    server.Kill();
    server.Start(Endpoints());
  };
  EXPECT_EQ(Train(8, strike), Reference(8));
}

// Some rows in each step, one of them twice, by the step and the worker.
std::vector<int64_t> RowsOf(int worker, int step) {
  return {step, 40 + worker, 2 * step + worker, step, 20 + step * worker};
}

// Of what was pulled: rows that are late or lost show.
std::vector<float> GradientsOf(const std::vector<float>& values, int worker) {
  std::vector<float> gradients;
  for (size_t i = 0; i < values.size(); ++i) {
    gradients.push_back(values[i] * 0.5f + static_cast<float>((i + static_cast<size_t>(worker)) % 7));
  }
  return gradients;
}

std::vector<float> ReferenceRows(const Table& table, int workers, int steps, float (*rate)(int)) {
  const auto columns = static_cast<size_t>(table.columns);
  std::vector<float> weights(static_cast<size_t>(table.rows) * columns);
  const auto row = [&](int64_t id) { return std::span(weights).subspan(static_cast<size_t>(id) * columns, columns); };
  for (int64_t id = 0; id < table.rows; ++id) MakeRow(table, KeyOf(table), id, row(id));
  const auto count = static_cast<int64_t>(weights.size());
  Optimizer optimizer = *Optimizer::Create(Momentum{.learning_rate = 0.5f}, std::span(&count, 1));
  for (int step = 0; step < steps; ++step) {
    std::map<int64_t, std::vector<float>> sums;
    for (int worker = 0; worker < workers; ++worker) {
      const std::vector<int64_t> ids = RowsOf(worker, step);
      std::vector<float> values;
      for (const int64_t id : ids) std::ranges::copy(row(id), std::back_inserter(values));
      const std::vector<float> gradients = GradientsOf(values, worker);
      std::map<int64_t, std::vector<float>> own;
      for (size_t i = 0; i < gradients.size(); ++i) {
        own.try_emplace(ids[i / columns], std::vector<float>(columns, -0.0f)).first->second[i % columns] +=
            gradients[i];
      }
      for (const auto& [id, sum] : own) {
        std::vector<float>& total = sums.try_emplace(id, std::vector<float>(columns, -0.0f)).first->second;
        for (size_t c = 0; c < columns; ++c) total[c] += sum[c];
      }
    }
    std::vector<int64_t> ids;
    std::vector<float> means;
    for (const auto& [id, sum] : sums) {
      ids.push_back(id);
      for (const float value : sum) means.push_back(value * (1.0f / static_cast<float>(workers)));
    }
    EXPECT_THAT(optimizer.SetLearningRate(rate(step)), IsOk());
    EXPECT_THAT(optimizer.StepRows(0, weights, table.rows, {ids, {means.data(), std::ssize(means), DType::kF32}}),
                IsOk());
  }
  return weights;
}

// With replicas they are lost with their disks, while workers keep nothing that was acknowledged.
class TableTest : public ProcessTest, public testing::WithParamInterface<int> {
 protected:
  TableTest() {
    replicas_ = GetParam();
    retain_ = replicas_ > 0 ? 0 : 64;
  }

  void Strike(Client& client, Serving& server) {
    if (replicas_ > 0) {
      ASSERT_THAT(client.Deliver(Soon()), IsOk());
    }
    server.Kill();
    if (replicas_ > 0) server.LoseDisk();
    server.Start(Endpoints());
  }
};

INSTANTIATE_TEST_SUITE_P(Replicas, TableTest, testing::Values(0, 1));

TEST_P(TableTest, IsTrainedToTheBitThoughServersDie) {
  constexpr int kSteps = 8;
  const Table table{.name = "rows", .rows = 64, .columns = 3, .first = UniformRows{0.5f, 3}};
  tables_ = {{.name = "other", .rows = 5}, table};
  StartServers(2);
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> ends(2);
  for (int worker = 0; worker < workers_; ++worker) {
    threads.emplace_back([&, worker] {
      std::vector<float> model, gradient(Elements());
      auto client = Worker(worker, model);
      for (int step = 0; step < kSteps; ++step) {
        ASSERT_THAT(client->Begin(Soon()).status(), IsOk());
        if (worker == 1 && (step == 2 || step == 5)) {  // in the middle of a step, whose rows are then asked for
          Strike(*client, *servers_[step == 2 ? 0 : 1]);
        }
        const std::vector<int64_t> ids = RowsOf(worker, step);
        std::vector<float> values(ids.size() * 3);
        ASSERT_THAT(client->PullRows(1, ids, values, Soon()), IsOk());
        std::vector<Floats> rows(2);  // of the other table: none
        std::ranges::move(*PackRows(table, 2, ids, GradientsOf(values, worker)), std::back_inserter(rows));
        ASSERT_THAT(client->End(gradient, RateOf(step), std::move(rows)), IsOk());
      }
      ASSERT_THAT(client->Begin(Soon()).status(), IsOk());
      std::vector<int64_t> all(64);
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
      std::vector<float>& end = ends[static_cast<size_t>(worker)];
      end.resize(64 * 3);
      ASSERT_THAT(client->PullRows(1, all, end, Soon()), IsOk());
      EXPECT_THAT(client->PullRows(2, all, end, Soon()),
                  MatchesStatus(absl::StatusCode::kInvalidArgument, "no table 2"));
      ASSERT_THAT(client->Deliver(Soon()), IsOk());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<float> expected = ReferenceRows(table, workers_, kSteps, RateOf);
  EXPECT_EQ(ends[0], expected);
  EXPECT_EQ(ends[1], expected);
}

TEST_F(ProcessTest, RowsThatDoNotComeSayWhoHasThem) {
  tables_ = {{.name = "rows", .rows = 64, .columns = 3}};
  StartServers(1);
  workers_ = 1;
  std::vector<float> model, values(3, -7.0f);
  auto client = Worker(0, model);
  const int64_t id = 5;
  EXPECT_THAT(client->PullRows(0, std::span(&id, 1), values, Soon()),
              MatchesStatus(absl::StatusCode::kFailedPrecondition, "no step has begun"));
  ASSERT_THAT(client->Begin(Soon()).status(), IsOk());
  servers_[0]->Kill();
  EXPECT_THAT(client->PullRows(0, std::span(&id, 1), values, std::chrono::steady_clock::now() + milliseconds(300)),
              MatchesStatus(absl::StatusCode::kDeadlineExceeded, "server 0 has not sent its rows"));
  EXPECT_EQ(values, std::vector<float>(3, -7.0f));
  servers_[0]->Start();
  EXPECT_THAT(client->PullRows(0, std::span(&id, 1), values, Soon()), IsOk());
  EXPECT_EQ(values, std::vector<float>(3, 0.0f));
}

// What is pushed again to a server that came back is what was pushed first: encoded anew, it would have what the codec
// had kept twice.
TEST_F(ProcessTest, CompressedTrainingIsThatOfWhatWasDecodedToTheBit) {
  using compression::PayloadKind;
  const std::pair<Compression, PayloadKind> kinds[] = {{Int4{}, PayloadKind::kF16},
                                                       {Dgc{.sparsity = 0.9}, PayloadKind::kInt8}};
  for (const auto& [codec, values] : kinds) {
    compression_ = {.compression = codec, .workers = workers_, .dense = {false, false, false, true}};
    values_as_ = values;
    for (const char* const host : {"", "another host"}) {
      host_ = host;
      servers_.clear();
      folder_ = std::make_unique<support::TemporaryDirectory>();
      StartServers(2);
      const auto strike = [&](int worker, int step) {
        if (worker != 1 || (step != 2 && step != 4)) return;
        Serving& server = *servers_[step == 2 ? 0 : 1];
        server.Kill();
        server.Start();
      };
      EXPECT_EQ(Train(6, strike), Reference(6)) << CompressionName(codec) << " " << host;
    }
  }
}

// Workers keep nothing that was acknowledged, and the snapshots are gone: the next server has all of it.
TEST_F(ProcessTest, AServerThatIsLostWithItsDiskCostsNoStepWithReplicas) {
  replicas_ = 1;
  retain_ = 0;
  for (const int servers : {2, 3}) {
    if (servers == 3) {  // what is forwarded was a payload
      compression_ = {.compression = Dgc{.sparsity = 0.9}, .workers = workers_, .dense = {}};
      values_as_ = compression::PayloadKind::kF16;
    }
    servers_.clear();
    folder_ = std::make_unique<support::TemporaryDirectory>();
    StartServers(servers);
    const auto strike = [&](int worker, int step) {
      if (worker != 1 || step % 3 != 2) return;
      Serving& server = *servers_[static_cast<size_t>(step / 3 % servers)];
      server.Kill();
      server.LoseDisk();
      server.Start(Endpoints());
    };
    EXPECT_EQ(Train(14, strike), Reference(14)) << servers;
  }
}

TEST_F(ProcessTest, AReplicaTakesAnotherServer) {
  StartServers(1);
  replicas_ = workers_ = 1;
  std::vector<float> model;
  auto worker = Worker(0, model);
  EXPECT_THAT(worker->Begin(Soon()), MatchesStatus(absl::StatusCode::kFailedPrecondition, "takes another server"));
}

TEST_F(ProcessTest, AWorkerThatStartsAnewGoesOnWhereTheOthersAre) {
  for (const Consistency& each : {Consistency{}, {Mode::kStale, 2}, {Mode::kAsynchronous}}) {
    servers_.clear();
    folder_ = std::make_unique<support::TemporaryDirectory>();
    consistency_ = each;
    StartServers(2);
    std::vector<float> gradient(Elements());
    std::thread other([&] {
      std::vector<float> model, own(Elements());
      auto client = Worker(1, model);
      for (int step = 0; step < 8; ++step) ASSERT_THAT(Step(*client, 1, step, model, own), IsOk());
      ASSERT_THAT(client->Deliver(Soon()), IsOk());
    });
    std::vector<float> model;
    auto client = Worker(0, model);
    for (int step = 0; step < 3; ++step) ASSERT_THAT(Step(*client, 0, step, model, gradient), IsOk());
    client.reset();
    client = Worker(0, model, 2);
    for (int step = 3; step < 8; ++step) ASSERT_THAT(Step(*client, 0, step, model, gradient), IsOk());
    other.join();
  }
}

TEST_F(ProcessTest, WorkersThatDifferAreRefused) {
  StartServers(1);
  workers_ = 1;
  std::vector<float> model, another;
  auto first = Worker(0, model);
  ASSERT_THAT(first->Begin(Soon()), IsOk());
  workers_ = 2;
  auto other = Worker(1, another);
  EXPECT_THAT(other->Begin(Soon()), MatchesStatus(absl::StatusCode::kFailedPrecondition, "not those of the others"));
}

TEST_F(ProcessTest, TimeThatIsOverSaysWhatWasWaitedFor) {
  StartServers(1);
  std::vector<float> model;
  auto alone = Worker(0, model);
  EXPECT_THAT(alone->Begin(std::chrono::steady_clock::now() + milliseconds(300)),
              MatchesStatus(absl::StatusCode::kDeadlineExceeded, "server 0"));
}

TEST_F(ProcessTest, TimeThatIsOverNamesWhoHasNotTakenThePushes) {
  StartServers(2);
  workers_ = 1;
  std::vector<float> model, gradient(Elements());
  auto worker = Worker(0, model);
  ASSERT_THAT(Step(*worker, 0, 0, model, gradient), IsOk());
  ASSERT_THAT(worker->Deliver(Soon()), IsOk());
  ASSERT_THAT(worker->Begin(Soon()), IsOk());
  servers_[1]->Kill();
  ASSERT_THAT(worker->End(gradient, 0.1f), IsOk());
  EXPECT_THAT(worker->Deliver(std::chrono::steady_clock::now() + milliseconds(300)),
              MatchesStatus(absl::StatusCode::kDeadlineExceeded, "server 1 has not taken all pushes"));
}

TEST_F(ProcessTest, SnapshotsThatFailAreTold) {
  StartServers(1);
  workers_ = 1;
  std::vector<float> model, gradient(Elements());
  auto worker = Worker(0, model);
  ASSERT_THAT(Step(*worker, 0, 0, model, gradient), IsOk());
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]), usual(fcntl(2, F_DUPFD_CLOEXEC, 3));
  dup2(writer.get(), 2);
  folder_.reset();
  char said[4096];
  ssize_t count = 0;
  const TimePoint end = Soon();
  // Each step changes what a snapshot would have, until one is due.
  for (int step = 1; count <= 0 && std::chrono::steady_clock::now() < end; ++step) {
    EXPECT_THAT(Step(*worker, 0, step, model, gradient), IsOk());
    count = read(reader.get(), said, sizeof said);
  }
  dup2(usual.get(), 2);
  ASSERT_GT(count, 0);
  EXPECT_EQ(std::string(said, static_cast<size_t>(count)).find("gyre server 0: snapshot: "), 0u);
}

TEST(FloatArenaTest, IsReadByOthersWhereItLies) {
  FloatArena arena = *FloatArena::Create(4096);
  Floats made = arena.Make(3);
  std::ranges::copy(std::vector<float>{1, 2, 3}, made.writable().begin());
  const auto theirs = *MappedArena::Map(arena.offer());
  const uint64_t offset = *arena.OffsetOf(made.bytes());
  const float* const read = theirs->At(offset, 3);
  ASSERT_NE(read, nullptr);
  EXPECT_NE(read, made.span().data());
  EXPECT_EQ(std::vector<float>(read, read + 3), (std::vector<float>{1, 2, 3}));
  // Not what is not there.
  EXPECT_EQ(arena.OffsetOf(Floats(3).bytes()), std::nullopt);
  EXPECT_NE(theirs->At(8192 - 4, 1), nullptr);
  for (const auto& [at, count] : std::vector<std::pair<uint64_t, size_t>>{
           {8192, 1}, {8192 - 4, 2}, {4096, 1025}, {4097, 1}, {0, 1}, {UINT64_MAX - 3, 1}, {4096, SIZE_MAX}}) {
    EXPECT_EQ(theirs->At(at, count), nullptr) << at << " " << count;
  }
}

TEST(FloatArenaTest, MemoryIsUsedAgainAndThenThereIsTheProcessesOwn) {
  FloatArena arena = *FloatArena::Create(4096);
  Floats first = arena.Make(1000);
  const float* const data = first.span().data();
  EXPECT_EQ(arena.OffsetOf(arena.Make(1000).bytes()), std::nullopt);
  Floats copy = first;
  first = {};
  EXPECT_EQ(arena.OffsetOf(arena.Make(1000).bytes()), std::nullopt);  // somebody holds it
  copy = {};
  EXPECT_EQ(arena.Make(1000).span().data(), data);
  EXPECT_TRUE(arena.OffsetOf(arena.Make(999).bytes()));  // rounded up it is as long
}

TEST(FloatArenaTest, WhatIsNotThereIsRefused) {
  const std::string offer = FloatArena::Create(4096)->offer();  // gone
  EXPECT_FALSE(MappedArena::Map(offer).ok());
  const FloatArena arena = *FloatArena::Create(4096);
  for (size_t cut = 0; cut < offer.size(); ++cut) {
    EXPECT_THAT(MappedArena::Map(arena.offer().substr(0, cut)).status(),
                MatchesStatus(absl::StatusCode::kInvalidArgument, "malformed"));
  }
  for (size_t at = 0; at < offer.size(); ++at) {  // another process, descriptor or token, or more bytes than there are
    std::string changed = arena.offer();
    changed[at] = static_cast<char>(changed[at] ^ 0x40);
    EXPECT_FALSE(MappedArena::Map(changed).ok()) << at;
  }
}

// One end of a connection is a link, the other says what it must not: that ends it, and reads nothing.
TEST(LinkTest, WhatWasNotOfferedOrLentEndsIt) {
  const FloatArena arena = *FloatArena::Create(4096);
  const auto frame = [](uint16_t type, uint32_t floats, std::string_view payload) {
    return EncodeFrame({.type = type, .epoch = 3, .sequence = floats}, payload);
  };
  const auto lent = [&](uint64_t offset, uint32_t floats) {
    return frame(5, floats, Written([&](WireWriter& writer) {
                   writer.U64(offset);
                   writer.U64(0);
                   writer.Raw(Encode({.kind = Kind::kPush, .epoch = 3, .incarnation = 1}));
                 }));
  };
  const std::string offer = frame(3, 0, Written([&](WireWriter& writer) {
                                    writer.Text("here");
                                    writer.Raw(arena.offer());
                                  }));
  const std::string number = Written([](WireWriter& writer) { writer.U64(0); });
  const std::vector<std::string> wrong = {frame(4, 0, ""),       frame(6, 0, number),     frame(6, 0, "x"),
                                          frame(7, 0, ""),       lent(4096, 1),           frame(3, 0, "x"),
                                          offer + offer,         offer + lent(0, 1),      offer + lent(8192 - 4, 2),
                                          offer + lent(4096, 0), offer + frame(5, 1, "x")};
  for (size_t i = 0; i <= wrong.size(); ++i) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd other(ends[1]);
    auto loop = *EventLoop::Create();
    int messages = 0;
    auto link = *Link::Create(*loop, UniqueFd(ends[0]), 3, "here",
                              {.on_setup = [](std::string_view) {}, .on_message = [&](const Message&) { ++messages; }});
    const std::string bytes = i < wrong.size() ? wrong[i] : offer + lent(4096, 1);
    ASSERT_EQ(write(other.get(), bytes.data(), bytes.size()), std::ssize(bytes));
    ASSERT_THAT(loop->RunOnce(Soon()), IsOk());
    EXPECT_EQ(link->status().ok(), i == wrong.size()) << i << " " << link->status();
    EXPECT_EQ(messages, i == wrong.size() ? 1 : 0) << i;
  }
}

TEST(SetupTest, ComesBackAsItWas) {
  for (const Rule& rule : {Rule{}, Rule{Sgd{0.1f, 0.2f}}, Rule{Momentum{0.1f, 0.2f, true, 0.3f}},
                           Rule{Adam{1, 2, 3, 4, 5}}, Rule{Adagrad{1, 2, 3, 4}}}) {
    const ps::Setup setup{.tensors = {{"weights", 5}, {"b", 0}},
                          .tables = {{.name = "words", .rows = 9, .columns = 3, .first = UniformRows{0.5f, 7}},
                                     {.name = "x", .rows = 1, .first = ConstantRows{2}}},
                          .servers = 3,
                          .workers = 9,
                          .consistency = {Mode::kStale, 4},
                          .rule = rule,
                          .snapshot_interval = milliseconds(17),
                          .replicas = 1};
    const std::string bytes = Encode(setup);
    const absl::StatusOr<ps::Setup> back = DecodeSetup(bytes);
    ASSERT_THAT(back.status(), IsOk());
    EXPECT_EQ(Encode(*back), bytes);
    EXPECT_EQ(back->tensors[0].name, "weights");
    EXPECT_EQ(back->tensors[0].count, 5);
    EXPECT_EQ(back->tables[0].columns, 3);
    EXPECT_EQ(std::get<UniformRows>(back->tables[0].first).seed, 7u);
    EXPECT_EQ(std::get<ConstantRows>(back->tables[1].first).value, 2.0f);
    EXPECT_EQ(back->servers, 3);
    EXPECT_EQ(back->workers, 9);
    EXPECT_EQ(back->replicas, 1);
    for (size_t cut = 0; cut < bytes.size(); ++cut) {
      EXPECT_FALSE(DecodeSetup(std::string_view(bytes).substr(0, cut)).ok());
    }
    support::Mutator random(7);
    for (int i = 0; i < 2000; ++i) {
      std::string changed = bytes;
      changed[random.Below(changed.size())] = static_cast<char>(random());
      DecodeSetup(changed).IgnoreError();
    }
  }
}

TEST(FileDiskTest, KeepsFilesByName) {
  support::TemporaryDirectory folder;
  FileDisk disk(folder.path().string());
  EXPECT_THAT(disk.Read("a").status(), MatchesStatus(absl::StatusCode::kNotFound, "a"));
  ASSERT_THAT(disk.Write("a", "long text"), IsOk());
  ASSERT_THAT(disk.Write("a", "text"), IsOk());
  ASSERT_THAT(disk.Sync("a"), IsOk());
  ASSERT_THAT(disk.Rename("a", "b"), IsOk());
  ASSERT_THAT(disk.SyncFolder(), IsOk());
  EXPECT_EQ(*disk.Read("b"), "text");
  EXPECT_EQ(*disk.List(), std::vector<std::string>{"b"});
  EXPECT_THAT(disk.Remove("b"), IsOk());
  EXPECT_THAT(disk.Remove("b"), IsOk());
  EXPECT_FALSE(disk.Sync("b").ok());
  EXPECT_FALSE(FileDisk((folder.path() / "absent").string()).Write("a", "b").ok());
}

}  // namespace
}  // namespace gyre::ps
