#include "runtime/metrics_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/thread.h"
#include "net/socket.h"

namespace gyre::internal {

namespace {

constexpr std::chrono::seconds kRequestTimeout(1);
constexpr size_t kLongestRequest = 4096;
constexpr int kPauseMs = 100;

// Up to the empty line; what came until then if it is too long, too late or cut short.
std::string ReceiveRequest(int fd, TimePoint deadline) {
  std::string request;
  std::array<std::byte, 1024> part;
  while (request.size() < kLongestRequest && !absl::StrContains(request, "\r\n\r\n")) {
    const auto received = ReceiveSome(fd, part, deadline);
    if (!received.ok()) break;
    request.append(reinterpret_cast<const char*>(part.data()), *received);
  }
  return request;
}

}  // namespace

std::string HttpResponse(const std::string& request_line, const std::function<std::string()>& text) {
  std::string status = "404 Not Found", body = "GET /metrics\n";
  if (absl::StartsWith(request_line, "GET /metrics ")) {
    status = "200 OK";
    body = text();
  } else if (!absl::StartsWith(request_line, "GET ")) {
    status = "405 Method Not Allowed";
  }
  return absl::StrCat("HTTP/1.0 ", status,
                      "\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: ", body.size(),
                      "\r\nConnection: close\r\n\r\n", body);
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const Endpoint& endpoint,
                                                                    std::function<std::string()> text) {
  ASSIGN_OR_RETURN(UniqueFd listener,
                   ListenTcp(endpoint, 16, DeadlineAfter(std::chrono::steady_clock::now(), kRequestTimeout)));
  ASSIGN_OR_RETURN(const Endpoint bound, LocalEndpoint(listener.get()));
  RETURN_IF_ERROR(SetNonBlocking(listener.get(), true));
  UniqueFd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop) return absl::ErrnoToStatus(errno, "eventfd");
  std::unique_ptr<MetricsServer> server(
      new MetricsServer(std::move(listener), std::move(stop), bound.port, std::move(text)));
  ASSIGN_OR_RETURN(server->thread_, StartThread("the server of metrics", [self = server.get()] { self->Serve(); }));
  return server;
}

MetricsServer::~MetricsServer() {
  const uint64_t one = 1;
  while (write(stop_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  if (thread_.joinable()) thread_.join();
}

void MetricsServer::Serve() {
  std::array<pollfd, 2> waits = {pollfd{listener_.get(), POLLIN, 0}, pollfd{stop_.get(), POLLIN, 0}};
  while (true) {
    if (poll(waits.data(), waits.size(), -1) < 0) continue;  // interrupted
    if (waits[1].revents != 0) return;
    const UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client) {
      Answer(client.get());
    } else {
      poll(&waits[1], 1, kPauseMs);  // no descriptor is free, say: the client is still there at the next look
    }
  }
}

void MetricsServer::Answer(int fd) const {
  const TimePoint deadline = DeadlineAfter(std::chrono::steady_clock::now(), kRequestTimeout);
  const std::string request = ReceiveRequest(fd, deadline);
  const std::string response = HttpResponse(request.substr(0, request.find("\r\n")), text_);
  // A client that does not take the answer goes without.
  SendAll(fd, std::as_bytes(std::span(response)), deadline).IgnoreError();
}

}  // namespace gyre::internal
