// libgyre_mpi: all that calls MPI.
#include "collectives/mpi/module.h"

#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gyre/version.h"

namespace gyre::internal::mpi {

namespace {

// MPI is one for the process, and so is this: who may call it, and whether it can still be ended in order.
struct Process {
  std::mutex mutex;        // for calls of MPI; taken by all, as MPI need not support several threads at once
  bool abandoned = false;  // a request has not ended and never will: MPI_Finalize could wait for it
  pid_t number = 0;        // whose MPI it is, rather than a forked child's
};

Process& TheProcess() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): MPI is global
  static Process* const process = new Process;  // until after the functions of std::atexit
  return *process;
}

absl::Status ToStatus(int code, const char* what) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return absl::InternalError(absl::StrCat(what, ": ", std::string(text, static_cast<size_t>(length))));
}

void FinalizeAtExit() {
  Process& process = TheProcess();
  if (getpid() != process.number) return;  // a child that was forked: the others are not to take it for its parent
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && !process.abandoned) MPI_Finalize();
}

absl::Status Initialize() {
  int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) return absl::FailedPreconditionError("MPI was finalized in this process");
  if (initialized == 0) {
    if (absl::Status status = ToStatus(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init");
        !status.ok()) {
      return status;
    }
    TheProcess().number = getpid();
    std::atexit(FinalizeAtExit);
  }
  MPI_Query_thread(&level);
  if (level >= MPI_THREAD_SERIALIZED) return absl::OkStatus();
  return absl::FailedPreconditionError("MPI was initialized for one thread only; MPI_THREAD_SERIALIZED is needed");
}

class MpiRequest final : public Request {
 public:
  explicit MpiRequest(Transport::Memory memory) : memory_(std::make_unique<Transport::Memory>(std::move(memory))) {}

  ~MpiRequest() override {
    if (request_ == MPI_REQUEST_NULL) return;
    std::lock_guard lock(TheProcess().mutex);
    TheProcess().abandoned = true;
    // MPI cannot cancel a collective, and may write until the process ends.
    (void)memory_.release();
  }  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): on purpose

  absl::StatusOr<bool> Test() override {
    int done = 0;
    std::lock_guard lock(TheProcess().mutex);
    if (absl::Status status = ToStatus(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test"); !status.ok()) {
      return status;
    }
    return done != 0;
  }

  MPI_Request* handle() { return &request_; }

 private:
  std::unique_ptr<Transport::Memory> memory_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

MPI_Datatype TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kI8: return MPI_INT8_T;
    case DType::kI16: return MPI_INT16_T;
    case DType::kU16: return MPI_UINT16_T;
    case DType::kI32: return MPI_INT32_T;
    case DType::kI64: return MPI_INT64_T;
    case DType::kF32: return MPI_FLOAT;
    case DType::kF64: return MPI_DOUBLE;
    default: return MPI_UINT8_T;
  }
}

MPI_Op OperationOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin: return MPI_MIN;
    case ReduceOp::kMax: return MPI_MAX;
    case ReduceOp::kProduct: return MPI_PROD;
    default: return MPI_SUM;
  }
}

// NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker): what begins here, MpiRequest waits for.
class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(MPI_Comm world) : world_(world) {
    MPI_Comm_rank(world_, &rank_);
    MPI_Comm_size(world_, &size_);
    MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
  }

  ~MpiTransport() override {
    std::lock_guard lock(TheProcess().mutex);
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0 && !TheProcess().abandoned) MPI_Comm_free(&world_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Started AllReduce(Memory memory, const void* in, void* out, int count, DType dtype, ReduceOp op) override {
    return Start(std::move(memory), "MPI_Iallreduce", [&](MPI_Request* request) {
      return MPI_Iallreduce(in, out, count, TypeOf(dtype), OperationOf(op), world_, request);
    });
  }

  Started Reduce(Memory memory, const void* in, void* out, int count, DType dtype, ReduceOp op, int root) override {
    return Start(std::move(memory), "MPI_Ireduce", [&](MPI_Request* request) {
      return MPI_Ireduce(in, out, count, TypeOf(dtype), OperationOf(op), root, world_, request);
    });
  }

  Started ReduceScatter(Memory memory, const void* in, void* out, std::span<const int> counts, DType dtype,
                        ReduceOp op) override {
    return Start(std::move(memory), "MPI_Ireduce_scatter", [&](MPI_Request* request) {
      return MPI_Ireduce_scatter(in, out, counts.data(), TypeOf(dtype), OperationOf(op), world_, request);
    });
  }

  Started Broadcast(Memory memory, void* data, int bytes, int root) override {
    return Start(std::move(memory), "MPI_Ibcast",
                 [&](MPI_Request* request) { return MPI_Ibcast(data, bytes, MPI_BYTE, root, world_, request); });
  }

  Started AllGather(Memory memory, const void* in, int bytes, void* out, Segments segments) override {
    return Start(std::move(memory), "MPI_Iallgatherv", [&](MPI_Request* request) {
      return MPI_Iallgatherv(in, bytes, MPI_BYTE, out, segments.counts.data(), segments.begins.data(), MPI_BYTE, world_,
                             request);
    });
  }

  Started AllToAll(Memory memory, const void* in, Segments sent, void* out, Segments received) override {
    return Start(std::move(memory), "MPI_Ialltoallv", [&](MPI_Request* request) {
      return MPI_Ialltoallv(in, sent.counts.data(), sent.begins.data(), MPI_BYTE, out, received.counts.data(),
                            received.begins.data(), MPI_BYTE, world_, request);
    });
  }

  Started Barrier() override {
    return Start(nullptr, "MPI_Ibarrier", [&](MPI_Request* request) { return MPI_Ibarrier(world_, request); });
  }

 private:
  template <typename Call>
  Started Start(Memory memory, const char* name, const Call& call) {
    auto request = std::make_unique<MpiRequest>(std::move(memory));
    std::lock_guard lock(TheProcess().mutex);
    if (absl::Status status = ToStatus(call(request->handle()), name); !status.ok()) return status;
    return request;
  }

  MPI_Comm world_;
  int rank_ = 0, size_ = 0;
};
// NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)

absl::StatusOr<std::unique_ptr<Transport>> Open(TimePoint deadline) {
  Process& process = TheProcess();
  auto world = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
  MpiRequest request(world);
  {
    std::lock_guard lock(process.mutex);
    if (process.abandoned) return absl::FailedPreconditionError("a collective of MPI was given up in this process");
    if (absl::Status status = Initialize(); !status.ok()) return status;
    if (absl::Status status = ToStatus(MPI_Comm_idup(MPI_COMM_WORLD, world.get(), request.handle()), "MPI_Comm_idup");
        !status.ok()) {
      return status;
    }
  }
  for (;;) {
    const auto done = request.Test();
    if (!done.ok()) return done.status();
    if (*done) return std::make_unique<MpiTransport>(*world);
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError("not all ranks of MPI's world came for its communicator");
    }
    sched_yield();
  }
}

}  // namespace

}  // namespace gyre::internal::mpi

extern "C" __attribute__((visibility("default"))) const gyre::internal::mpi::Module* gyre_mpi_module() {
  static constexpr gyre::internal::mpi::Module kModule{GYRE_VERSION_STRING, gyre::internal::mpi::Open};
  return &kModule;
}
