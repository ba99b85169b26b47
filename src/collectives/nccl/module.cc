// libgyre_nccl: all that calls NCCL.
#include "collectives/nccl/module.h"

#include <nccl.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cuda_runtime_api.h"
#include "device/cuda_context/current.h"
#include "gyre/status_macros.h"
#include "gyre/version.h"

namespace gyre::internal::nccl {

namespace {

// Meanwhile nothing that NCCL does on this thread spoils a graph that the program captures; on threads of its own,
// where it makes communicators and launches, NCCL sees to that itself, or not.
using device::cuda::Current;
using device::cuda::PrimaryContext;

absl::StatusOr<bool> ToProgress(ncclResult_t result, std::string_view what, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess) return true;
  if (result == ncclInProgress) return false;
  const char* const last = ncclGetLastError(comm);
  const std::string text = absl::StrCat(std::string(what), ": ", ncclGetErrorString(result),
                                        last != nullptr && *last != '\0' ? ": " : "", last != nullptr ? last : "");
  switch (result) {
    case ncclRemoteError:
    case ncclSystemError: return absl::UnavailableError(text);
    default: return absl::InternalError(text);
  }
}

absl::Status NcclStatus(ncclResult_t result, std::string_view what, ncclComm_t comm = nullptr) {
  return ToProgress(result, what, comm).status();
}

// Reductions of 16-bit integers are not asked for (plan.h).
ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kI8: return ncclInt8;
    case DType::kI32: return ncclInt32;
    case DType::kI64: return ncclInt64;
    case DType::kF16: return ncclFloat16;
    case DType::kBF16: return ncclBfloat16;
    case DType::kF32: return ncclFloat32;
    case DType::kF64: return ncclFloat64;
    default: return ncclUint8;
  }
}

ncclRedOp_t OperationOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAverage: return ncclAvg;
    case ReduceOp::kMin: return ncclMin;
    case ReduceOp::kMax: return ncclMax;
    case ReduceOp::kProduct: return ncclProd;
    default: return ncclSum;
  }
}

class NcclComm final : public Comm {
 public:
  explicit NcclComm(const PrimaryContext& gpu) : gpu_(gpu) {}

  ~NcclComm() override {
    const ncclComm_t comm = comm_;
    if (comm == nullptr) return;
    const Current current(gpu_);
    if (finalized_) {
      ncclCommDestroy(comm);
    } else {
      ncclCommAbort(comm);
    }
  }

  absl::Status Begin(const UniqueId& id, int rank, int size) {
    const Current current(gpu_);
    RETURN_IF_ERROR(current.status());
    ncclUniqueId unique;
    static_assert(sizeof unique == sizeof id);
    std::memcpy(&unique, id.data(), sizeof unique);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    const ncclResult_t begun = ncclCommInitRankConfig(&comm, size, unique, rank, &config);
    comm_ = comm;
    return NcclStatus(begun, "ncclCommInitRankConfig");
  }

  absl::StatusOr<void*> Register(void* memory, int64_t bytes) override {
    const Current current(gpu_);
    RETURN_IF_ERROR(current.status());
    void* handle = nullptr;
    RETURN_IF_ERROR(
        NcclStatus(ncclCommRegister(comm_, memory, static_cast<size_t>(bytes), &handle), "ncclCommRegister", comm_));
    return handle;
  }

  absl::Status Deregister(void* handle) override {
    const Current current(gpu_);
    RETURN_IF_ERROR(current.status());
    const ncclComm_t comm = comm_;  // an Abort may come meanwhile
    if (comm == nullptr) return absl::OkStatus();
    return NcclStatus(ncclCommDeregister(comm, handle), "ncclCommDeregister");
  }

  absl::StatusOr<bool> Poll() override {
    if (comm_ == nullptr) return absl::FailedPreconditionError("NCCL: the communicator was aborted");
    ncclResult_t state = ncclSuccess;
    RETURN_IF_ERROR(NcclStatus(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_));
    return ToProgress(state, "NCCL", comm_);
  }

  absl::StatusOr<bool> Launch(std::span<const Transfer> group, void* stream) override {
    const Current current(gpu_);
    RETURN_IF_ERROR(current.status());
    ForgetScaled();
    for (const Transfer& transfer : group) RETURN_IF_ERROR(MakeScaled(transfer));
    RETURN_IF_ERROR(NcclStatus(ncclGroupStart(), "ncclGroupStart"));
    absl::Status status;
    for (const Transfer& transfer : group) {
      status = NcclStatus(Call(transfer, static_cast<cudaStream_t>(stream)), "NCCL", comm_);
      if (!status.ok()) break;
    }
    // Also after an error: the group is this thread's, and must not swallow other calls of its.
    const ncclResult_t end = ncclGroupEnd();
    if (!status.ok()) return status;
    return ToProgress(end, "ncclGroupEnd", comm_);
  }

  absl::StatusOr<bool> Finalize() override {
    const Current current(gpu_);
    finalized_ = true;
    return ToProgress(ncclCommFinalize(comm_), "ncclCommFinalize", comm_);
  }

  void Abort() override {
    const ncclComm_t comm = comm_.exchange(nullptr);
    if (comm == nullptr) return;
    const Current current(gpu_);
    ncclCommAbort(comm);
  }

 private:
  // NCCL's operations with a scale are made before. They take room in NCCL for as long as the communicator lives, and
  // programs have new scales at every step: NCCL lets them go once the calls that were given them have returned, which
  // is so when the next is made.
  void ForgetScaled() {
    constexpr size_t kMost = 16;
    if (scaled_.size() < kMost) return;
    for (const auto& [key, operation] : scaled_) ncclRedOpDestroy(operation, comm_);
    scaled_.clear();
  }

  static std::pair<DType, uint64_t> KeyOf(const Transfer& transfer) {
    return {transfer.dtype, std::bit_cast<uint64_t>(transfer.combination.scale)};
  }

  absl::Status MakeScaled(const Transfer& transfer) {
    const double scale = transfer.combination.scale;
    if (scale == 1.0) return absl::OkStatus();
    const auto key = KeyOf(transfer);
    if (scaled_.contains(key)) return absl::OkStatus();
    ncclRedOp_t made = ncclSum;
    alignas(8) std::array<std::byte, 8> scalar = {};
    const auto put = [&](auto value) { std::memcpy(scalar.data(), &value, sizeof value); };
    switch (transfer.dtype) {
      case DType::kF16: put(Float16(static_cast<float>(scale))); break;
      case DType::kBF16: put(BFloat16(static_cast<float>(scale))); break;
      case DType::kF64: put(scale); break;
      default: put(static_cast<float>(scale)); break;
    }
    RETURN_IF_ERROR(NcclStatus(
        ncclRedOpCreatePreMulSum(&made, scalar.data(), TypeOf(transfer.dtype), ncclScalarHostImmediate, comm_),
        "ncclRedOpCreatePreMulSum", comm_));
    scaled_[key] = made;
    return absl::OkStatus();
  }

  ncclRedOp_t Operation(const Transfer& transfer) const {
    const double scale = transfer.combination.scale;
    return scale == 1.0 ? OperationOf(transfer.combination.op) : scaled_.at(KeyOf(transfer));
  }

  ncclResult_t Call(const Transfer& t, cudaStream_t stream) const {
    const auto count = static_cast<size_t>(t.count);
    const ncclDataType_t type = TypeOf(t.dtype);
    switch (t.kind) {
      case Transfer::Kind::kAllReduce: return ncclAllReduce(t.in, t.out, count, type, Operation(t), comm_, stream);
      case Transfer::Kind::kReduceScatter:
        return ncclReduceScatter(t.in, t.out, count, type, Operation(t), comm_, stream);
      case Transfer::Kind::kAllGather: return ncclAllGather(t.in, t.out, count, type, comm_, stream);
      case Transfer::Kind::kBroadcast: return ncclBroadcast(t.in, t.out, count, type, t.root, comm_, stream);
      case Transfer::Kind::kReduce: return ncclReduce(t.in, t.out, count, type, Operation(t), t.root, comm_, stream);
      case Transfer::Kind::kSend: return ncclSend(t.in, count, type, t.root, comm_, stream);
      case Transfer::Kind::kReceive: return ncclRecv(t.out, count, type, t.root, comm_, stream);
    }
    return ncclInvalidArgument;
  }

  const PrimaryContext gpu_;
  std::atomic<ncclComm_t> comm_{nullptr};
  bool finalized_ = false;
  std::map<std::pair<DType, uint64_t>, ncclRedOp_t> scaled_;  // by the scale's bits: NaNs have no order
};

class NcclApi final : public Api {
 public:
  int version() const override {
    int version = 0;
    return ncclGetVersion(&version) == ncclSuccess ? version : 0;
  }

  absl::StatusOr<void*> Allocate(int gpu, int64_t bytes) override {
    ASSIGN_OR_RETURN(const PrimaryContext primary, Open(gpu));
    const Current current(primary);
    RETURN_IF_ERROR(current.status());
    void* memory = nullptr;
    RETURN_IF_ERROR(NcclStatus(ncclMemAlloc(&memory, static_cast<size_t>(bytes)), "ncclMemAlloc"));
    return memory;
  }

  void Free(int gpu, void* memory) override {
    const auto primary = Open(gpu);
    if (!primary.ok()) return;
    const Current current(*primary);
    ncclMemFree(memory);
  }

  absl::StatusOr<UniqueId> MakeId() override {
    ncclUniqueId unique;
    RETURN_IF_ERROR(NcclStatus(ncclGetUniqueId(&unique), "ncclGetUniqueId"));
    UniqueId id;
    std::memcpy(id.data(), &unique, sizeof unique);
    return id;
  }

  absl::StatusOr<std::unique_ptr<Comm>> Init(const UniqueId& id, int rank, int size, int gpu) override {
    ASSIGN_OR_RETURN(const PrimaryContext primary, Open(gpu));
    auto comm = std::make_unique<NcclComm>(primary);
    RETURN_IF_ERROR(comm->Begin(id, rank, size));
    return comm;
  }

 private:
  absl::StatusOr<PrimaryContext> Open(int gpu) {
    std::lock_guard lock(mutex_);
    const auto known = opened_.find(gpu);
    if (known != opened_.end()) return known->second;
    ASSIGN_OR_RETURN(const PrimaryContext primary, device::cuda::OpenPrimaryContext(gpu));
    opened_.emplace(gpu, primary);
    return primary;
  }

  std::mutex mutex_;
  std::map<int, PrimaryContext> opened_;  // guarded by mutex_
};

}  // namespace

}  // namespace gyre::internal::nccl

extern "C" __attribute__((visibility("default"))) const gyre::internal::nccl::Module* gyre_nccl_module() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): NCCL is the process's, and outlives all
  static auto* const api = new gyre::internal::nccl::NcclApi;
  static const gyre::internal::nccl::Module module = {GYRE_VERSION_STRING, api};
  return &module;
}
