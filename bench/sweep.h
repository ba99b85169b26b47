// Sweep: one operation over a range of sizes, all contenders interleaved, checked, measured and reported.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "contender.h"
#include "report.h"

namespace gyre::bench {

struct SweepOptions {
  std::string begin = "8";
  std::string end = "256M";
  int factor = 2;
  std::string buffers = "arena";  // or "plain", or "both"
  std::string dtype = "f32";
  std::string op = "sum";
  int root = 0;
  int iterations = 0;  // samples a size; 0: chosen by size
  bool check = true;
  std::string json{};  // a file; empty: none
};

class Sweep {
 public:
  // kInvalidArgument names the option.
  static absl::StatusOr<Sweep> Create(const SweepOptions& options, Communicator& world);

  int64_t largest() const { return sizes_.back(); }  // bytes of the longest task

  // All ranks call it alike; `report` is null on all but rank 0. kDataLoss if elements came out wrong, after all was
  // measured.
  absl::Status Run(Operation operation, std::span<const std::unique_ptr<Contender>> contenders, Report* report);

 private:
  explicit Sweep(Communicator& world) : world_(world) {}
  absl::StatusOr<int64_t> RunSize(const Task& task, std::span<const std::unique_ptr<Contender>> contenders,
                                  Report* report);
  absl::StatusOr<int64_t> CountWrong(Contender& contender, const Task& task, bool in_place);
  absl::StatusOr<std::vector<std::optional<Measurement>>> RunForm(
      const Task& task, std::span<const std::unique_ptr<Contender>> contenders, bool in_place);

  Communicator& world_;
  Task task_;                   // what all have in common
  std::vector<int64_t> sizes_;  // ascending, not empty
  int iterations_ = 0;
  bool check_ = true;
  std::vector<Buffers> buffers_;
};

}  // namespace gyre::bench
