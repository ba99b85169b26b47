#include "launch/gpus.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <map>

#include "absl/strings/str_cat.h"
#include "launch/nvml_abi.h"

namespace gyre::launch {

namespace {

constexpr unsigned kMostGpuProcesses = 1024;  // of a device
constexpr unsigned kMostDevices = 64;
constexpr double kPercent = 0.01;
constexpr std::chrono::seconds kRecent{2};
constexpr ino_t kFirstPidNamespace = 0xEFFFFFFC;  // PROC_PID_INIT_INO, fixed in Linux

// What a device says of each process.
using ByProcess = std::map<unsigned, GpuUsage>;

// By the clock that the driver's samples have.
unsigned long long MicrosecondsAgo(std::chrono::microseconds time) {
  const auto now =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch());
  return static_cast<unsigned long long>((now - time).count());
}

template <typename Function>
bool FindSymbol(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

struct Gpus::Library {
  ~Library() {
    if (shutdown != nullptr) shutdown();
    if (handle != nullptr) dlclose(handle);
  }

  absl::Status Open() {
    handle = dlopen(nvml::kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return absl::UnavailableError(absl::StrCat("there is no ", nvml::kLibrary));
    nvml::Init* init = nullptr;
    nvml::DeviceCount* count = nullptr;
    nvml::DeviceByIndex* by_index = nullptr;
    nvml::Shutdown* end = nullptr;
    const bool found = FindSymbol(handle, "nvmlInit_v2", init) && FindSymbol(handle, "nvmlShutdown", end) &&
                       FindSymbol(handle, "nvmlDeviceGetCount_v2", count) &&
                       FindSymbol(handle, "nvmlDeviceGetHandleByIndex_v2", by_index) &&
                       FindSymbol(handle, "nvmlDeviceGetUtilizationRates", utilization) &&
                       FindSymbol(handle, "nvmlDeviceGetMemoryInfo", memory);
    if (!found) return absl::UnavailableError(absl::StrCat(nvml::kLibrary, " is too old, or another library"));
    const int error = init();
    if (error != nvml::kSuccess) {
      return absl::UnavailableError(absl::StrCat(nvml::kLibrary, " finds no driver (error ", error, ")"));
    }
    shutdown = end;
    // Without these, less is known.
    FindSymbol(handle, "nvmlDeviceGetComputeRunningProcesses_v3", processes);
    FindSymbol(handle, "nvmlDeviceGetProcessUtilization", process_utilization);
    FindSymbol(handle, "nvmlSystemGetDriverVersion", driver_version);
    FindSymbol(handle, "nvmlSystemGetCudaDriverVersion_v2", cuda_version);
    unsigned devices_there = 0;
    if (count(&devices_there) != nvml::kSuccess) devices_there = 0;
    for (unsigned i = 0; i < devices_there && i < kMostDevices; ++i) {
      nvml::Device device = nullptr;
      if (by_index(i, &device) == nvml::kSuccess) devices.push_back(device);
    }
    return absl::OkStatus();
  }

  GpuUsage WholeDevice(nvml::Device device) const {
    GpuUsage usage;
    nvml::Utilization busy{};
    if (utilization(device, &busy) == nvml::kSuccess) usage.gpus = kPercent * busy.gpu;
    nvml::Memory bytes{};
    if (memory(device, &bytes) == nvml::kSuccess) usage.memory = bytes.used;
    return usage;
  }

  ByProcess ProcessesOf(nvml::Device device) const {
    ByProcess usage;
    if (processes == nullptr) return usage;
    std::vector<nvml::Process> infos(kMostGpuProcesses);
    unsigned count = kMostGpuProcesses;
    if (processes(device, &count, infos.data()) != nvml::kSuccess) return usage;
    infos.resize(count);
    for (const nvml::Process& info : infos) {
      usage[info.pid].memory += info.used_memory == nvml::kUnknownMemory ? 0 : info.used_memory;
    }
    AddUtilization(device, usage);
    return usage;
  }

  // The newest sample of each process. A driver that has none of any says "not found"; then they share what the device
  // says of itself.
  void AddUtilization(nvml::Device device, ByProcess& usage) const {
    std::vector<nvml::ProcessSample> samples(kMostGpuProcesses);
    unsigned count = kMostGpuProcesses;
    if (process_utilization == nullptr ||
        process_utilization(device, samples.data(), &count, MicrosecondsAgo(kRecent)) != nvml::kSuccess || count == 0) {
      const double each = usage.empty() ? 0 : WholeDevice(device).gpus / static_cast<double>(usage.size());
      for (auto& [pid, of] : usage) of.gpus = each;
      return;
    }
    samples.resize(count);
    std::map<unsigned, unsigned long long> newest;
    for (const nvml::ProcessSample& sample : samples) {
      const auto of = usage.find(sample.pid);
      if (of == usage.end() || sample.when < newest[sample.pid]) continue;
      newest[sample.pid] = sample.when;
      of->second.gpus = kPercent * sample.gpu;
    }
  }

  void* handle = nullptr;
  nvml::Shutdown* shutdown = nullptr;  // once it was initialised
  nvml::DeviceUtilization* utilization = nullptr;
  nvml::DeviceMemory* memory = nullptr;
  nvml::Processes* processes = nullptr;
  nvml::ProcessUtilization* process_utilization = nullptr;
  nvml::DriverVersion* driver_version = nullptr;
  nvml::CudaVersion* cuda_version = nullptr;
  std::vector<nvml::Device> devices;
};

Gpus::Gpus(std::unique_ptr<Library> library, bool knows_processes)
    : library_(std::move(library)), knows_processes_(knows_processes) {}

Gpus::~Gpus() = default;

bool InFirstPidNamespace() {
  struct stat space {};
  return stat("/proc/self/ns/pid", &space) == 0 && space.st_ino == kFirstPidNamespace;
}

absl::StatusOr<std::unique_ptr<Gpus>> Gpus::Open(bool knows_processes) {
  auto library = std::make_unique<Library>();
  if (absl::Status opened = library->Open(); !opened.ok()) return opened;
  return std::unique_ptr<Gpus>(new Gpus(std::move(library), knows_processes));
}

int Gpus::count() const {
  return static_cast<int>(library_->devices.size());
}

std::string Gpus::driver() const {
  std::array<char, nvml::kTextSize> text{};
  if (library_->driver_version == nullptr || library_->driver_version(text.data(), nvml::kTextSize - 1) != 0) return "";
  return text.data();
}

std::string Gpus::cuda() const {
  int version = 0;  // 12040 is 12.4
  if (library_->cuda_version == nullptr || library_->cuda_version(&version) != 0) return "";
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::vector<std::optional<GpuUsage>> Gpus::Look(const std::vector<std::vector<pid_t>>& trees,
                                                const std::vector<int>& numbers) const {
  std::vector<std::optional<GpuUsage>> usage(trees.size());
  if (library_->devices.empty()) return usage;
  std::vector<ByProcess> devices;
  for (nvml::Device device : library_->devices) devices.push_back(library_->ProcessesOf(device));
  bool known = knows_processes_ && library_->processes != nullptr;
  for (size_t i = 0; i < trees.size(); ++i) {
    usage[i].emplace();
    for (const pid_t pid : trees[i]) {
      for (const ByProcess& device : devices) {
        const auto found = device.find(static_cast<unsigned>(pid));
        if (found == device.end()) continue;
        known = true;
        usage[i]->gpus += found->second.gpus;
        usage[i]->memory += found->second.memory;
      }
    }
  }
  if (known) return usage;
  for (size_t i = 0; i < trees.size(); ++i) {
    const auto number = static_cast<size_t>(numbers[i]);
    usage[i].reset();
    if (number < library_->devices.size()) usage[i] = library_->WholeDevice(library_->devices[number]);
  }
  return usage;
}

std::string NcclVersion() {
  using GetVersion = int(int* version);
  void* const nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  GetVersion* get = nullptr;
  int version = 0;  // 22105 is 2.21.5; before 2.9, 2804 was 2.8.4
  std::string text;
  if (nccl != nullptr && FindSymbol(nccl, "ncclGetVersion", get) && get(&version) == 0) {
    const int major = version < 10'000 ? 1000 : 10'000;
    text = absl::StrCat(version / major, ".", version % major / 100, ".", version % 100);
  }
  if (nccl != nullptr) dlclose(nccl);
  return text;
}

}  // namespace gyre::launch
