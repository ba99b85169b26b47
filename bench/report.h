// The benchmark's output: nccl-tests' columns for people, JSON lines for programs.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::bench {

// Times of one operation in microseconds, each the maximum over the ranks.
struct Times {
  double min = 0, median = 0, p99 = 0;
};
Times Summarize(std::vector<double> samples);

struct Measurement {
  std::string lib;
  std::string op;     // "allreduce"
  std::string redop;  // "sum"
  int ranks = 1;
  int hosts = 1;
  int64_t bytes = 0;
  int64_t count = 0;
  std::string dtype;
  std::string buffers;  // "arena" or "plain"
  bool in_place = false;
  Times times;
  std::optional<int64_t> wrong;  // elements, over all ranks; empty: not checked

  double algbw() const { return static_cast<double>(bytes) / times.median * 1e-3; }  // GB/s, GB = 1e9 bytes
  double busbw() const { return algbw() * 2 * (ranks - 1) / ranks; }                 // of an allreduce
};

std::string ToJson(const Measurement& measurement);

// Writes to standard output, and JSON lines to a file if one was asked for. Only rank 0 makes one.
class Report {
 public:
  static absl::StatusOr<std::unique_ptr<Report>> Open(const std::string& json_path);
  void Header(const std::string& command, int ranks, int hosts);
  // Out of place and in place of one library at one size; `ratio`: how many times the reference's median time was
  // (in place), empty for the reference itself.
  void Row(const Measurement& out_of_place, const Measurement& in_place, std::optional<double> ratio);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> json_;
};

}  // namespace gyre::bench
