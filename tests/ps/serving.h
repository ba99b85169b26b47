// A server of parameters as a thread of a test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "net/endpoint.h"
#include "net/socket.h"
#include "ps/process/server_process.h"
#include "support/status_matchers.h"

namespace gyre::ps {

inline constexpr char kSecret[] = "0123456789abcdef0123456789abcdef";

inline TimePoint Soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(20);
}

// Whose it is.
struct ServingJob {
  std::string id = "job";
  uint64_t epoch = 3;
};

// A server as a thread. Its listener is kept beside it, as gyrerun does: so a new life is found where the old one was.
class Serving {
 public:
  Serving(int server, std::string folder, ServingJob job = {})
      : server_(server), folder_(std::move(folder)), job_(std::move(job)) {
    listener_ = *ListenTcp({"127.0.0.1", 0}, 16, Soon());
    std::filesystem::create_directory(folder_);
  }
  ~Serving() { Kill(); }

  Endpoint endpoint() const { return *LocalEndpoint(listener_.get()); }

  // `servers`: where all are, if they have to know.
  void Start(std::vector<Endpoint> servers = {}) {
    process_ = *ServerProcess::Create({.server = server_,
                                       .incarnation = ++lives_,
                                       .job_id = job_.id,
                                       .epoch = job_.epoch,
                                       .secret = kSecret,
                                       .folder = folder_,
                                       .servers = std::move(servers),
                                       .listener = UniqueFd(fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0))});
    thread_ = std::thread([process = process_.get()] { EXPECT_THAT(process->Run(), support::IsOk()); });
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
  const ServingJob job_;
  UniqueFd listener_;
  uint64_t lives_ = 0;
  std::unique_ptr<ServerProcess> process_;
  std::thread thread_;
};

}  // namespace gyre::ps
