// A folder that containers of one machine share (--shared-volume): there their ranks meet, and then share memory
// although each container has a network of its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::launch {

struct SharedVolume {
  std::string id;      // the same for all processes that see this very folder on this very machine
  std::string folder;  // this user's own in it
};

// Makes this user's own folder in `volume`. kFailedPrecondition: it cannot be had there, and why.
absl::StatusOr<SharedVolume> OpenSharedVolume(const std::string& volume);

// What ranks are to be told so that they meet there: "VAR=VALUE".
std::vector<std::string> VariablesOf(const SharedVolume& volume);

}  // namespace gyre::launch
