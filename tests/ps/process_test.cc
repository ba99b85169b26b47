// Training through servers, whatever dies meanwhile.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/acceptor.h"
#include "net/event_loop.h"
#include "process_fixture.h"

namespace gyre::ps {
namespace {

using std::chrono::milliseconds;
using support::IsOk;
using support::MatchesStatus;

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

// Takes a worker and gives it the first values, but acknowledges nothing. Returns which partitions it was pushed, once
// it has had all, or after 5 s.
std::set<uint32_t> PushedUnacknowledged(UniqueFd listener, const Layout& layout) {
  const std::vector<int>& own = layout.OfServer(0);
  std::set<uint32_t> pushed;
  const auto loop = *EventLoop::Create();
  std::unique_ptr<Link> link;
  const auto take = [&](const Message& message) {
    Message reply{.epoch = 3, .incarnation = 1, .to = message.incarnation, .slot = message.slot};
    const std::vector<uint64_t> none(own.size());
    if (message.kind == Kind::kPush) pushed.insert(message.slot);
    if (message.kind == Kind::kHello) {
      reply.kind = Kind::kWelcome;
      reply.flag = true;
      reply.member = message.flag;
      reply.next = reply.durable = reply.floors = none;
    } else if (message.kind == Kind::kHeartbeat) {
      reply.kind = Kind::kPulse;
      reply.next = reply.durable = none;
    } else if (message.kind == Kind::kPull && message.clock == 0) {
      reply.kind = Kind::kValues;
      reply.keeper = Floats(static_cast<size_t>(layout.partitions()[static_cast<size_t>(own.at(message.slot))].count));
      std::ranges::fill(reply.keeper.writable(), 1.0f);
      reply.values = reply.keeper.bytes();
    } else {
      return;
    }
    link->Send(reply);
  };
  const auto admit = [&](AcceptedPeer peer) {
    link = *Link::Create(*loop, std::move(peer.fd), 3, "", {.on_setup = [](std::string_view) {}, .on_message = take});
  };
  const auto acceptor =
      *AuthenticatingListener::Create(*loop, std::move(listener), {"job", 3, 0, Role::kServer}, kSecret, {}, admit);
  const TimePoint until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (pushed.size() < own.size() && std::chrono::steady_clock::now() < until) {
    EXPECT_THAT(loop->RunOnce(until), IsOk());
    if (link != nullptr) link->Flush();
  }
  return pushed;
}

// There is no link between hosts which pushes could share.
TEST_F(ProcessTest, WithinAHostWhatLinksCarryAtOnceHoldsNothingBack) {
  UniqueFd listener = *ListenTcp({"127.0.0.1", 0}, 16, Soon());
  ClientOptions options{.servers = {*LocalEndpoint(listener.get())}, .job_id = "job", .secret = kSecret};
  options.host = "another host";  // as it says: no memory is lent
  options.worker.epoch = 3;
  options.worker.window_of_all = 1;
  options.setup.tensors = Tensors();
  const Layout layout = *Layout::Create(Tensors(), 1);
  std::set<uint32_t> pushed;
  std::thread server([&] { pushed = PushedUnacknowledged(std::move(listener), layout); });
  std::vector<float> model(Elements()), gradient(Elements());
  std::vector<std::span<float>> weights;
  size_t offset = 0;
  for (const Tensor& tensor : Tensors()) {
    weights.push_back(std::span(model).subspan(offset, static_cast<size_t>(tensor.count)));
    offset += static_cast<size_t>(tensor.count);
  }
  const auto client = *Client::Create(std::move(options), weights);
  EXPECT_THAT(client->Begin(Soon()), IsOk());
  EXPECT_THAT(client->End(gradient, 1), IsOk());
  server.join();
  EXPECT_GT(layout.OfServer(0).size(), 10u);
  EXPECT_EQ(pushed.size(), layout.OfServer(0).size());
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

// What is pushed again to a server that came back is what was pushed first: encoded anew, it would have what the codec
// had kept twice.
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
    folder_ = NewFolder();
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

// There is no folder from the first step on. A server that dies then has nothing to come back with, and says so.
TEST_F(ProcessTest, TrainingGoesOnWithoutSnapshotsUntilAServerDies) {
  StartServers(2);
  folder_.reset();
  workers_ = 1;
  std::vector<float> model, gradient(Elements());
  auto worker = Worker(0, model);
  for (int step = 0; step < 3; ++step) ASSERT_THAT(Step(*worker, 0, step, model, gradient), IsOk());
  ASSERT_THAT(worker->Begin(Soon()), IsOk());
  EXPECT_EQ(model, Reference(3));
  servers_[1]->Kill();
  servers_[1]->Start(Endpoints());
  ASSERT_THAT(worker->End(gradient, 0.1f), IsOk());
  EXPECT_THAT(worker->Begin(Soon()), MatchesStatus(absl::StatusCode::kFailedPrecondition,
                                                   "server 1 has started again without the values that it had"));
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

}  // namespace
}  // namespace gyre::ps
