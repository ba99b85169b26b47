// The subcommands of gyre-bench.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sweep.h"

namespace gyre::bench {

struct CollectiveOptions {
  SweepOptions sweep;
  std::vector<std::string> against;  // "mpi", "gloo", "bound"
};

// Latency and bandwidth by size, alone or interleaved with peers in the same processes. `command`: as it was typed.
absl::Status RunCollective(Operation operation, const CollectiveOptions& options, const std::string& command);

// What this machine's memory can do for the job's ranks: copies, and the bound of an allreduce.
absl::Status RunMemory(const SweepOptions& options, const std::string& command);

struct KernelOptions {
  std::string filter = ".";  // a regular expression for names, such as "f32/.*/4096"
  double min_time = 0.2;     // seconds a case
  std::string json;          // a file
};

// The reduction kernel, without any communication; rank 0 alone measures. kUnimplemented where this build has no Google
// Benchmark.
absl::Status RunKernels(const KernelOptions& options);

struct NamedOptions {
  std::string size = "1K";
  int samples = 2000;
};

// One operation by name from its submission to its end: in a frozen order, and negotiated each time.
absl::Status RunNamed(const NamedOptions& options);

struct ServersOptions {
  int64_t elements = 25'500'000;  // ResNet-50's
  int samples = 20;
  std::string compression = "none";  // as ParseCompression reads it
  std::string values = "f32";        // f32, f16, bf16, int8
};

// A push and a pull of a model through the job's parameter servers (gyrerun --servers); a step of BSP, summed.
absl::Status RunServers(const ServersOptions& options);

struct ServerRowsOptions {
  int64_t rows = 0;  // of the table; 0: no table, RunServers
  int64_t columns = 64;
  int64_t batch = 50'000;  // ids that a worker needs in a step, some more than once
  int samples = 20;
};

// The same of the rows of a table that each step needs, frequent ones more often.
absl::Status RunServerRows(const ServerRowsOptions& options);

struct ServedStepsOptions {
  std::string model;           // a network's name; empty: `elements` and `compute_ms`
  int64_t elements = 100'000;  // floats
  double compute_ms = 20;      // of a step
  double rate = 4000;          // of a network: GFLOP/s of a worker
  int batch = 32;              // samples a worker and step
  std::string consistency = "bsp";
  int staleness = 4;       // of "ssp"
  int permanent = 0;       // workers that are always slower,
  double probability = 0;  // any other in a step: internal::Slowdown
  double factor = 10;
  int seed = 1;
  double seconds = 5;  // how long it trains
  int exchanges = 10;  // that are timed before, for the prediction; 0: none is made
  std::string json;    // a file
};

// Steps of training through the job's parameter servers (gyrerun --servers), computation modelled by sleep, some
// slower.
absl::Status RunServedSteps(const ServedStepsOptions& options);

struct AdviseOptions {
  std::string model = "102M";  // bytes of its gradients, or a network's name
  int hosts = 8;
  int workers = 0;  // 0: of `hosts`; else they say how many hosts
  int workers_per_host = 1;
  int servers = 8;           // hosts more, at most
  double latency = 20;       // us
  double bandwidth = 10;     // Gbit/s of a host, each way
  double reduction = 10;     // GB/s
  double compression = 0.5;  // bytes sent of a byte
  double sparse = 0.0015;    // likewise, of a few chosen elements
  double values = 0.5;       // likewise, of what servers send back
  double codec = 4;          // GB/s
};

// What exchanging a model's gradients costs by allreduce and through parameter servers, the cheapest first. Needs no
// other rank.
absl::Status RunAdvise(const AdviseOptions& options);

struct ScalingOptions {
  std::vector<std::string> models = {"alexnet",   "googlenet", "inception3", "resnet50",
                                     "resnet101", "vgg16",     "bert-large"};
  std::vector<int> workers = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  std::vector<int> workers_per_host = {1, 8};
  double rate = 4000;      // GFLOP/s of a worker
  int batch = 32;          // samples a worker and step
  int staleness = 4;       // of SSP
  double latency = 20;     // us
  double bandwidth = 10;   // Gbit/s of a host, each way
  double reduction = 10;   // GB/s
  double codec = 4;        // GB/s
  double sparse = 0.0015;  // bytes sent of a byte by DGC
  std::string measured;    // a file of bench/ps_vs_allreduce: to be shown beside what is predicted of it
  std::string stragglers;  // likewise of bench/stragglers
  std::string report;      // a file: a page with plots
  std::string json;        // a file
};

// How models scale by allreduce and through parameter servers, predicted for many workers. Needs no other rank.
absl::Status RunScaling(const ScalingOptions& options, const std::string& command);

struct PriceOptions {
  std::string operation = "allreduce";  // "all": every one
  std::vector<int> ranks = {4, 64, 1024, 16384};
  std::string begin = "1K", end = "64M";  // sizes, of the whole of a rank
  int factor = 256;
  double latency = 20;    // us
  double bandwidth = 10;  // Gbit/s, each way
  double reduction = 10;  // GB/s of what arrives
  std::string json;       // a file
};

// What the algorithms between hosts would cost on a network that is not there, one rank a host. Needs no other rank.
absl::Status RunPrice(const PriceOptions& options, const std::string& command);

struct StepOptions {
  std::vector<std::string> models = {"resnet50"};
  std::vector<std::string> buffers = {"arena"};  // where Gyre's gradients lie: "arena", "plain"
  std::vector<std::string> against;              // "gyre-per-tensor", "mpi-per-tensor", ...
  std::vector<std::string> compression;          // beside the dense one, as GYRE_COMPRESSION has them
  std::string compute = "none";                  // or "sleep", "cpu"
  double rate = 4000;                            // GFLOP/s of a rank
  int batch = 32;                                // samples a rank and step
  int steps = 20;
  bool check = true;
  bool tune = false;           // also Gyre with plans that are tried, and untimed steps until one stays
  bool early_forward = false;  // a forward pass comes after the backward pass, layer by layer as gradients are there
  std::string json;            // a file
};

// A training step of a model, with its computation modelled: what the exchange of gradients adds to it.
absl::Status RunStep(const StepOptions& options, const std::string& command);

struct CompressionOptions {
  // Names that ParseCompression takes, and "dgc-pass", "index-codes".
  std::vector<std::string> methods = {"none",         "fp16",    "bf16",     "fp8",     "fp8-e5m2",
                                      "int8",         "int4",    "sign",     "ternary", "topk",
                                      "topk-sampled", "randomk", "powersgd", "dgc",     "index-codes"};
  std::string size = "64M";  // bytes of the gradient
  int samples = 11;
  double sparsity = 0.999;  // of "dgc-pass" and "index-codes"
  double link = 10;         // Gbit/s: chooses how positions are coded
  bool models = false;      // in place of the methods: the sender's ratio for whole models
  std::string json;         // a file
};

// What codecs cost on one core, and how small they make a gradient. Needs no other rank.
absl::Status RunCompression(const CompressionOptions& options, const std::string& command);

struct TuneOptions {
  std::vector<int> hosts = {4};
  int local = 0;  // ranks on each host; 0: one, or as many as the job has
  std::string begin = "8", end = "256M";
  int factor = 4;
  double latency = 20;     // us
  double bandwidth = 10;   // Gbit/s, each way
  double reduction = 10;   // GB/s of what arrives
  bool measured = false;   // those three as this job has measured them, and its hosts
  std::string algorithms;  // forced: as GYRE_ALGORITHMS
};

// Which algorithm and chunk every size would be given, and the time predicted for it. Needs other ranks only to
// measure.
absl::Status RunTune(const TuneOptions& options, const std::string& command);

// Becomes gyre-bench-gpu, which links CUDA and lies beside this program. kUnimplemented where it does not.
absl::Status RunGpu(const std::vector<std::string>& arguments);

}  // namespace gyre::bench
