#include <mpi.h>

#include <cstdlib>
#include <limits>
#include <optional>
#include <vector>

#include "contender.h"

namespace gyre::bench {

namespace {

std::optional<MPI_Datatype> ToMpi(DType dtype) {
  switch (dtype) {
    case DType::kU8: return MPI_UINT8_T;
    case DType::kI8: return MPI_INT8_T;
    case DType::kI16: return MPI_INT16_T;
    case DType::kU16: return MPI_UINT16_T;
    case DType::kI32: return MPI_INT32_T;
    case DType::kI64: return MPI_INT64_T;
    case DType::kF32: return MPI_FLOAT;
    case DType::kF64: return MPI_DOUBLE;
    default: return std::nullopt;
  }
}

std::optional<MPI_Op> ToMpi(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return MPI_SUM;
    case ReduceOp::kMin: return MPI_MIN;
    case ReduceOp::kMax: return MPI_MAX;
    case ReduceOp::kProduct: return MPI_PROD;
    default: return std::nullopt;
  }
}

class MpiContender final : public Contender {
 public:
  std::string name() const override { return "mpi"; }

  absl::Status Prepare(const Task& task) override {
    const auto dtype = ToMpi(task.dtype);
    const auto op = ToMpi(task.op);
    if (!dtype || !op) return absl::UnimplementedError("MPI has no such dtype or reduction");
    if (task.count > std::numeric_limits<int>::max()) return absl::UnimplementedError("MPI's counts are int");
    task_ = task;
    count_ = static_cast<int>(task.count);
    dtype_ = *dtype;
    op_ = *op;
    in_.assign(static_cast<size_t>(task.send_bytes()), std::byte{0});
    out_.assign(static_cast<size_t>(task.receive_bytes()), std::byte{0});
    return absl::OkStatus();
  }

  bool Supports(bool in_place) const override { return in_place || task_.operation != Operation::kBroadcast; }

  Ends ends(bool in_place) override {
    // In place MPI leaves what it scattered at the start of the whole, whatever the rank.
    if (in_place && task_.operation == Operation::kReduceScatter) return {in_.data(), in_.data()};
    return EndsOf(task_, in_.data(), out_.data(), in_place);
  }

  absl::Status Run(bool in_place) override {
    return Call(in_place) == MPI_SUCCESS ? absl::OkStatus() : absl::InternalError("MPI's collective failed");
  }

 private:
  int Call(bool in_place) {
    const void* const send = in_place ? MPI_IN_PLACE : in_.data();
    void* const out = out_.data();
    switch (task_.operation) {
      case Operation::kAllReduce: return MPI_Allreduce(send, out, count_, dtype_, op_, MPI_COMM_WORLD);
      case Operation::kReduceScatter:
        return MPI_Reduce_scatter_block(send, in_place ? in_.data() : out, count_, dtype_, op_, MPI_COMM_WORLD);
      case Operation::kAllGather: return MPI_Allgather(send, count_, dtype_, out, count_, dtype_, MPI_COMM_WORLD);
      case Operation::kBroadcast: return MPI_Bcast(out, count_, dtype_, task_.root, MPI_COMM_WORLD);
      case Operation::kAllToAll: return MPI_Alltoall(send, count_, dtype_, out, count_, dtype_, MPI_COMM_WORLD);
      case Operation::kCopy: break;
    }
    return MPI_ERR_UNSUPPORTED_OPERATION;
  }

  Task task_;
  int count_ = 0;
  MPI_Datatype dtype_ = MPI_FLOAT;
  MPI_Op op_ = MPI_SUM;
  std::vector<std::byte> in_, out_;
};

absl::Status Sum(std::span<float> data) {
  if (data.size() > std::numeric_limits<int>::max()) return absl::UnimplementedError("MPI's counts are int");
  const int result =
      MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return result == MPI_SUCCESS ? absl::OkStatus() : absl::InternalError("MPI's allreduce failed");
}

class OpenMpiSession final : public MpiSession {
 public:
  OpenMpiSession() { MPI_Init(nullptr, nullptr); }
  ~OpenMpiSession() override { MPI_Finalize(); }
  std::unique_ptr<Contender> MakeContender() override { return std::make_unique<MpiContender>(); }
  SumInPlace MakeSum() override { return Sum; }
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpiSession>> MpiSession::Start() {
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) {
    return absl::FailedPreconditionError("--against mpi needs ranks that Open MPI's mpirun started");
  }
  return std::make_unique<OpenMpiSession>();
}

}  // namespace gyre::bench
