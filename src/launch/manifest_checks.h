// What Kubernetes and container runtimes take: names, images, volumes, variables. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gyre::launch {

// kInvalidArgument: one line that says what is wrong, and what to try next.
absl::Status WrongManifest(std::string_view what, std::string_view next);

// Names of objects: labels of lower-case letters, digits and '-', with dots between them.
bool IsDnsName(std::string_view name, size_t longest);

// An image reference: [HOST[:PORT]/]NAME[:TAG][@ALGORITHM:DIGEST], as github.com/distribution/reference has it.
bool IsImageReference(std::string_view image);

// A claim (PersistentVolumeClaim) and where the pods see it.
struct PodVolume {
  std::string claim;
  std::string path;
};
// Each "CLAIM:PATH". Refuses paths that hide or are hidden by what the pods have there, and such that are given twice.
absl::StatusOr<std::vector<PodVolume>> ParsePodVolumes(const std::vector<std::string>& texts);

struct PodVariable {
  std::string name;
  std::string value;
};
// Each "NAME=VALUE". Refuses variables that gyrerun sets itself, and such that are given twice.
absl::StatusOr<std::vector<PodVariable>> ParsePodVariables(const std::vector<std::string>& texts);

// The word as it must stand in a manifest: Kubernetes replaces $(NAME) in commands and variables, and takes $$ for $.
std::string WithoutExpansion(std::string_view word);

}  // namespace gyre::launch
