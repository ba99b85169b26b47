#include <benchmark/benchmark.h>

#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "commands.h"
#include "device/reduce.h"
#include "gyre/runtime.h"
#include "gyre/status_macros.h"
#include "nlohmann/json.hpp"
#include "output_file.h"

namespace gyre::bench {

namespace {

constexpr DType kDTypes[] = {DType::kU8,  DType::kI8,   DType::kI16, DType::kU16, DType::kI32, DType::kI64,
                             DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kBool};

// Bytes of one buffer: some that up to 9 of fit in a core's second cache, and some that none does hold.
constexpr int64_t kCached = 32 << 10;
constexpr int64_t kMemory = 64 << 20;

void ReduceBuffers(benchmark::State& state, DType dtype, int sources, int64_t bytes) {
  const auto words = static_cast<size_t>(bytes) / sizeof(uint64_t);
  std::vector<std::vector<uint64_t>> buffers(static_cast<size_t>(sources) + 1, std::vector<uint64_t>(words));
  std::vector<const void*> from;
  for (int i = 0; i < sources; ++i) from.push_back(buffers[static_cast<size_t>(i)].data());
  void* const to = buffers.back().data();
  const int64_t count = bytes / DTypeSize(dtype);
  while (state.KeepRunning()) {
    device::Reduce({.dtype = dtype}, from, std::span(&to, 1), count);
    benchmark::ClobberMemory();
  }
  state.counters["sources"] = sources;
  state.counters["bytes"] = static_cast<double>(bytes);
  state.SetItemsProcessed(state.iterations() * count);
}

void RegisterAll(double min_time) {
  for (const DType dtype : kDTypes) {
    for (int sources = 2; sources <= 8; ++sources) {
      for (const int64_t bytes : {kCached, kMemory}) {
        const std::string name = absl::StrCat(std::string(DTypeName(dtype)), "/", sources, "/", bytes);
        benchmark::RegisterBenchmark(name.c_str(), ReduceBuffers, dtype, sources, bytes)->MinTime(min_time);
      }
    }
  }
}

// A row a case: elements of the result a second, and the bytes that are read and written for them.
class Rows final : public benchmark::BenchmarkReporter {
 public:
  explicit Rows(std::FILE* json) : json_(json) {}

  bool ReportContext(const Context& /*context*/) override {
    absl::PrintF("# the reduction kernel on one core, %s; GB/s: all sources read, one result written\n",
                 device::SimdTargetName());
    absl::PrintF("#%7s %8s %11s %12s %10s\n", "type", "sources", "size (B)", "elements/s", "GB/s");
    return true;
  }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) ReportRun(run);
    std::fflush(stdout);
  }

 private:
  void ReportRun(const Run& run) {
    const std::string dtype = run.run_name.function_name.substr(0, run.run_name.function_name.find('/'));
    const auto sources = static_cast<int>(run.counters.at("sources"));
    const auto bytes = static_cast<int64_t>(run.counters.at("bytes"));
    const double elements = run.counters.at("items_per_second");
    const auto width = static_cast<double>(DTypeSize(*ParseDType(dtype)));
    const double speed = elements * width * (sources + 1) * 1e-9;
    absl::PrintF("%8s %8d %11d %12.4g %10.2f\n", dtype, sources, bytes, elements, speed);
    if (json_ == nullptr) return;
    const nlohmann::ordered_json line = {
        {"lib", "gyre"},      {"op", "reduce_kernel"}, {"simd", device::SimdTargetName()}, {"dtype", dtype},
        {"sources", sources}, {"bytes", bytes},        {"elements_per_s", elements},       {"gbs", speed}};
    absl::FPrintF(json_, "%s\n", line.dump());
  }

  std::FILE* const json_;
};

}  // namespace

absl::Status RunKernels(const KernelOptions& options) {
  {
    ASSIGN_OR_RETURN(const auto runtime, Runtime::Create());
    if (runtime->world().rank() != 0) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const OutputFile json, OpenOutputFile(options.json));
  RegisterAll(options.min_time);
  Rows rows(json.get());
  const size_t run = benchmark::RunSpecifiedBenchmarks(&rows, options.filter);
  if (run > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("no kernel's name matches '", options.filter, "'"));
}

}  // namespace gyre::bench
