// Where rank 0 tells the other ranks of its host and user at which port its store is: a file in the user's directory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/endpoint.h"

namespace gyre {

// The file holds no secret, only "host:port"; it may be one that a killed job left behind, which shows when nobody
// there can prove to be of this job. Each epoch has a file of its own: what is left over from an older one cannot put
// its store in place of the job's. Thread-compatible.
class LocalRendezvous {
 public:
  // `directory`: bootstrap/secret.h's UserDirectory.
  LocalRendezvous(std::string_view directory, std::string_view job_id, uint64_t epoch);

  // Puts this endpoint in place of whatever was there.
  absl::Status Publish(const Endpoint& endpoint) const;

  // kUnavailable: no rank 0 has published (yet).
  absl::StatusOr<Endpoint> Read() const;

  // Removes the file if it is the one published for `endpoint`.
  void Remove(const Endpoint& endpoint) const;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace gyre
