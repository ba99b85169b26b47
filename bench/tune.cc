// gyre-bench tune: what would be chosen between hosts, and how long it should take.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "collectives/selection/selector.h"
#include "commands.h"
#include "gyre/gyre.h"
#include "gyre/status_macros.h"
#include "sizes.h"

namespace gyre::bench {

namespace {

using internal::Collective;
using internal::PathModel;
using internal::Selection;
using internal::SelectionCase;
using internal::Selector;

// Where the table is to be made, and for what.
struct Table {
  PathModel model;
  std::vector<int> hosts;
  int local;
  bool prints;  // one rank is enough
};

absl::StatusOr<Table> MeasuredTable(const TuneOptions& options) {
  ASSIGN_OR_RETURN(auto runtime, Runtime::Create());
  Communicator& world = runtime->world();
  const auto measured = runtime->network_model();
  if (!measured) return absl::FailedPreconditionError("--measured needs a job on several hosts: gyrerun -H a,b ...");
  const bool prints = world.rank() == 0;
  RETURN_IF_ERROR(world.Barrier());
  return Table{{.latency = measured->latency_us * 1e-6,
                .bytes_per_second = measured->gigabits_per_second * 1e9 / 8,
                .reduced_per_second = measured->reduced_gigabytes_per_second * 1e9},
               {world.node_count()},
               options.local > 0 ? options.local : world.size() / world.node_count(),
               prints};
}

Table GivenTable(const TuneOptions& options) {
  return {{.latency = options.latency * 1e-6,
           .bytes_per_second = options.bandwidth * 1e9 / 8,
           .reduced_per_second = options.reduction * 1e9},
          options.hosts,
          options.local > 0 ? options.local : 1,
          true};
}

void PrintChoice(Selector& selector, const SelectionCase& what) {
  const Selection selection = selector.Select(what);
  const bool chunked = what.operation == Collective::kAllReduce && selection.chunk_bytes < what.bytes;
  absl::PrintF("%15s %6d %6d %12d  %-20s %10s %14.2f\n", std::string(NameOf(what.operation)), what.hosts, what.local,
               what.bytes, std::string(NameOf(selection.algorithm)),
               chunked ? absl::StrFormat("%d", selection.chunk_bytes) : "-", selection.seconds * 1e6);
}

}  // namespace

absl::Status RunTune(const TuneOptions& options, const std::string& command) {
  ASSIGN_OR_RETURN(const int64_t begin, ParseSize(options.begin));
  ASSIGN_OR_RETURN(const int64_t end, ParseSize(options.end));
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, SizeRange(begin, end, options.factor));
  ASSIGN_OR_RETURN(const internal::ForcedAlgorithms forced, internal::ParseForcedAlgorithms(options.algorithms));
  Table table = GivenTable(options);
  if (options.measured) {
    ASSIGN_OR_RETURN(table, MeasuredTable(options));
  }
  if (!table.prints) return absl::OkStatus();
  Selector selector(table.model, forced);
  absl::PrintF("# %s; %s: %.2f us, %.3f Gbit/s each way, %.1f GB/s reduced\n", command,
               options.measured ? "measured" : "given", table.model.latency * 1e6, table.model.bytes_per_second * 8e-9,
               table.model.reduced_per_second * 1e-9);
  absl::PrintF("#%14s %6s %6s %12s  %-20s %10s %14s\n", "operation", "hosts", "local", "size", "algorithm", "chunk",
               "predicted");
  absl::PrintF("#%14s %6s %6s %12s  %-20s %10s %14s\n", "", "", "(each)", "(B)", "", "(B)", "(us)");
  for (int number = 0; number < internal::kCollectiveCount; ++number) {
    for (const int hosts : table.hosts) {
      for (const int64_t bytes : sizes) {
        PrintChoice(selector, {static_cast<Collective>(number), bytes, hosts, table.local, table.local});
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace gyre::bench
