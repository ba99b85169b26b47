// The part of NVML (libnvidia-ml.so.1) that is used here, declared by its documented C interface: the build needs no
// header of NVIDIA's, and the library is looked for when the program runs.
#pragma once

namespace gyre::launch::nvml {

inline constexpr char kLibrary[] = "libnvidia-ml.so.1";

inline constexpr int kSuccess = 0;
inline constexpr unsigned kTextSize = 96;                    // what any of its texts fits in
inline constexpr unsigned long long kUnknownMemory = ~0ULL;  // of a process

struct DeviceOpaque;
using Device = DeviceOpaque*;

struct Utilization {
  unsigned gpu;  // percent of the last sample period (1/6 to 1 s) in which a kernel ran
  unsigned memory;
};

struct Memory {
  unsigned long long total, free, used;  // bytes
};

struct Process {
  unsigned pid;
  unsigned long long used_memory;  // bytes on the device
  unsigned gpu_instance, compute_instance;
};

struct ProcessSample {
  unsigned pid;
  unsigned long long when;  // microseconds since 1970
  unsigned gpu;             // percent
  unsigned memory, encoder, decoder;
};

// Each returns kSuccess or a reason.
extern "C" {
using Init = int();                                                      // nvmlInit_v2
using Shutdown = int();                                                  // nvmlShutdown
using DeviceCount = int(unsigned* count);                                // nvmlDeviceGetCount_v2
using DeviceByIndex = int(unsigned index, Device* device);               // nvmlDeviceGetHandleByIndex_v2
using DeviceUtilization = int(Device device, Utilization* utilization);  // nvmlDeviceGetUtilizationRates
using DeviceMemory = int(Device device, Memory* memory);                 // nvmlDeviceGetMemoryInfo
using Processes = int(Device device, unsigned* count, Process* infos);   // nvmlDeviceGetComputeRunningProcesses_v3
using ProcessUtilization = int(Device device, ProcessSample* samples, unsigned* count,
                               unsigned long long since);  // nvmlDeviceGetProcessUtilization
using DriverVersion = int(char* text, unsigned size);      // nvmlSystemGetDriverVersion
using CudaVersion = int(int* version);                     // nvmlSystemGetCudaDriverVersion_v2
}

}  // namespace gyre::launch::nvml
