// gyre-bench-gpu: what `gyre-bench gpu` starts. It links CUDA, which gyre-bench must not.
#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "cuda_runtime_api.h"
#include "gpu/collective.h"
#include "gpu/cuda.h"
#include "gpu/kernels.h"
#include "gpu/step.h"
#include "gyre/status_macros.h"
#include "gyre/version.h"
#include "models/model.h"

namespace {

namespace gpu = gyre::bench::gpu;
using gyre::bench::Operation;

constexpr Operation kOperations[] = {Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather,
                                     Operation::kBroadcast, Operation::kAllToAll};
constexpr int kExitUsage = 64, kExitNoGpu = 77;

struct Options {
  gpu::KernelOptions kernels;
  gpu::CollectiveOptions collective;
  gpu::StepOptions step;
};

absl::Status List(int count) {
  int driver = 0, runtime = 0;
  RETURN_IF_ERROR(gpu::Check(cudaDriverGetVersion(&driver), "asking the driver's version"));
  RETURN_IF_ERROR(gpu::Check(cudaRuntimeGetVersion(&runtime), "asking the runtime's version"));
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    RETURN_IF_ERROR(gpu::Check(cudaGetDeviceProperties(&properties, i), "asking what the GPU is"));
    absl::PrintF("GPU %d: %s, %d multiprocessors, %.1f GiB, capability %d.%d, driver for CUDA %d.%d, runtime %d.%d\n",
                 i, properties.name, properties.multiProcessorCount,
                 static_cast<double>(properties.totalGlobalMem) / (1 << 30), properties.major, properties.minor,
                 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  }
  return absl::OkStatus();
}

void AddKernels(CLI::App& app, gpu::KernelOptions& options) {
  CLI::App* command = app.add_subcommand(
      "kernels", "Packing, reductions, updates of weights, compression, ... beside copies; one process");
  command->add_option("--iters", options.samples, "Samples a case")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  command->add_option("--only", options.only, "Of those with this in their names alone");
  command->add_option("--json", options.json, "Also write JSON lines to this file");
}

void AddCollective(CLI::App& app, Operation operation, gpu::CollectiveOptions& options) {
  const std::string name(gyre::bench::OperationName(operation));
  CLI::App* command = app.add_subcommand(name, name + " on GPUs by size, in nccl-tests' columns");
  gyre::bench::SweepOptions& sweep = options.sweep;
  command->add_option("-b,--begin", sweep.begin, "Smallest size in bytes (8, 64K, 256M, 1G)")->capture_default_str();
  command->add_option("-e,--end", sweep.end, "Largest size")->capture_default_str();
  command->add_option("-f,--factor", sweep.factor, "From one size to the next")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--dtype", sweep.dtype, "u8 i8 i16 u16 i32 i64 f16 bf16 f32 f64 bool")->capture_default_str();
  command->add_option("--iters", sweep.iterations, "Samples a size (0: chosen by size)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--check,!--no-check", sweep.check, "Check one result a size (on by default)");
  command->add_option("--json", sweep.json, "Also write JSON lines to this file");
  command->add_option("--buffers", sweep.buffers, "Of Runtime::Allocate, of cudaMalloc, or both")
      ->check(CLI::IsMember({"arena", "plain", "both"}))
      ->capture_default_str();
  if (gyre::bench::Reduces(operation)) {
    command->add_option("--op", sweep.op, "sum average min max product")->capture_default_str();
  }
  if (gyre::bench::HasRoot(operation)) {
    command->add_option("--root", sweep.root, "The rank whose data it is")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
  }
  command->add_flag("--against-nccl", options.against_nccl, "By turns with NCCL itself; a GPU for each rank");
  command->add_flag(
      "--against-copy", options.against_copy,
      "By turns with copies of as many bytes within the GPU's memory: the time ratio is the share of them");
  command->add_flag("--against-host", options.against_host,
                    "By turns with copies to pinned memory and back at once, and with the same of the host's memory");
}

void AddStep(CLI::App& app, gpu::StepOptions& options) {
  CLI::App* command = app.add_subcommand("step", "A model's gradients through a GradientReducer, without computation");
  std::vector<std::string> models;
  for (const std::string_view name : gyre::bench::ModelNames()) models.emplace_back(name);
  command->add_option("--model", options.models, "Which networks, by commas")
      ->check(CLI::IsMember(models))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--dtype", options.dtypes, "Of the gradients: f32, bf16, or both by a comma")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--compression", options.compression,
                   "Also with compressed gradients, by commas: dgc:0.999, int8, fp16, ... (include/gyre/compression.h)")
      ->delimiter(',');
  command->add_option("--steps", options.steps, "Steps that are measured")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--json", options.json, "Also write JSON lines to this file");
}

absl::Status Run(const CLI::App& app, const Options& options, int gpus, const std::string& line) {
  if (app.got_subcommand("list")) return List(gpus);
  if (app.got_subcommand("kernels")) return gpu::RunKernels(options.kernels);
  if (app.got_subcommand("step")) return gpu::RunStep(options.step, line);
  for (const Operation operation : kOperations) {
    if (app.got_subcommand(std::string(gyre::bench::OperationName(operation)))) {
      return gpu::RunCollective(operation, options.collective, line);
    }
  }
  return absl::InternalError("no such command");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures Gyre on GPUs. Start it alone, or under gyrerun -np N: then each rank takes a GPU in turn.",
               "gyre-bench gpu");
  app.footer("Exit codes: 0 done; 1 failed; 64 wrong usage; 77 there is no GPU that CUDA can use.");
  app.set_version_flag("--version", GYRE_VERSION_STRING);
  app.require_subcommand(1, 1);
  Options options;
  app.add_subcommand("list", "The GPUs that CUDA finds here");
  AddKernels(app, options.kernels);
  for (const Operation operation : kOperations) AddCollective(app, operation, options.collective);
  AddStep(app, options.step);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kExitUsage;
  }
  std::string line = "gyre-bench gpu";
  for (int i = 1; i < argc; ++i) line.append(" ").append(argv[i]);
  const absl::StatusOr<int> gpus = gpu::CountGpus();  // before ranks meet
  const absl::Status status = gpus.ok() ? Run(app, options, *gpus, line) : gpus.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "gyre-bench gpu: %s\n", status.ToString().c_str());
  if (!gpus.ok()) return kExitNoGpu;
  return absl::IsInvalidArgument(status) ? kExitUsage : 1;
}
