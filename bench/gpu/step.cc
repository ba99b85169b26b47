#include "gpu/step.h"

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/cuda.h"
#include "gyre/gyre.h"
#include "gyre/status_macros.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "timing.h"

namespace gyre::bench::gpu {

namespace {

constexpr int kWarmup = 8;  // more steps than a plan takes to stay

// One model's gradients in one dtype, in the reducer's memory, or packed from plain memory and unpacked to it.
class Contender {
 public:
  static absl::StatusOr<std::unique_ptr<Contender>> Make(Communicator& world, const Model& model, DType dtype,
                                                         Device device, bool plain);

  // From the first gradient to when the stream has done what it takes to have all results.
  absl::StatusOr<double> Microseconds(const Stream& stream);

  // Each element of rank r is 2^-r; elements that came out other than their sum.
  absl::StatusOr<int64_t> CountWrong(const Stream& stream, int rank, int ranks);

  std::string buffers() const { return plain_.empty() ? "arena" : "plain"; }
  StepSummary summary() const { return summary_; }

 private:
  Contender(const Model& model, DType dtype, Device device)
      : order_(BackwardOrder(model)), dtype_(dtype), device_(device) {}
  absl::Status Step();
  TensorView view(int i) const { return plain_.empty() ? reducer_->gradient(i) : views_[static_cast<size_t>(i)]; }

  const std::vector<int> order_;
  const DType dtype_;
  const Device device_;
  std::unique_ptr<GradientReducer> reducer_;
  std::vector<Memory> plain_;
  std::vector<TensorView> views_;
  StepSummary summary_;
};

absl::StatusOr<std::unique_ptr<Contender>> Contender::Make(Communicator& world, const Model& model, DType dtype,
                                                           Device device, bool plain) {
  auto made = std::unique_ptr<Contender>(new Contender(model, dtype, device));
  ASSIGN_OR_RETURN(made->reducer_, GradientReducer::Create(world, {.op = ReduceOp::kSum}));
  for (const Parameter& parameter : model.parameters) {
    RETURN_IF_ERROR(made->reducer_->Register(parameter.name, parameter.shape, dtype, device).status());
    if (!plain) continue;
    ASSIGN_OR_RETURN(Memory memory, Memory::Make(parameter.count() * DTypeSize(dtype)));
    made->views_.emplace_back(memory.data(), parameter.count(), dtype, device);
    made->plain_.push_back(std::move(memory));
  }
  RETURN_IF_ERROR(made->reducer_->Start());
  for (const int i : made->order_) {
    const TensorView view = made->view(i);
    RETURN_IF_ERROR(Check(cudaMemset(view.data, 0, static_cast<size_t>(view.bytes())), "clearing a gradient"));
  }
  RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "waiting for the GPU"));
  return made;
}

absl::Status Contender::Step() {
  for (const int i : order_) {
    RETURN_IF_ERROR(plain_.empty() ? reducer_->Ready(i) : reducer_->Ready(i, view(i)));
  }
  ASSIGN_OR_RETURN(summary_, reducer_->Wait());
  return absl::OkStatus();
}

absl::StatusOr<double> Contender::Microseconds(const Stream& stream) {
  const auto start = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(Step());
  RETURN_IF_ERROR(stream.Synchronize());
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// Powers of two: exact in every dtype and order of summation.
float PowerOfHalf(int rank) {
  float value = 1;
  for (int i = 0; i < rank % 6; ++i) value /= 2;
  return value;
}

absl::StatusOr<int64_t> Contender::CountWrong(const Stream& stream, int rank, int ranks) {
  const auto encoded = [this](float value, int64_t count) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const auto width = static_cast<size_t>(DTypeSize(dtype_));
    std::vector<uint8_t> bytes(static_cast<size_t>(count) * width);
    for (size_t at = 0; at < bytes.size(); at += width) {
      const uint32_t stored = dtype_ == DType::kF32 ? bits : bits >> 16;
      std::memcpy(&bytes[at], &stored, width);
    }
    return bytes;
  };
  float sum = 0;
  for (int each = 0; each < ranks; ++each) sum += PowerOfHalf(each);
  for (const int i : order_) {
    const auto bytes = encoded(PowerOfHalf(rank), view(i).count);
    RETURN_IF_ERROR(Check(cudaMemcpy(view(i).data, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "filling"));
  }
  RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "waiting for the GPU"));
  RETURN_IF_ERROR(Step());
  RETURN_IF_ERROR(stream.Synchronize());
  int64_t wrong = 0;
  for (const int i : order_) {
    const auto expected = encoded(sum, view(i).count);
    std::vector<uint8_t> got(expected.size());
    RETURN_IF_ERROR(Check(cudaMemcpy(got.data(), view(i).data, got.size(), cudaMemcpyDeviceToHost), "looking"));
    for (size_t at = 0; at < got.size(); ++at) wrong += got[at] != expected[at] ? 1 : 0;
    RETURN_IF_ERROR(Check(cudaMemset(view(i).data, 0, got.size()), "clearing a gradient"));
  }
  RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "waiting for the GPU"));
  return wrong;
}

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

void Print(const Model& model, DType dtype, const Contender& contender, const Times& times, int ranks,
           std::FILE* json) {
  const int64_t bytes = model.count() * DTypeSize(dtype);
  const double rate = static_cast<double>(bytes) / times.median * 1e-3;
  const StepSummary summary = contender.summary();
  absl::PrintF("%-12s %6s %6s %8d %12d %8d %10.3f %10.3f %10.2f\n", model.name, DTypeName(dtype), contender.buffers(),
               model.parameters.size(), bytes, summary.calls, times.median * 1e-3, times.min * 1e-3, rate);
  std::fflush(stdout);
  if (json == nullptr) return;
  const nlohmann::ordered_json line = {{"lib", "gyre"},
                                       {"op", "gpu_step"},
                                       {"model", model.name},
                                       {"dtype", DTypeName(dtype)},
                                       {"ranks", ranks},
                                       {"buffers", contender.buffers()},
                                       {"bytes", bytes},
                                       {"calls", summary.calls},
                                       {"time_us_med", times.median},
                                       {"time_us_min", times.min},
                                       {"control_messages", summary.control_messages},
                                       {"algbw_gbs", rate}};
  absl::FPrintF(json, "%s\n", line.dump());
}

absl::Status RunModel(const StepOptions& options, const Model& model, DType dtype, Communicator& world, Device device,
                      const Stream& stream, std::FILE* json) {
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const bool plain : {false, true}) {
    ASSIGN_OR_RETURN(auto contender, Contender::Make(world, model, dtype, device, plain));
    contenders.push_back(std::move(contender));
  }
  int64_t wrong = 0;
  for (const auto& contender : contenders) {
    ASSIGN_OR_RETURN(const int64_t more, contender->CountWrong(stream, world.rank(), world.size()));
    wrong += more;
  }
  std::vector<std::vector<double>> samples(contenders.size());
  for (int step = -kWarmup; step < options.steps; ++step) {
    for (size_t c = 0; c < contenders.size(); ++c) {
      RETURN_IF_ERROR(world.Barrier());
      ASSIGN_OR_RETURN(const double time, contenders[c]->Microseconds(stream));
      if (step >= 0) samples[c].push_back(time);
    }
  }
  for (size_t c = 0; c < contenders.size(); ++c) {
    RETURN_IF_ERROR(world.AllReduce(samples[c], {.op = ReduceOp::kMax}));
    if (world.rank() == 0) Print(model, dtype, *contenders[c], Summarize(samples[c]), world.size(), json);
  }
  RETURN_IF_ERROR(world.AllReduce(std::span(&wrong, 1)));
  if (wrong == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(wrong, " bytes of sums are wrong"));
}

}  // namespace

absl::Status RunStep(const StepOptions& options, const std::string& command) {
  ASSIGN_OR_RETURN(const auto runtime, Runtime::Create());
  Communicator& world = runtime->world();
  ASSIGN_OR_RETURN(const int gpu, ChooseGpu(world.local_rank()));
  ASSIGN_OR_RETURN(const Stream stream, Stream::Make());
  std::unique_ptr<std::FILE, Close> json;
  if (!options.json.empty() && world.rank() == 0) {
    json.reset(std::fopen(options.json.c_str(), "w"));
    if (json == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", options.json));
  }
  if (world.rank() == 0) {
    absl::PrintF("# %s; %d ranks on %d hosts; no computation; medians of the slowest rank\n", command, world.size(),
                 world.node_count());
    absl::PrintF("#%-11s %6s %6s %8s %12s %8s %10s %10s %10s\n", "model", "type", "memory", "tensors", "bytes", "calls",
                 "ms", "min ms", "GB/s");
  }
  for (const std::string& name : options.models) {
    ASSIGN_OR_RETURN(const Model model, MakeModel(name));
    for (const std::string& dtype : options.dtypes) {
      RETURN_IF_ERROR(RunModel(options, model, *ParseDType(dtype), world, {.gpu = gpu, .stream = stream.get()}, stream,
                               json.get()));
    }
  }
  return absl::OkStatus();
}

}  // namespace gyre::bench::gpu
