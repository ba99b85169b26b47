// gyre-bench: measures Gyre, alone or beside a peer. Start it under gyrerun, or under mpirun to compare with MPI.
#include <algorithm>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "commands.h"
#include "gyre/version.h"
#include "models/model.h"

namespace {

std::string CommandLine(int argc, char** argv) {
  std::string line = "gyre-bench";
  for (int i = 1; i < argc; ++i) line.append(" ").append(argv[i]);
  return line;
}

using gyre::bench::Operation;

constexpr Operation kOperations[] = {Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather,
                                     Operation::kBroadcast, Operation::kAllToAll};

void AddSweep(CLI::App* command, gyre::bench::SweepOptions& options) {
  command->add_option("-b,--begin", options.begin, "Smallest size in bytes (8, 64K, 256M, 1G)")->capture_default_str();
  command->add_option("-e,--end", options.end, "Largest size")->capture_default_str();
  command->add_option("-f,--factor", options.factor, "From one size to the next")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--dtype", options.dtype, "u8 i8 i16 u16 i32 i64 f16 bf16 f32 f64 bool")->capture_default_str();
  command->add_option("--iters", options.iterations, "Samples a size (0: chosen by size)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--check,!--no-check", options.check, "Check one result a size (on by default)");
  command->add_option("--json", options.json, "Also write JSON lines to this file");
}

void AddCollective(CLI::App& app, Operation operation, gyre::bench::CollectiveOptions& options) {
  const std::string name(gyre::bench::OperationName(operation));
  CLI::App* command = app.add_subcommand(name, name + " by size, in nccl-tests' columns");
  AddSweep(command, options.sweep);
  command->add_option("--buffers", options.sweep.buffers, "Where Gyre's buffers lie")
      ->check(CLI::IsMember({"arena", "plain", "both"}))
      ->capture_default_str();
  if (gyre::bench::Reduces(operation)) {
    command->add_option("--op", options.sweep.op, "sum average min max product")->capture_default_str();
  }
  if (gyre::bench::HasRoot(operation)) {
    command->add_option("--root", options.sweep.root, "The rank whose data it is")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
  }
  std::set<std::string> peers = {"mpi", "gloo"};
  if (operation == Operation::kAllReduce) peers.insert("bound");
  command->add_option("--against", options.against, "Interleave with peers in the same processes, by commas")
      ->check(CLI::IsMember(peers))
      ->delimiter(',');
}

void AddMemory(CLI::App& app, gyre::bench::SweepOptions& options) {
  CLI::App* command = app.add_subcommand("memory", "Copies, and what memory allows an allreduce within a host");
  options.begin = "64K";
  AddSweep(command, options);
}

void AddKernels(CLI::App& app, gyre::bench::KernelOptions& options) {
  CLI::App* command = app.add_subcommand("kernels", "The reduction kernel by dtype, sources and size, on one rank");
  command->add_option("--filter", options.filter, "A regular expression for DTYPE/SOURCES/BYTES")
      ->capture_default_str();
  command->add_option("--min-time", options.min_time, "Seconds a case")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--json", options.json, "Also write JSON lines to this file");
}

void AddNamed(CLI::App& app, gyre::bench::NamedOptions& options) {
  CLI::App* command = app.add_subcommand("named", "One allreduce by name, from its submission to its end");
  command->add_option("-s,--size", options.size, "In bytes (8, 64K, 256M)")->capture_default_str();
  command->add_option("--iters", options.samples, "Samples")->check(CLI::PositiveNumber)->capture_default_str();
}

void AddServers(CLI::App& app, gyre::bench::ServersOptions& options, gyre::bench::ServerRowsOptions& rows) {
  CLI::App* command = app.add_subcommand("ps", "A push and a pull through parameter servers (gyrerun --servers)");
  command->add_option("--elements", options.elements, "Floats of the model")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  command->add_option("--iters", options.samples, "Samples")->check(CLI::Range(1, 100'000))->capture_default_str();
  command->add_option("--compression", options.compression, "Of what is pushed (include/gyre/compression.h)")
      ->capture_default_str();
  command->add_option("--values", options.values, "How values come back")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8"}))
      ->capture_default_str();
  CLI::Option* const table = command->add_option("--rows", rows.rows, "Of a table instead of a model: its rows")
                                 ->check(CLI::Range(int64_t{1}, int64_t{1} << 48));
  command->add_option("--columns", rows.columns, "Floats of a row")
      ->check(CLI::Range(1, 1 << 20))
      ->needs(table)
      ->capture_default_str();
  command->add_option("--batch", rows.batch, "Rows that a worker needs in a step, some more than once")
      ->check(CLI::Range(1, 10'000'000))
      ->needs(table)
      ->capture_default_str();
  for (const char* const of_models : {"--elements", "--compression", "--values"}) {
    table->excludes(command->get_option(of_models));
  }
}

void AddServedSteps(CLI::App& app, gyre::bench::ServedStepsOptions& options) {
  CLI::App* command = app.add_subcommand(
      "ps-steps", "Training through parameter servers, some workers slower than others, measured and predicted");
  std::vector<std::string> models;
  for (const std::string_view name : gyre::bench::ModelNames()) models.emplace_back(name);
  CLI::Option* model =
      command->add_option("--model", options.model, "A network; else --elements")->check(CLI::IsMember(models));
  command->add_option("--elements", options.elements, "Floats of what is trained")
      ->check(CLI::Range(1, 1'000'000'000))
      ->excludes(model)
      ->capture_default_str();
  command->add_option("--compute-ms", options.compute_ms, "Computation of a step")
      ->check(CLI::NonNegativeNumber)
      ->excludes(model)
      ->capture_default_str();
  command->add_option("--rate", options.rate, "How fast a network is computed, in GFLOP/s a worker")
      ->check(CLI::PositiveNumber)
      ->needs(model)
      ->capture_default_str();
  command->add_option("--batch", options.batch, "Of a network: samples a worker and step")
      ->check(CLI::PositiveNumber)
      ->needs(model)
      ->capture_default_str();
  command->add_option("--consistency", options.consistency, "How far workers may be apart")
      ->check(CLI::IsMember({"bsp", "ssp", "async"}))
      ->capture_default_str();
  command->add_option("--staleness", options.staleness, "Steps, of ssp")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--permanent", options.permanent, "Workers that are always slower")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--probability", options.probability, "That a worker is slower in a step")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--factor", options.factor, "How many times as long a slow step computes")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Of the steps that are slow")->capture_default_str();
  command->add_option("--seconds", options.seconds, "How long it trains")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--exchanges", options.exchanges, "Timed before, for the prediction (0: none is made)")
      ->check(CLI::Range(0, 10'000))
      ->capture_default_str();
  command->add_option("--json", options.json, "Also write a JSON line to this file");
}

void AddAdvise(CLI::App& app, gyre::bench::AdviseOptions& options) {
  CLI::App* command =
      app.add_subcommand("advise", "Allreduce or parameter servers, and how many of them, by formula; start it alone");
  command->add_option("--model", options.model, "Bytes of the gradients (102M), or a network")->capture_default_str();
  CLI::Option* hosts = command->add_option("--hosts", options.hosts, "Hosts with workers")
                           ->check(CLI::PositiveNumber)
                           ->capture_default_str();
  command->add_option("--workers", options.workers, "Of all hosts: another way to say how many these are")
      ->check(CLI::PositiveNumber)
      ->excludes(hosts);
  command->add_option("--workers-per-host", options.workers_per_host, "Workers of each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--servers", options.servers, "Hosts more that could be servers, at most")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
  command->add_option("--latency", options.latency, "us, one way")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--bandwidth,--link", options.bandwidth, "Gbit/s of a host, each way; or 10gbit, 100mbit")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, double>{{"gbit", 1}, {"mbit", 1e-3}}))
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--reduction", options.reduction, "GB/s that a host adds up")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--compression", options.compression, "Bytes sent of a byte, where there is compression")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--sparse", options.sparse, "Bytes sent of a byte, where few elements are chosen")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--values", options.values, "Bytes of a byte that servers send back, where there is compression")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--codec", options.codec, "GB/s of a codec")->check(CLI::PositiveNumber)->capture_default_str();
}

void AddScaling(CLI::App& app, gyre::bench::ScalingOptions& options) {
  CLI::App* command = app.add_subcommand(
      "ps-vs-allreduce", "How models scale by allreduce and through parameter servers, predicted; start it alone");
  std::vector<std::string> models;
  for (const std::string_view name : gyre::bench::ModelNames()) models.emplace_back(name);
  command->add_option("--model", options.models, "Which networks, by commas")
      ->check(CLI::IsMember(models))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--workers", options.workers, "How many, by commas")
      ->check(CLI::Range(1, 1 << 16))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--workers-per-host", options.workers_per_host, "Of each host, by commas")
      ->check(CLI::Range(1, 1 << 10))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--rate", options.rate, "How fast a worker computes, in GFLOP/s")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--batch", options.batch, "Samples a worker and step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--staleness", options.staleness, "Steps, of SSP")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--latency", options.latency, "us, one way")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--bandwidth", options.bandwidth, "Gbit/s of a host, each way")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--reduction", options.reduction, "GB/s that a host adds up")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--codec", options.codec, "GB/s that DGC chooses from")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--sparse", options.sparse, "Bytes that DGC sends of a byte")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--measured", options.measured, "For the report: what bench/ps_vs_allreduce has measured");
  command->add_option("--stragglers", options.stragglers, "For the report: what bench/stragglers has measured");
  command->add_option("--report", options.report, "Also write a page with plots to this file");
  command->add_option("--json", options.json, "Also write JSON lines to this file");
}

void AddPrice(CLI::App& app, gyre::bench::PriceOptions& options) {
  CLI::App* command = app.add_subcommand(
      "price", "What each algorithm between hosts would cost on any number of them, simulated; start it alone");
  command->add_option("--operation", options.operation, "Which collective, or all")
      ->check(CLI::IsMember(
          {"allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "alltoall", "barrier", "all"}))
      ->capture_default_str();
  command->add_option("--ranks", options.ranks, "How many hosts, by commas")
      ->check(CLI::Range(1, 1 << 20))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("-b,--begin", options.begin, "Smallest size in bytes (8, 64K, 256M, 1G)")->capture_default_str();
  command->add_option("-e,--end", options.end, "Largest size")->capture_default_str();
  command->add_option("-f,--factor", options.factor, "From one size to the next")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--latency", options.latency, "Of every link, in us")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  command->add_option("--bandwidth", options.bandwidth, "Of every host's port each way, in Gbit/s")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--reduction", options.reduction, "How fast a host reduces what arrives, in GB/s")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--json", options.json, "Also write JSON lines to this file");
}

void AddStep(CLI::App& app, gyre::bench::StepOptions& options) {
  CLI::App* command = app.add_subcommand("step", "A training step of a model: what the exchange of gradients adds");
  std::vector<std::string> models;
  for (const std::string_view name : gyre::bench::ModelNames()) models.emplace_back(name);
  command->add_option("--model", options.models, "Which networks, by commas")
      ->check(CLI::IsMember(models))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--buffers", options.buffers, "Where Gyre's gradients lie: arena, plain, or both by a comma")
      ->check(CLI::IsMember({"arena", "plain"}))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--against", options.against, "Interleave with peers in the same processes, by commas")
      ->check(CLI::IsMember({"gyre-by-size", "gyre-by-readiness", "gyre-wait-for-all", "gyre-per-tensor",
                             "gyre-timeline", "mpi-per-tensor", "mpi-bucketed", "gloo-bucketed"}))
      ->delimiter(',');
  command
      ->add_option("--compression", options.compression,
                   "Also with compressed gradients, by commas: dgc:0.999, int8, fp16:always, ... (only where it is "
                   "sooner, but for :always)")
      ->delimiter(',');
  command->add_option("--compute", options.compute, "What computes: an accelerator (sleep), this processor, nothing")
      ->check(CLI::IsMember({"sleep", "cpu", "none"}))
      ->capture_default_str();
  command->add_option("--rate", options.rate, "How fast that is, in GFLOP/s a rank")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--batch", options.batch, "Samples a rank and step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--steps", options.steps, "Steps that are timed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--check,!--no-check", options.check, "Check the sums before and after (on by default)");
  command->add_flag("--tune", options.tune,
                    "Also with ReducerOptions::tune (\"gyre-tuned\"): plans are tried before steps are timed");
  command->add_flag("--early-forward", options.early_forward,
                    "A step's forward pass comes last, and waits layer by layer for the gradients of each");
  command->add_option("--json", options.json, "Also write JSON lines to this file");
}

void AddCompression(CLI::App& app, gyre::bench::CompressionOptions& options) {
  CLI::App* command =
      app.add_subcommand("compression", "Codecs on one core: speed and the sender's ratio; start it alone");
  command->add_option("--methods", options.methods, "Codecs (names as in gyre/compression.h), dgc-pass, index-codes")
      ->delimiter(',')
      ->capture_default_str();
  command->add_flag("--models", options.models, "Instead, what a rank sends of whole models with DGC, at --sparsity");
  command->add_option("-b,--bytes", options.size, "Of the gradient (64K, 64M, 256M)")->capture_default_str();
  command->add_option("--samples", options.samples, "Of each figure, of which the median is shown")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  command->add_option("--sparsity", options.sparsity, "Of dgc-pass, index-codes and --models")
      ->check(CLI::Range(0.0, 0.999999))
      ->capture_default_str();
  command->add_option("--link", options.link, "In Gbit/s; chooses how positions are coded")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--json", options.json, "Also write JSON lines to this file");
}

void AddTune(CLI::App& app, gyre::bench::TuneOptions& options) {
  CLI::App* command =
      app.add_subcommand("tune", "Which algorithm each size gets between hosts, with the time predicted for it");
  command->add_option("--hosts", options.hosts, "How many hosts, by commas")
      ->check(CLI::Range(2, 1 << 14))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--local", options.local, "Ranks on each host (0: one, or the job's)")
      ->check(CLI::Range(0, 1 << 10))
      ->capture_default_str();
  command->add_option("-b,--begin", options.begin, "Smallest size in bytes (8, 64K, 256M, 1G)")->capture_default_str();
  command->add_option("-e,--end", options.end, "Largest size")->capture_default_str();
  command->add_option("-f,--factor", options.factor, "From one size to the next")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  CLI::Option* latency = command->add_option("--latency", options.latency, "Of every link, in us")
                             ->check(CLI::Range(0.001, 1e6))
                             ->capture_default_str();
  CLI::Option* bandwidth =
      command->add_option("--bandwidth", options.bandwidth, "Of every host's port each way, in Gbit/s")
          ->check(CLI::PositiveNumber)
          ->capture_default_str();
  command->add_option("--reduction", options.reduction, "How fast a rank reduces what arrives, in GB/s")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_flag("--measured", options.measured,
                 "For this job's hosts, with what it has measured at its start; under gyrerun -H")
      ->excludes(latency)
      ->excludes(bandwidth);
  command->add_option("--algorithms", options.algorithms, "Forced ones, as GYRE_ALGORITHMS has them");
}

// What follows is the other program's, --help too.
void AddGpu(CLI::App& app, std::vector<std::string>& arguments) {
  CLI::App* command = app.add_subcommand("gpu", "Kernels and collectives on GPUs: gyre-bench gpu --help");
  command->set_help_flag();
  command->prefix_command();
  command->callback([command, &arguments] { arguments = command->remaining(); });
}

// Of all subcommands; one of them is chosen.
struct Options {
  gyre::bench::CollectiveOptions collective;
  gyre::bench::SweepOptions memory;
  gyre::bench::KernelOptions kernels;
  gyre::bench::NamedOptions named;
  gyre::bench::ServersOptions servers;
  gyre::bench::ServerRowsOptions server_rows;
  gyre::bench::ServedStepsOptions served_steps;
  gyre::bench::AdviseOptions advise;
  gyre::bench::ScalingOptions scaling;
  gyre::bench::PriceOptions price;
  gyre::bench::StepOptions step;
  gyre::bench::CompressionOptions compression;
  gyre::bench::TuneOptions tune;
  std::vector<std::string> gpu;
};

absl::Status Run(const CLI::App& app, const Options& options, const std::string& line) {
  if (app.got_subcommand("kernels")) return gyre::bench::RunKernels(options.kernels);
  if (app.got_subcommand("compression")) return gyre::bench::RunCompression(options.compression, line);
  if (app.got_subcommand("named")) return gyre::bench::RunNamed(options.named);
  if (app.got_subcommand("ps")) {
    gyre::bench::ServerRowsOptions rows = options.server_rows;
    rows.samples = options.servers.samples;
    return rows.rows > 0 ? gyre::bench::RunServerRows(rows) : gyre::bench::RunServers(options.servers);
  }
  if (app.got_subcommand("ps-steps")) return gyre::bench::RunServedSteps(options.served_steps);
  if (app.got_subcommand("advise")) return gyre::bench::RunAdvise(options.advise);
  if (app.got_subcommand("ps-vs-allreduce")) return gyre::bench::RunScaling(options.scaling, line);
  if (app.got_subcommand("price")) return gyre::bench::RunPrice(options.price, line);
  if (app.got_subcommand("step")) return gyre::bench::RunStep(options.step, line);
  if (app.got_subcommand("tune")) return gyre::bench::RunTune(options.tune, line);
  if (app.got_subcommand("gpu")) return gyre::bench::RunGpu(options.gpu);
  if (app.got_subcommand("memory")) return gyre::bench::RunMemory(options.memory, line);
  const auto* const chosen = std::ranges::find_if(kOperations, [&app](Operation operation) {
    return app.got_subcommand(std::string(gyre::bench::OperationName(operation)));
  });
  return gyre::bench::RunCollective(*chosen, options.collective, line);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures Gyre. Start it under gyrerun -np N, or mpirun -np N to compare with MPI.", "gyre-bench");
  app.set_version_flag("--version", "gyre-bench " GYRE_VERSION_STRING);
  app.set_help_all_flag("--help-all", "Print the help of all subcommands and exit");
  app.require_subcommand(1, 1);
  Options options;
  for (const Operation operation : kOperations) AddCollective(app, operation, options.collective);
  AddMemory(app, options.memory);
  AddKernels(app, options.kernels);
  AddNamed(app, options.named);
  AddServers(app, options.servers, options.server_rows);
  AddServedSteps(app, options.served_steps);
  AddAdvise(app, options.advise);
  AddScaling(app, options.scaling);
  AddPrice(app, options.price);
  AddStep(app, options.step);
  AddCompression(app, options.compression);
  AddTune(app, options.tune);
  AddGpu(app, options.gpu);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 64;
  }
  const absl::Status status = Run(app, options, CommandLine(argc, argv));
  if (status.ok()) return 0;
  std::cerr << "gyre-bench: " << status << "\n";
  return status.code() == absl::StatusCode::kInvalidArgument ? 64 : 1;
}
