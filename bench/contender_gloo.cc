#include <exception>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "contender.h"
#include "gloo/allgather.h"
#include "gloo/allreduce.h"
#include "gloo/alltoall.h"
#include "gloo/broadcast.h"
#include "gloo/math.h"
#include "gloo/reduce_scatter.h"
#include "gloo_context.h"
#include "gyre/status_macros.h"

namespace gyre::bench {

namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;
using Call = std::function<void()>;

template <typename T>
gloo::AllreduceOptions::Func ReduceFunction(ReduceOp op) {
  using Function = void (*)(void*, const void*, const void*, size_t);
  switch (op) {
    case ReduceOp::kMin: return Function(gloo::min<T>);
    case ReduceOp::kMax: return Function(gloo::max<T>);
    case ReduceOp::kProduct: return Function(gloo::product<T>);
    default: return Function(gloo::sum<T>);
  }
}

template <typename T>
const gloo::ReductionFunction<T>* ReduceObject(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin: return gloo::ReductionFunction<T>::min;
    case ReduceOp::kMax: return gloo::ReductionFunction<T>::max;
    case ReduceOp::kProduct: return gloo::ReductionFunction<T>::product;
    default: return gloo::ReductionFunction<T>::sum;
  }
}

template <typename Action>
absl::Status Catch(const Action& action) {
  try {
    return action();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("Gloo failed: ", error.what()));
  }
}

// Options, and the buffers registered with them, are made once, not with each call: what is measured is the calls.
class GlooContender final : public Contender {
 public:
  GlooContender(Communicator& world, std::shared_ptr<gloo::Context> context, std::string name, Algorithm algorithm)
      : world_(world), context_(std::move(context)), name_(std::move(name)), algorithm_(algorithm) {}

  std::string name() const override { return name_; }

  absl::Status Prepare(const Task& task) override {
    task_ = task;
    for (Call& call : calls_) call = nullptr;  // before the buffers that it uses
    in_.assign(static_cast<size_t>(task.send_bytes()), std::byte{0});
    out_.assign(static_cast<size_t>(task.receive_bytes()), std::byte{0});
    RETURN_IF_ERROR(Catch([this] {
      if (Reduces(task_.operation)) return PrepareReduction();
      PrepareMovement();
      return absl::OkStatus();
    }));
    return world_.Barrier();  // all ranks have their buffers before one sends
  }

  bool Supports(bool in_place) const override { return calls_[in_place ? 1 : 0] != nullptr; }

  Ends ends(bool in_place) override {
    // Gloo leaves what it scattered at the start of the whole, whatever the rank.
    if (task_.operation == Operation::kReduceScatter) return {in_.data(), in_.data()};
    return EndsOf(task_, in_.data(), out_.data(), in_place);
  }

  absl::Status Run(bool in_place) override {
    return Catch([&] {
      calls_[in_place ? 1 : 0]();
      return absl::OkStatus();
    });
  }

 private:
  absl::Status PrepareReduction() {
    if (task_.op == ReduceOp::kAverage) return absl::UnimplementedError("Gloo has no average");
    switch (task_.dtype) {
      case DType::kU8: return PrepareReductionOf<uint8_t>();
      case DType::kI8: return PrepareReductionOf<int8_t>();
      case DType::kI16: return PrepareReductionOf<int16_t>();
      case DType::kU16: return PrepareReductionOf<uint16_t>();
      case DType::kI32: return PrepareReductionOf<int32_t>();
      case DType::kI64: return PrepareReductionOf<int64_t>();
      case DType::kF16: return PrepareReductionOf<gloo::float16>();
      case DType::kF32: return PrepareReductionOf<float>();
      case DType::kF64: return PrepareReductionOf<double>();
      case DType::kBF16:
      case DType::kBool: break;
    }
    return absl::UnimplementedError(absl::StrCat("Gloo reduces no ", std::string(DTypeName(task_.dtype))));
  }

  template <typename T>
  absl::Status PrepareReductionOf() {
    if (task_.operation == Operation::kReduceScatter) {
      // In place alone: its interface has one buffer.
      const std::vector<int> counts(static_cast<size_t>(task_.ranks), static_cast<int>(task_.count));
      auto scatter = std::make_shared<gloo::ReduceScatterHalvingDoubling<T>>(
          context_, std::vector<T*>{reinterpret_cast<T*>(in_.data())}, static_cast<int>(task_.send_count()), counts,
          ReduceObject<T>(task_.op));
      calls_[1] = [scatter] { scatter->run(); };
      return absl::OkStatus();
    }
    for (const bool in_place : {false, true}) {
      auto options = std::make_shared<gloo::AllreduceOptions>(context_);
      options->setAlgorithm(algorithm_);
      options->setReduceFunction(ReduceFunction<T>(task_.op));
      const auto count = static_cast<size_t>(task_.count);
      if (!in_place) options->setInput(reinterpret_cast<T*>(in_.data()), count);
      options->setOutput(reinterpret_cast<T*>(out_.data()), count);
      calls_[in_place ? 1 : 0] = [options] { gloo::allreduce(*options); };
    }
    return absl::OkStatus();
  }

  void PrepareMovement() {
    switch (task_.operation) {
      case Operation::kAllGather:
        AddMovement<gloo::AllgatherOptions>(false, gloo::allgather);
        return AddMovement<gloo::AllgatherOptions>(true, gloo::allgather);
      case Operation::kAllToAll: return AddMovement<gloo::AlltoallOptions>(false, gloo::alltoall);
      default: break;
    }
    auto options = MakeMovement<gloo::BroadcastOptions>(true);
    options->setRoot(task_.root);
    calls_[1] = [options] { gloo::broadcast(*options); };
  }

  template <typename Options>
  void AddMovement(bool in_place, void (*run)(Options&)) {
    calls_[in_place ? 1 : 0] = [options = MakeMovement<Options>(in_place), run] { run(*options); };
  }

  template <typename Options>
  std::shared_ptr<Options> MakeMovement(bool in_place) {
    auto options = std::make_shared<Options>(context_);
    if (!in_place) options->setInput(reinterpret_cast<uint8_t*>(in_.data()), in_.size());
    options->setOutput(reinterpret_cast<uint8_t*>(out_.data()), out_.size());
    return options;
  }

  Communicator& world_;
  const std::shared_ptr<gloo::Context> context_;
  const std::string name_;
  const Algorithm algorithm_;
  Task task_;
  std::vector<std::byte> in_, out_;
  Call calls_[2];  // out of place, in place; null: Gloo has no such form
};

}  // namespace

absl::StatusOr<Contenders> MakeGloo(Communicator& world, Operation operation) {
  ASSIGN_OR_RETURN(auto context, MakeGlooContext(world));
  Contenders contenders;
  contenders.push_back(std::make_unique<GlooContender>(world, context, "gloo", Algorithm::UNSPECIFIED));
  if (operation == Operation::kAllReduce) {
    contenders.push_back(std::make_unique<GlooContender>(world, context, "gloo-bcube", Algorithm::BCUBE));
  }
  return contenders;
}

absl::StatusOr<SumInPlace> MakeGlooSum(Communicator& world) {
  ASSIGN_OR_RETURN(auto context, MakeGlooContext(world));
  return [context](std::span<float> data) {
    return Catch([&] {
      gloo::AllreduceOptions options(context);
      options.setReduceFunction(ReduceFunction<float>(ReduceOp::kSum));
      options.setOutput(data.data(), data.size());
      gloo::allreduce(options);
      return absl::OkStatus();
    });
  };
}

}  // namespace gyre::bench
