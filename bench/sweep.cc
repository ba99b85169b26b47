#include "sweep.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gyre/status_macros.h"
#include "pattern.h"
#include "sizes.h"
#include "timing.h"

namespace gyre::bench {

absl::StatusOr<Sweep> Sweep::Create(const SweepOptions& options, Communicator& world) {
  Sweep sweep(world);
  ASSIGN_OR_RETURN(const int64_t begin, ParseSize(options.begin));
  ASSIGN_OR_RETURN(const int64_t end, ParseSize(options.end));
  const auto dtype = ParseDType(options.dtype);
  const auto op = ParseReduceOp(options.op);
  if (!dtype) return absl::InvalidArgumentError(absl::StrCat("unknown dtype '", options.dtype, "'"));
  if (!op || *op == ReduceOp::kAdasum)
    return absl::InvalidArgumentError(absl::StrCat("unknown reduction '", options.op, "'"));
  if (options.root >= world.size()) {
    return absl::InvalidArgumentError(absl::StrCat("root ", options.root, " is none of ", world.size(), " ranks"));
  }
  ASSIGN_OR_RETURN(sweep.sizes_, SizeRange(std::max(begin, DTypeSize(*dtype)), end, options.factor));
  if (options.buffers != "plain") sweep.buffers_.push_back(Buffers::kArena);
  if (options.buffers != "arena") sweep.buffers_.push_back(Buffers::kPlain);
  sweep.iterations_ = options.iterations;
  sweep.check_ = options.check;
  sweep.task_ = {.dtype = *dtype, .op = *op, .root = options.root, .rank = world.rank(), .ranks = world.size()};
  return sweep;
}

absl::Status Sweep::Run(Operation operation, std::span<const std::unique_ptr<Contender>> contenders, Report* report) {
  Task task = task_;
  task.operation = operation;
  int64_t wrong = 0;
  for (const int64_t bytes : sizes_) {
    task.count = CountFor(operation, bytes, task.dtype, task.ranks);
    for (const Buffers buffers : buffers_) {
      task.buffers = buffers;
      ASSIGN_OR_RETURN(const int64_t more, RunSize(task, contenders, report));
      wrong += more;
    }
  }
  if (wrong == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(wrong, " elements came out wrong"));
}

absl::StatusOr<int64_t> Sweep::RunSize(const Task& task, std::span<const std::unique_ptr<Contender>> contenders,
                                       Report* report) {
  for (const auto& contender : contenders) RETURN_IF_ERROR(contender->Prepare(task));
  ASSIGN_OR_RETURN(const auto out_of_place, RunForm(task, contenders, false));
  ASSIGN_OR_RETURN(const auto in_place, RunForm(task, contenders, true));
  int64_t wrong = 0;
  for (size_t c = 0; c < contenders.size(); ++c) {
    for (const auto* form : {&out_of_place[c], &in_place[c]}) wrong += *form ? (*form)->wrong.value_or(0) : 0;
    if (report != nullptr && (out_of_place[c] || in_place[c])) report->Row(out_of_place[c], in_place[c]);
  }
  return wrong;
}

// Elements that came out wrong, over all ranks.
absl::StatusOr<int64_t> Sweep::CountWrong(Contender& contender, const Task& task, bool in_place) {
  const Pattern pattern(task);
  const Ends at = contender.ends(in_place);
  pattern.Fill(at.send);
  RETURN_IF_ERROR(contender.Upload(in_place));
  RETURN_IF_ERROR(contender.Run(in_place));
  RETURN_IF_ERROR(contender.Finish());  // Download does not wait for what was queued
  RETURN_IF_ERROR(contender.Download(in_place));
  int64_t wrong = pattern.CountWrong(at.result);
  RETURN_IF_ERROR(world_.AllReduce(std::span(&wrong, 1)));
  return wrong;
}

absl::StatusOr<std::vector<std::optional<Measurement>>> Sweep::RunForm(
    const Task& task, std::span<const std::unique_ptr<Contender>> contenders, bool in_place) {
  std::vector<std::optional<Measurement>> measured(contenders.size());
  std::vector<Contender*> able;
  for (size_t c = 0; c < contenders.size(); ++c) {
    Contender& contender = *contenders[c];
    if (!contender.Supports(in_place)) continue;
    able.push_back(&contender);
    measured[c] = {.lib = contender.name(),
                   .task = task,
                   .hosts = world_.node_count(),
                   .buffers = contender.buffers(),
                   .in_place = in_place,
                   .times = {},
                   .wire_bytes = std::nullopt,
                   .wrong = std::nullopt,
                   .ratio = std::nullopt};
    if (check_ && contender.computes()) {
      ASSIGN_OR_RETURN(measured[c]->wrong, CountWrong(contender, task, in_place));
    }
    // Zeros stay zeros, however often they are summed in place.
    const Ends at = contender.ends(in_place);
    std::memset(at.send, 0, static_cast<size_t>(task.send_bytes()));
    std::memset(at.result, 0, static_cast<size_t>(task.receive_bytes()));
    RETURN_IF_ERROR(contender.Upload(in_place));
  }
  ASSIGN_OR_RETURN(auto samples, Measure(world_, able, in_place, EffortFor(task.bytes(), iterations_)));
  auto next = samples.begin();
  for (auto& each : measured) {
    if (!each) continue;
    each->times = Summarize(std::move(next->times));
    each->wire_bytes = next++->wire_bytes;
  }
  for (size_t c = 1; c < measured.size(); ++c) {
    if (measured[0] && measured[c]) measured[c]->ratio = measured[c]->times.median / measured[0]->times.median;
  }
  return measured;
}

}  // namespace gyre::bench
