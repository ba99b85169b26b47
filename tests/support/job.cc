#include "support/job.h"

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "net/endpoint.h"
#include "net/socket.h"
#include "support/slower.h"

namespace gyre::support {

namespace {

// A port that was free a moment ago.
std::string FreeLoopbackEndpoint() {
  const auto listener = ListenTcp(Endpoint{"127.0.0.1", 0}, 1, TimePoint::max());
  return ToString(*LocalEndpoint(listener->get()));
}

std::filesystem::path StorePath(const Rank& rank) {
  return rank.directory / "store";
}

std::string ChooseStoreAddress(const Rank& rank) {
  const auto path = StorePath(rank);
  const std::string address = FreeLoopbackEndpoint();
  std::ofstream(path.string() + ".new") << address;
  std::filesystem::rename(path.string() + ".new", path);
  return address;
}

std::string AwaitStoreAddress(const Rank& rank) {
  const auto path = StorePath(rank);
  for (;;) {  // the test's own time-out ends it
    if (std::ifstream file(path); file) return {std::istreambuf_iterator<char>(file), {}};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

RuntimeOptions JobOptionsAt(const Rank& rank, std::string store) {
  RuntimeOptions options;
  options.rank = rank.rank;
  options.size = rank.size;
  options.store = std::move(store);
  options.job_id = rank.name;
  options.secret = "the secret of the tests' jobs, not one of a user";
  options.operation_timeout = Slower(std::chrono::seconds(30));
  options.start_timeout = Slower(std::chrono::seconds(30));
  options.arena_bytes = int64_t{256} << 20;
  return options;
}

std::string HostId(const Rank& rank, const HostSizes& hosts) {
  int host = 0;
  for (int local = rank.rank; local >= hosts[static_cast<size_t>(host)]; ++host)
    local -= hosts[static_cast<size_t>(host)];
  return absl::StrCat(rank.name, "-host-", host);
}

RuntimeOptions OnItsHost(RuntimeOptions options, const Rank& rank, const HostSizes& hosts) {
  if (hosts.size() == 1) return options;
  options.host_id = HostId(rank, hosts);
  // A busy machine may starve a rank for over a second, which another host cannot tell from its end.
  options.heartbeat_timeout = Slower(std::chrono::seconds(10));
  return options;
}

}  // namespace

RuntimeOptions JobOptions(const Rank& rank) {
  return JobOptionsAt(rank, rank.rank == 0 ? ChooseStoreAddress(rank) : AwaitStoreAddress(rank));
}

RuntimeOptions JobOptions(const Rank& rank, const HostSizes& hosts) {
  return OnItsHost(JobOptions(rank), rank, hosts);
}

RuntimeOptions RestartedJobOptions(const Rank& rank, const HostSizes& hosts, int64_t epoch) {
  RuntimeOptions options = JobOptionsAt(rank, AwaitStoreAddress(rank));
  options.epoch = epoch;
  return OnItsHost(std::move(options), rank, hosts);
}

std::unique_ptr<Runtime> JoinJob(const Rank& rank, RuntimeOptions options) {
  auto runtime = Runtime::Create(options);
  EXPECT_TRUE(runtime.ok()) << "rank " << rank.rank << ": " << runtime.status();
  return runtime.ok() ? *std::move(runtime) : nullptr;
}

std::unique_ptr<Runtime> JoinJob(const Rank& rank) {
  return JoinJob(rank, JobOptions(rank));
}

}  // namespace gyre::support
