#include <algorithm>
#include <utility>

#include "contender.h"
#include "device/reduce.h"
#include "gyre/status_macros.h"
#include "shared_memory.h"

namespace gyre::bench {

namespace {

class BoundContender final : public Contender {
 public:
  BoundContender(Communicator& world, std::unique_ptr<SharedMemory> memory, int64_t bytes)
      : world_(world), memory_(std::move(memory)), bytes_(bytes) {}

  std::string name() const override { return "bound"; }
  std::string buffers() const override { return "shared"; }

  absl::Status Prepare(const Task& task) override {
    if (task.operation != Operation::kAllReduce) return absl::UnimplementedError("the bound is an allreduce's");
    if (task.bytes() > bytes_) return absl::InternalError("a task larger than was announced");
    task_ = task;
    reduction_ = device::MakeReduction(task.dtype, task.op, 1, 1, task.ranks);
    return absl::OkStatus();
  }

  bool Supports(bool /*in_place*/) const override { return true; }

  Ends ends(bool in_place) override { return EndsOf(task_, In(task_.rank), Out(task_.rank), in_place); }

  absl::Status Run(bool in_place) override {
    const int64_t begin = SliceBegin(task_.rank);
    const int64_t offset = begin * DTypeSize(task_.dtype);
    sources_.clear();
    destinations_.clear();
    for (int rank = 0; rank < task_.ranks; ++rank) {
      sources_.push_back((in_place ? Out(rank) : In(rank)) + offset);
      destinations_.push_back(Out(rank) + offset);
    }
    RETURN_IF_ERROR(world_.Barrier());
    device::Reduce(reduction_, sources_, destinations_, SliceBegin(task_.rank + 1) - begin);
    return world_.Barrier();
  }

 private:
  std::byte* In(int rank) const { return memory_->of(rank); }
  std::byte* Out(int rank) const { return memory_->of(rank) + bytes_; }

  // Slices begin at multiples of 128 elements, and so on cache lines of their own.
  int64_t SliceBegin(int rank) const {
    if (rank == task_.ranks) return task_.count;
    return std::min(task_.count, task_.count / task_.ranks * rank / 128 * 128);
  }

  Communicator& world_;
  const std::unique_ptr<SharedMemory> memory_;  // of each rank: the inputs, then the results
  const int64_t bytes_;                         // of each of the two
  Task task_;
  device::Reduction reduction_;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contender>> MakeBound(Communicator& world, int64_t bytes) {
  const int64_t piece = (bytes + 4095) / 4096 * 4096;
  ASSIGN_OR_RETURN(auto memory, SharedMemory::Create(world, 2 * piece));
  return std::make_unique<BoundContender>(world, std::move(memory), piece);
}

}  // namespace gyre::bench
