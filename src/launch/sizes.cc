#include "launch/sizes.h"

#include <yaml-cpp/yaml.h>

#include "launch/manifests.h"

namespace gyre::launch {

std::vector<Size> Sizes() {
  std::vector<Size> sizes;
  for (const YAML::Node& entry : YAML::Load(kSizes)["sizes"]) {
    sizes.push_back({.name = entry["name"].as<std::string>(),
                     .per_gpu = entry["per"].as<std::string>() == "gpu",
                     .cpu = entry["cpu"].as<int>(),
                     .memory = entry["memory"].as<int>(),
                     .shm = entry["shm"].as<int>(),
                     .gpu_memory = entry["gpu_memory"].as<int>(0)});
  }
  return sizes;
}

}  // namespace gyre::launch
