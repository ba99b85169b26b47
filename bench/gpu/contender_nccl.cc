#include <array>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/collective.h"
#include "gpu/mirrored.h"
#include "gyre/status_macros.h"
#include "nccl.h"

namespace gyre::bench::gpu {

namespace {

absl::Status CheckNccl(ncclResult_t result, std::string_view what) {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("NCCL: ", std::string(what), ": ", ncclGetErrorString(result)));
}

absl::StatusOr<ncclDataType_t> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kU8: return ncclUint8;
    case DType::kI8: return ncclInt8;
    case DType::kI32: return ncclInt32;
    case DType::kI64: return ncclInt64;
    case DType::kF16: return ncclFloat16;
    case DType::kBF16: return ncclBfloat16;
    case DType::kF32: return ncclFloat32;
    case DType::kF64: return ncclFloat64;
    case DType::kI16:
    case DType::kU16:
    case DType::kBool: break;
  }
  return absl::UnimplementedError(absl::StrCat("NCCL has no ", std::string(DTypeName(dtype))));
}

absl::StatusOr<ncclRedOp_t> OpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return ncclSum;
    case ReduceOp::kAverage: return ncclAvg;
    case ReduceOp::kMin: return ncclMin;
    case ReduceOp::kMax: return ncclMax;
    case ReduceOp::kProduct: return ncclProd;
    case ReduceOp::kAdasum: break;
  }
  return absl::UnimplementedError(absl::StrCat("NCCL has no ", std::string(ReduceOpName(op))));
}

class Nccl final : public Contender {
 public:
  Nccl(ncclComm_t communicator, Stream stream) : communicator_(communicator), stream_(std::move(stream)) {}
  ~Nccl() override { ncclCommDestroy(communicator_); }

  std::string name() const override { return "nccl"; }

  absl::Status Prepare(const Task& task) override {
    task_ = task;
    in_ = Memory();
    out_ = Memory();
    ASSIGN_OR_RETURN(type_, TypeOf(task.dtype));
    ASSIGN_OR_RETURN(op_, OpOf(task.op));
    ASSIGN_OR_RETURN(in_, Memory::Make(task.send_bytes()));
    ASSIGN_OR_RETURN(out_, Memory::Make(task.receive_bytes()));
    mirrored_.Attach(task, in_.data(), out_.data());
    return absl::OkStatus();
  }

  bool Supports(bool in_place) const override { return !in_place || task_.operation != Operation::kAllToAll; }
  Ends ends(bool in_place) override { return mirrored_.on_host(in_place); }
  absl::Status Upload(bool /*in_place*/) override { return mirrored_.Upload(); }
  absl::Status Download(bool /*in_place*/) override { return mirrored_.Download(); }
  absl::Status Finish() override { return stream_.Synchronize(); }

  absl::Status Run(bool in_place) override {
    const Ends at = mirrored_.on_gpu(in_place);
    const auto count = static_cast<size_t>(task_.count);
    cudaStream_t const stream = stream_.get();
    switch (task_.operation) {
      case Operation::kAllReduce:
        return CheckNccl(ncclAllReduce(at.send, at.result, count, type_, op_, communicator_, stream), "allreduce");
      case Operation::kReduceScatter:
        return CheckNccl(ncclReduceScatter(at.send, at.result, count, type_, op_, communicator_, stream),
                         "reduce_scatter");
      case Operation::kAllGather:
        return CheckNccl(ncclAllGather(at.send, at.result, count, type_, communicator_, stream), "allgather");
      case Operation::kBroadcast:
        return CheckNccl(ncclBroadcast(at.send, at.result, count, type_, task_.root, communicator_, stream),
                         "broadcast");
      case Operation::kAllToAll: return AllToAll(at);
      case Operation::kCopy: break;
    }
    return absl::UnimplementedError("NCCL has no such operation");
  }

 private:
  absl::Status AllToAll(const Ends& at) {
    const int64_t segment = task_.count * DTypeSize(task_.dtype);
    const auto count = static_cast<size_t>(task_.count);
    RETURN_IF_ERROR(CheckNccl(ncclGroupStart(), "alltoall"));
    for (int peer = 0; peer < task_.ranks; ++peer) {
      RETURN_IF_ERROR(
          CheckNccl(ncclSend(at.send + peer * segment, count, type_, peer, communicator_, stream_.get()), "alltoall"));
      RETURN_IF_ERROR(CheckNccl(ncclRecv(at.result + peer * segment, count, type_, peer, communicator_, stream_.get()),
                                "alltoall"));
    }
    return CheckNccl(ncclGroupEnd(), "alltoall");
  }

  ncclComm_t const communicator_;
  const Stream stream_;
  Task task_;
  ncclDataType_t type_ = ncclFloat32;
  ncclRedOp_t op_ = ncclSum;
  Memory in_, out_;
  Mirrored mirrored_;
};

// Whether each rank has a GPU of its own, by their UUIDs.
absl::Status CheckApart(Communicator& world, int gpu) {
  cudaDeviceProp properties;
  RETURN_IF_ERROR(gpu::Check(cudaGetDeviceProperties(&properties, gpu), "asking what the GPU is"));
  using Uuid = std::array<uint8_t, sizeof(properties.uuid.bytes)>;
  Uuid mine;
  std::memcpy(mine.data(), properties.uuid.bytes, mine.size());
  std::vector<uint8_t> all(mine.size() * static_cast<size_t>(world.size()));
  RETURN_IF_ERROR(world.AllGather(mine, all));
  std::set<Uuid> apart;
  for (int rank = 0; rank < world.size(); ++rank) {
    Uuid uuid;
    std::memcpy(uuid.data(), &all[static_cast<size_t>(rank) * uuid.size()], uuid.size());
    if (!apart.insert(uuid).second) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " has the same GPU as another one, which NCCL refuses"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Contender>> MakeNccl(Communicator& world, int gpu) {
  RETURN_IF_ERROR(CheckApart(world, gpu));
  ncclUniqueId id = {};
  if (world.rank() == 0) RETURN_IF_ERROR(CheckNccl(ncclGetUniqueId(&id), "making an id"));
  RETURN_IF_ERROR(world.Broadcast(TensorView(&id, sizeof(id), DType::kU8), 0));
  ASSIGN_OR_RETURN(Stream stream, Stream::Make());
  ncclComm_t communicator = nullptr;
  RETURN_IF_ERROR(CheckNccl(ncclCommInitRank(&communicator, world.size(), id, world.rank()), "making a communicator"));
  return std::make_unique<Nccl>(communicator, std::move(stream));
}

}  // namespace gyre::bench::gpu
