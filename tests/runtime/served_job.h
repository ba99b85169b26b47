// A job with parameter servers, which are threads of the test as its ranks are, whose tensors may be on fake GPUs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "net/endpoint.h"
#include "ps/serving.h"
#include "runtime/gpu_fixture.h"
#include "support/temporary.h"

namespace gyre::support {

class ServedJob {
 public:
  explicit ServedJob(int servers) {
    for (int server = 0; server < servers; ++server) {
      const std::string folder = folder_.path() / absl::StrCat(server);
      servers_.push_back(std::make_unique<ps::Serving>(server, folder, ps::ServingJob{.id = id_, .epoch = 0}));
      servers_.back()->Start();
    }
  }

  // Once, as servers hold one model.
  void Run(int workers, unsigned seed, const std::function<void(GpuRank&)>& body) const {
    std::vector<std::string> endpoints;
    for (const auto& server : servers_) endpoints.push_back(ToString(server->endpoint()));
    RunOnGpus({workers}, seed, body, Owner::kRank, [&](RuntimeOptions& options) {
      options.job_id = id_;
      options.secret = ps::kSecret;
      options.strategy = absl::StrCat("ps,servers=", absl::StrJoin(endpoints, "+"));
    });
  }

 private:
  const std::string id_ = UniqueName("served");
  const TemporaryDirectory folder_;
  std::vector<std::unique_ptr<ps::Serving>> servers_;
};

}  // namespace gyre::support
