// `gyrerun manifest`: the manifests of k8s/ with a job's own name, image, size, gang and command.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::launch {

enum class Gang { kNone, kVolcano, kCoscheduling, kKueue };
enum class PodPlacement { kAny, kPack, kSpread };

struct ManifestOptions {
  std::string name;
  std::string image;
  int workers = 0;
  int gpus = 0;              // of each worker
  std::string size;          // one of k8s/sizes.yaml; empty: s, or h100 with GPUs
  std::optional<int> slots;  // ranks of each worker; default: as many as GPUs, or else processors
  Gang gang = Gang::kNone;
  std::string queue;  // of Volcano or Kueue; empty: theirs that is called default, or gyre
  PodPlacement placement = PodPlacement::kAny;
  std::optional<int64_t> deadline;       // seconds until the cluster ends the job; none: it runs as long as it takes
  std::optional<int64_t> ttl;            // seconds from its end until the cluster deletes it; none: it stays
  std::vector<std::string> volumes;      // "CLAIM:PATH", in all pods
  std::vector<std::string> environment;  // "NAME=VALUE", for the ranks
  std::string service_account;           // empty: the namespace's default
  std::string priority;                  // a PriorityClass; empty: the cluster's default
  std::vector<std::string> command;      // PROGRAM and its arguments

  std::optional<std::string> answer;  // set by --help: print it and exit 0
};

// The words after `manifest`. kInvalidArgument: one line that says what is wrong and what to try.
absl::StatusOr<ManifestOptions> ParseManifestOptions(const std::vector<std::string>& arguments);

// The documents, ready for `kubectl apply -f -`. kInvalidArgument where the cluster would refuse them, or accept them
// and never run them: too long a name, more ranks than GPUs or processors, a size that does not fit, an image that
// cannot be.
absl::StatusOr<std::string> RenderManifest(const ManifestOptions& options);

}  // namespace gyre::launch
