// A libnvidia-ml.so.1 of two devices, for gpus_test and watch_end_to_end_test. Device i has 10 (i + 1) percent of work
// and (i + 1) GiB in use. The file that FAKE_NVML names has a line for each process: "device pid bytes percent".
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "launch/nvml_abi.h"

struct gyre::launch::nvml::DeviceOpaque {
  unsigned index;
};

using namespace gyre::launch::nvml;  // NOLINT(google-build-using-namespace): it is this library

namespace {

constexpr unsigned kDevices = 2;

unsigned IndexOf(Device device) {
  return device->index;
}

template <typename Put>
unsigned EachProcess(Device device, unsigned most, const Put& put) {
  const char* path = std::getenv("FAKE_NVML");
  std::ifstream file(path != nullptr ? path : "/dev/null");
  unsigned index = 0, pid = 0, percent = 0, count = 0;
  for (unsigned long long bytes = 0; count < most && file >> index >> pid >> bytes >> percent;) {
    if (index == IndexOf(device)) put(count++, pid, bytes, percent);
  }
  return count;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return std::getenv("FAKE_NVML_FAILS") != nullptr ? 9 : kSuccess;
}

int nvmlShutdown() {
  return kSuccess;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = kDevices;
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  static DeviceOpaque devices[kDevices] = {{0}, {1}};
  if (index >= kDevices) return 2;
  *device = &devices[index];
  return kSuccess;
}

int nvmlDeviceGetUtilizationRates(Device device, Utilization* utilization) {
  *utilization = {10 * (IndexOf(device) + 1), 0};
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  const unsigned long long gib = 1ULL << 30;
  *memory = {80 * gib, 0, (IndexOf(device) + 1) * gib};
  return kSuccess;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, Process* infos) {
  *count = EachProcess(device, *count, [&](unsigned i, unsigned pid, unsigned long long bytes, unsigned) {
    infos[i] = {pid, bytes, 0, 0};
  });
  return kSuccess;
}

// An old sample of each process comes after the new one: the order is not the samples' age.
int nvmlDeviceGetProcessUtilization(Device device, ProcessSample* samples, unsigned* count, unsigned long long since) {
  const unsigned most = *count / 2;
  *count = 2 * EachProcess(device, most, [&](unsigned i, unsigned pid, unsigned long long, unsigned percent) {
             samples[2 * i] = {pid, since + 200, percent, 0, 0, 0};
             samples[2 * i + 1] = {pid, since + 100, 100, 0, 0, 0};
           });
  return *count > 0 ? kSuccess : 6;
}

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::strncpy(text, "550.54.15", size);
  return kSuccess;
}

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 12040;
  return kSuccess;
}
}
