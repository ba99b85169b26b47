// MetricsServer: answers GET /metrics over HTTP/1.0, from a thread of its own. It tells numbers and takes nothing in; a
// request may be 4 KiB long and take a second, and one is answered at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "net/endpoint.h"

namespace gyre::internal {

class MetricsServer {
 public:
  // `text`: what is answered; called from the server's thread. kAlreadyExists: the port is taken.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const Endpoint& endpoint,
                                                              std::function<std::string()> text);
  ~MetricsServer();

  uint16_t port() const { return port_; }

 private:
  MetricsServer(UniqueFd listener, UniqueFd stop, uint16_t port, std::function<std::string()> text)
      : listener_(std::move(listener)), stop_(std::move(stop)), port_(port), text_(std::move(text)) {}
  void Serve();
  void Answer(int fd) const;

  const UniqueFd listener_;
  const UniqueFd stop_;  // an eventfd: readable when it is time to end
  const uint16_t port_;
  const std::function<std::string()> text_;
  std::thread thread_;
};

// The response to a request's first line.
std::string HttpResponse(const std::string& request_line, const std::function<std::string()>& text);

}  // namespace gyre::internal
