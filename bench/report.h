// The benchmark's output: nccl-tests' columns for people, JSON lines for programs.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "gyre/communicator.h"
#include "output_file.h"
#include "task.h"
#include "timing.h"

namespace gyre::bench {

// One library's figures for one task, out of place or in place. Times are the slowest rank's.
struct Measurement {
  std::string lib;
  Task task;
  int hosts = 1;
  std::string buffers;  // "arena", "plain" or "shared"
  bool in_place = false;
  Times times;
  std::optional<int64_t> wire_bytes{};  // a call, from the host that sent most; empty: one host, or not told
  std::optional<int64_t> wrong;         // elements, over all ranks; empty: not checked
  std::optional<double> ratio;  // how many times the first library's median this one's is; empty for the first itself

  double algbw() const { return static_cast<double>(task.bytes()) / times.median * 1e-3; }  // GB/s, GB = 1e9 bytes
  double busbw() const { return algbw() * BusFactor(task.operation, task.ranks); }
};

// A line without its end.
std::string ToJson(const Measurement& measurement);
std::string ToColumns(const std::optional<Measurement>& out_of_place, const std::optional<Measurement>& in_place);

// Writes to standard output, and JSON lines to a file if one was asked for.
class Report {
 public:
  // With the head of the columns printed; null on the other ranks. `command`: as it was typed.
  static absl::StatusOr<std::unique_ptr<Report>> OpenOnRankZero(const std::string& json_path,
                                                                const std::string& command, const Communicator& world);
  // Of one library at one size; empty where it has no such form, but one of the two is there.
  void Row(const std::optional<Measurement>& out_of_place, const std::optional<Measurement>& in_place);

 private:
  static void PrintHead(const std::string& command, int ranks, int hosts);  // over several hosts, with wire bytes

  OutputFile json_;
};

}  // namespace gyre::bench
