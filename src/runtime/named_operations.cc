#include "gyre/named_operations.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/process_mark.h"
#include "base/status.h"
#include "collectives/call.h"
#include "runtime/conductor.h"

namespace gyre {

namespace {

using internal::Call;
using internal::CallKind;
using internal::NamedKind;
using internal::NamedRequest;
using internal::NamedSignature;

using Timeout = std::optional<std::chrono::milliseconds>;

// Of what is submitted together.
struct Common {
  absl::Status refusal{};                                 // the first
  std::shared_ptr<internal::NamedMarks> marks = nullptr;  // of tensors on a GPU
};

// Fills in what all kinds share. `call`: the same as a call of the communicator, to see whether its arguments are
// right; wrong ones are announced as such, so that the other ranks do not wait.
NamedRequest Checked(internal::Conductor& conductor, NamedRequest request, const Call& call, Common& common) {
  const Communicator& communicator = conductor.communicator();
  absl::Status status = internal::Validate(call, communicator.rank(), communicator.size());
  if (status.ok() && DeviceOf(call).on_gpu()) {
    status = conductor.Mark(call, common.marks);
    request.buffers.marks = common.marks;
    request.signature.on_gpu = status.ok();
  }
  if (request.name.empty()) status = absl::InvalidArgumentError("the name is empty");
  const bool timed = call.timeout && call.timeout->count() > 0;
  request.buffers.timeout = timed ? *call.timeout : conductor.config().operation_timeout;
  if (status.ok()) return request;
  request.signature = {.kind = NamedKind::kRefused};  // what is wrong in it is no message
  if (common.refusal.ok()) common.refusal = Annotate(status, absl::StrCat("tensor '", request.name, "'"));
  return request;
}

NamedRequest Reducing(internal::Conductor& conductor, std::string_view name, ConstTensorView in, TensorView out,
                      const ReduceOptions& options, Common& common) {
  const Call call{.kind = CallKind::kAllReduce,
                  .in = in,
                  .out = out,
                  .op = options.op,
                  .prescale = options.prescale,
                  .postscale = options.postscale,
                  .timeout = options.timeout};
  const NamedSignature signature{.kind = NamedKind::kAllReduce,
                                 .dtype = in.dtype,
                                 .op = options.op,
                                 .count = in.count,
                                 .prescale = options.prescale,
                                 .postscale = options.postscale};
  return Checked(conductor, {std::string(name), signature, {.in = in, .out = out}}, call, common);
}

}  // namespace

absl::StatusOr<std::unique_ptr<NamedOperations>> NamedOperations::Create(Communicator& communicator) {
  std::vector<int> all(static_cast<size_t>(communicator.size()));
  std::iota(all.begin(), all.end(), 0);
  ASSIGN_OR_RETURN(auto own, communicator.Split(all));
  auto state = own->state_;
  auto conductor = std::make_shared<internal::Conductor>(std::move(own), std::move(state));
  conductor->Begin();
  return std::unique_ptr<NamedOperations>(new NamedOperations(std::move(conductor)));
}

NamedOperations::NamedOperations(std::shared_ptr<internal::Conductor> conductor) : conductor_(std::move(conductor)) {}

NamedOperations::~NamedOperations() {
  if (conductor_->process().forked()) {
    KeepUntilExit(conductor_);
  } else {
    conductor_->Leave();
  }
}

Work NamedOperations::AllReduce(std::string_view name, ConstTensorView in, TensorView out,
                                const ReduceOptions& options) {
  Common common;
  std::vector<NamedRequest> requests = {Reducing(*conductor_, name, in, out, options, common)};
  return conductor_->Submit(std::move(requests), common.refusal, common.marks);
}

Work NamedOperations::AllReduce(std::string_view name, TensorView in_out, const ReduceOptions& options) {
  return AllReduce(name, in_out, in_out, options);
}

Work NamedOperations::AllReduce(std::span<const NamedTensor> group, const ReduceOptions& options) {
  if (group.empty()) return Work();
  std::vector<std::string> names;
  for (const NamedTensor& tensor : group) names.push_back(tensor.name);
  Common common;
  std::vector<NamedRequest> requests;
  for (const NamedTensor& tensor : group) {
    requests.push_back(Reducing(*conductor_, tensor.name, tensor.view, tensor.view, options, common));
    NamedSignature& signature = requests.back().signature;
    signature.group = group.size() > 1 ? internal::GroupOf(names) : 0;
    signature.group_size = static_cast<int32_t>(group.size());
    signature.group_index = static_cast<int32_t>(requests.size()) - 1;
  }
  if (!common.refusal.ok()) {  // all or nothing: no rank may wait for what is left of it
    for (NamedRequest& request : requests) {
      request.signature.kind = NamedKind::kRefused;
      request.signature.count = 0;
    }
  }
  return conductor_->Submit(std::move(requests), common.refusal, common.marks);
}

Work NamedOperations::AllGather(std::string_view name, ConstTensorView in, Gathered& out, const CallOptions& options) {
  const bool shared = out.memory.use_count() > 1;
  if (shared || (out.memory != nullptr && out.on_gpu.device != in.device)) {  // who drives may not free it
    out.memory.reset();
    out.on_gpu = {};
  }
  // Only the input can be wrong: as a broadcast's.
  const Call call{.kind = CallKind::kBroadcast, .in = in, .out = {}, .timeout = options.timeout};
  const NamedSignature signature{.kind = NamedKind::kAllGather, .dtype = in.dtype, .count = in.count};
  Common common;
  std::vector<NamedRequest> requests = {
      Checked(*conductor_, {std::string(name), signature, {.in = in, .out = {}, .gathered = &out}}, call, common)};
  return conductor_->Submit(std::move(requests), common.refusal, common.marks);
}

Work NamedOperations::Broadcast(std::string_view name, TensorView in_out, int root, const CallOptions& options) {
  const Call call{.kind = CallKind::kBroadcast, .in = in_out, .out = in_out, .root = root, .timeout = options.timeout};
  const NamedSignature signature{
      .kind = NamedKind::kBroadcast, .dtype = in_out.dtype, .root = root, .count = in_out.count};
  Common common;
  std::vector<NamedRequest> requests = {
      Checked(*conductor_, {std::string(name), signature, {.in = in_out, .out = in_out}}, call, common)};
  return conductor_->Submit(std::move(requests), common.refusal, common.marks);
}

Work NamedOperations::Join(int* last_rank) {
  return conductor_->Join(last_rank);
}

absl::Status NamedOperations::BroadcastParameters(std::span<const NamedTensor> parameters, int root,
                                                  const CallOptions& options) {
  std::vector<Work> works;
  for (const NamedTensor& parameter : parameters) {
    works.push_back(Broadcast(parameter.name, parameter.view, root, options));
  }
  absl::Status first;
  for (Work& work : works) first.Update(work.Wait());
  return first;
}

absl::Status NamedOperations::BroadcastObject(std::string_view name, std::vector<std::byte>& object, int root,
                                              const CallOptions& options) {
  auto size = static_cast<int64_t>(object.size());
  RETURN_IF_ERROR(Broadcast(std::string(name) + "/size", std::span(&size, 1), root, options).Wait());
  if (conductor_->communicator().rank() != root) object.resize(static_cast<size_t>(size));
  return Broadcast(name, {object.data(), size, DType::kU8}, root, options).Wait();
}

NamedStatistics NamedOperations::statistics() const {
  return conductor_->statistics();
}

}  // namespace gyre
