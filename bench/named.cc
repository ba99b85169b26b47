// gyre-bench named: one operation by name, from its submission to its end.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "commands.h"
#include "gyre/gyre.h"
#include "gyre/status_macros.h"
#include "sizes.h"
#include "timing.h"

namespace gyre::bench {

namespace {

struct NamedRow {
  const char* what;
  Times times;
};

// Until it is done, without any help by this thread.
absl::Status Watch(Work work) {
  while (!work.Done()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  return work.Wait();
}

// The slowest rank of each sample counts. `name`: of the sample with this number. `attended`: somebody waits.
template <typename Name>
absl::StatusOr<Times> Sample(Communicator& world, NamedOperations& named, std::vector<float>& data, int samples,
                             Name name, bool attended = true) {
  std::vector<double> times(static_cast<size_t>(samples));
  for (size_t i = 0; i < times.size(); ++i) {
    RETURN_IF_ERROR(world.Barrier());
    const auto start = std::chrono::steady_clock::now();
    Work work = named.AllReduce(name(i), data, {.op = ReduceOp::kMax});
    RETURN_IF_ERROR(attended ? work.Wait() : Watch(std::move(work)));
    times[i] = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }
  RETURN_IF_ERROR(world.AllReduce(times, {.op = ReduceOp::kMax}));
  return Summarize(std::move(times));
}

}  // namespace

absl::Status RunNamed(const NamedOptions& options) {
  ASSIGN_OR_RETURN(const int64_t bytes, ParseSize(options.size));
  ASSIGN_OR_RETURN(auto runtime, Runtime::Create());
  Communicator& world = runtime->world();
  ASSIGN_OR_RETURN(auto named, NamedOperations::Create(world));
  std::vector<float> data(static_cast<size_t>(std::max<int64_t>(1, bytes / 4)), 1.0f);
  // Names that never come again are negotiated each time; one that does is frozen after three times.
  const auto fresh = [](size_t i) { return std::to_string(i); };
  const auto same = [](size_t) { return std::string("same"); };
  RETURN_IF_ERROR(Sample(world, *named, data, 20, same).status());
  const NamedStatistics before = named->statistics();
  ASSIGN_OR_RETURN(const Times frozen, Sample(world, *named, data, options.samples, same));
  const NamedStatistics after = named->statistics();
  ASSIGN_OR_RETURN(const Times unattended, Sample(world, *named, data, options.samples, same, false));
  ASSIGN_OR_RETURN(const Times negotiated, Sample(world, *named, data, options.samples, fresh));
  RETURN_IF_ERROR(world.Barrier());
  if (world.rank() != 0) return absl::OkStatus();
  std::printf("# allreduce of %lld bytes by name, %d ranks, submission to end, us\n", static_cast<long long>(bytes),
              world.size());
  std::printf("#      order       min    median       p99\n");
  for (const NamedRow& row :
       {NamedRow{"frozen", frozen}, NamedRow{"unattended", unattended}, NamedRow{"negotiated", negotiated}}) {
    std::printf("%12s %9.2f %9.2f %9.2f\n", row.what, row.times.min, row.times.median, row.times.p99);
  }
  std::printf("# control messages of rank 0 in %lld frozen operations: %lld\n",
              static_cast<long long>(after.frozen_operations - before.frozen_operations),
              static_cast<long long>(after.control_messages - before.control_messages));
  return absl::OkStatus();
}

}  // namespace gyre::bench
