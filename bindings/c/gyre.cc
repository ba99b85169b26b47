// The C interface: each function is one call of the C++ interface. Functions that take no device are of the host.
#include "gyre/c/gyre.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "gyre/gyre.h"

struct gyre_runtime {
  std::unique_ptr<gyre::Runtime> runtime;
};

struct gyre_reducer {
  std::unique_ptr<gyre::GradientReducer> reducer;
};

namespace {

static_assert(GYRE_BOOL == static_cast<int>(gyre::DType::kBool) && GYRE_F32 == static_cast<int>(gyre::DType::kF32));
static_assert(GYRE_ADASUM == static_cast<int>(gyre::ReduceOp::kAdasum));

// A gyre_communicator is a gyre::Communicator, whose owner is the runtime.
gyre::Communicator& Of(gyre_communicator* communicator) {
  return *reinterpret_cast<gyre::Communicator*>(communicator);
}

const gyre::Communicator& Of(const gyre_communicator* communicator) {
  return *reinterpret_cast<const gyre::Communicator*>(communicator);
}

gyre_status Status(const absl::Status& status) {
  gyre_status result = {};
  result.code = static_cast<int>(status.code());
  const auto text = status.message().substr(0, sizeof(result.message) - 1);
  std::copy(text.begin(), text.end(), result.message);
  return result;
}

gyre_status Wrong(const std::string& why) {
  return Status(absl::InvalidArgumentError(why));
}

// Numbers come from another language: any may come.
bool IsDType(gyre_dtype dtype) {
  return static_cast<int>(dtype) >= 0 && static_cast<int>(dtype) < gyre::kDTypeCount;
}

gyre::DType ToDType(gyre_dtype dtype) {
  return static_cast<gyre::DType>(dtype);
}

constexpr gyre_device kHost = {-1, nullptr};

gyre::Device ToDevice(gyre_device device) {
  return {.gpu = device.gpu, .stream = device.stream};
}

gyre_status WrongDType(gyre_dtype dtype) {
  return Wrong("there is no dtype " + std::to_string(static_cast<int>(dtype)));
}

}  // namespace

gyre_status gyre_runtime_create(gyre_runtime** runtime) {
  *runtime = nullptr;
  auto created = gyre::Runtime::Create();
  if (!created.ok()) return Status(created.status());
  *runtime = new gyre_runtime{*std::move(created)};
  return {};
}

void gyre_runtime_destroy(gyre_runtime* runtime) {
  delete runtime;
}

gyre_communicator* gyre_runtime_world(gyre_runtime* runtime) {
  return reinterpret_cast<gyre_communicator*>(&runtime->runtime->world());
}

int gyre_rank(const gyre_communicator* communicator) {
  return Of(communicator).rank();
}

int gyre_size(const gyre_communicator* communicator) {
  return Of(communicator).size();
}

int gyre_local_rank(const gyre_communicator* communicator) {
  return Of(communicator).local_rank();
}

int gyre_local_size(const gyre_communicator* communicator) {
  return Of(communicator).local_size();
}

gyre_status gyre_all_reduce(gyre_communicator* communicator, const void* in, void* out, int64_t count, gyre_dtype dtype,
                            gyre_op op) {
  return gyre_all_reduce_on(communicator, in, out, count, dtype, op, kHost);
}

gyre_status gyre_all_reduce_on(gyre_communicator* communicator, const void* in, void* out, int64_t count,
                               gyre_dtype dtype, gyre_op op, gyre_device device) {
  if (!IsDType(dtype)) return WrongDType(dtype);
  if (static_cast<int>(op) < GYRE_SUM || static_cast<int>(op) > GYRE_ADASUM) {
    return Wrong("there is no operation " + std::to_string(static_cast<int>(op)));
  }
  const gyre::ReduceOptions options{.op = static_cast<gyre::ReduceOp>(op)};
  const gyre::Device place = ToDevice(device);
  return Status(
      Of(communicator).AllReduce({in, count, ToDType(dtype), place}, {out, count, ToDType(dtype), place}, options));
}

gyre_status gyre_all_gather(gyre_communicator* communicator, const void* in, void* out, int64_t count,
                            gyre_dtype dtype) {
  return gyre_all_gather_on(communicator, in, out, count, dtype, kHost);
}

gyre_status gyre_all_gather_on(gyre_communicator* communicator, const void* in, void* out, int64_t count,
                               gyre_dtype dtype, gyre_device device) {
  if (!IsDType(dtype)) return WrongDType(dtype);
  const int64_t all = count * Of(communicator).size();
  const gyre::Device place = ToDevice(device);
  return Status(Of(communicator).AllGather({in, count, ToDType(dtype), place}, {out, all, ToDType(dtype), place}));
}

gyre_status gyre_broadcast(gyre_communicator* communicator, void* in_out, int64_t count, gyre_dtype dtype, int root) {
  return gyre_broadcast_on(communicator, in_out, count, dtype, root, kHost);
}

gyre_status gyre_broadcast_on(gyre_communicator* communicator, void* in_out, int64_t count, gyre_dtype dtype, int root,
                              gyre_device device) {
  if (!IsDType(dtype)) return WrongDType(dtype);
  return Status(Of(communicator).Broadcast({in_out, count, ToDType(dtype), ToDevice(device)}, root));
}

gyre_status gyre_barrier(gyre_communicator* communicator) {
  return Status(Of(communicator).Barrier());
}

gyre_status gyre_reducer_create(gyre_communicator* communicator, gyre_reducer** reducer) {
  *reducer = nullptr;
  auto created = gyre::GradientReducer::Create(Of(communicator));
  if (!created.ok()) return Status(created.status());
  if (std::holds_alternative<gyre::Dgc>((*created)->compression())) {
    return Wrong(
        "dgc (GYRE_COMPRESSION) sends velocities in place of averages: this interface cannot say which; take "
        "another codec");
  }
  *reducer = new gyre_reducer{*std::move(created)};
  return {};
}

void gyre_reducer_destroy(gyre_reducer* reducer) {
  delete reducer;
}

gyre_status gyre_reducer_register(gyre_reducer* reducer, const char* name, const int64_t* shape, int dimensions,
                                  gyre_dtype dtype, int* index) {
  return gyre_reducer_register_on(reducer, name, shape, dimensions, dtype, kHost, index);
}

gyre_status gyre_reducer_register_on(gyre_reducer* reducer, const char* name, const int64_t* shape, int dimensions,
                                     gyre_dtype dtype, gyre_device device, int* index) {
  if (!IsDType(dtype)) return WrongDType(dtype);
  if (dimensions < 0) return Wrong("a shape of " + std::to_string(dimensions) + " dimensions");
  const auto added = reducer->reducer->Register(name, std::span(shape, static_cast<size_t>(dimensions)), ToDType(dtype),
                                                ToDevice(device));
  if (added.ok()) *index = *added;
  return Status(added.status());
}

gyre_status gyre_reducer_start(gyre_reducer* reducer) {
  return Status(reducer->reducer->Start());
}

void* gyre_reducer_gradient(gyre_reducer* reducer, int index) {
  return reducer->reducer->gradient(index).data;
}

gyre_status gyre_reducer_ready(gyre_reducer* reducer, int index) {
  return Status(reducer->reducer->Ready(index));
}

gyre_status gyre_reducer_ready_at(gyre_reducer* reducer, int index, void* data, int64_t count, gyre_dtype dtype) {
  return gyre_reducer_ready_at_on(reducer, index, data, count, dtype, kHost);
}

gyre_status gyre_reducer_ready_at_on(gyre_reducer* reducer, int index, void* data, int64_t count, gyre_dtype dtype,
                                     gyre_device device) {
  if (!IsDType(dtype)) return WrongDType(dtype);
  return Status(reducer->reducer->Ready(index, {data, count, ToDType(dtype), ToDevice(device)}));
}

gyre_status gyre_reducer_missing(gyre_reducer* reducer, int index) {
  return Status(reducer->reducer->Missing(index));
}

gyre_status gyre_reducer_wait(gyre_reducer* reducer) {
  return Status(reducer->reducer->Wait().status());
}
