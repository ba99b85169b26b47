// The T-shirt sizes of k8s/sizes.yaml.
#pragma once

#include <string>
#include <vector>

namespace gyre::launch {

struct Size {
  std::string name;
  bool per_gpu = false;  // for each GPU of a worker, or else for all of it
  int cpu = 0;           // processors
  int memory = 0;        // GiB
  int shm = 0;           // GiB of /dev/shm, part of memory
  int gpu_memory = 0;    // GiB of each GPU; 0 where there is none
};

// In the file's order.
std::vector<Size> Sizes();

}  // namespace gyre::launch
