#include "gpu/step.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/cuda.h"
#include "gyre/gyre.h"
#include "gyre/status_macros.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "output_file.h"
#include "timing.h"

namespace gyre::bench::gpu {

namespace {

constexpr int kWarmup = 8;  // more steps than a plan takes to stay

constexpr int64_t kRoom = 1 << 20;  // noise begins at one of so many places

// Where gradients are, and how they go.
struct Variant {
  bool plain = false;         // in memory of the program's, packed and unpacked; else in the reducer's
  bool graphs = false;        // ReducerOptions::graphs
  std::string compression{};  // as ParseCompression reads it; empty: none
};

// Of a step, in microseconds.
struct StepTimes {
  double all = 0;   // from the first gradient to when the stream has done what it takes to have all results
  double host = 0;  // from the first gradient to when Wait has returned: what the host takes to queue the step
};

// One model's gradients in one dtype.
class GpuStepContender {
 public:
  static absl::StatusOr<std::unique_ptr<GpuStepContender>> Make(Communicator& world, const Model& model, DType dtype,
                                                                Device device, const Variant& variant);

  // Of what is to be compressed makes the next step's gradients, other noise in each: of zeros there would be nothing
  // to choose and to send. Waits for the stream.
  absl::Status Prepare(const Stream& stream);
  absl::StatusOr<StepTimes> Time(const Stream& stream);

  // Each element of rank r is 2^-r: bytes that came out other than their sum's, or of one rank, half of it, for there
  // the sum itself is what went in. Of compressed noise: other than those of rank 0. Collective.
  absl::StatusOr<int64_t> CountWrong(const Stream& stream, Communicator& world);

  std::string buffers() const { return variant_.plain ? "plain" : "arena"; }
  bool graphs() const { return variant_.graphs; }
  std::string compression() const { return compresses() ? variant_.compression : "none"; }
  StepSummary summary() const { return summary_; }

 private:
  GpuStepContender(const Model& model, DType dtype, Device device, const Variant& variant)
      : order_(BackwardOrder(model)), dtype_(dtype), device_(device), variant_(variant) {}
  absl::Status Step();
  bool compresses() const { return !variant_.compression.empty(); }
  absl::StatusOr<int64_t> CountDifferent(const Stream& stream, Communicator& world);
  TensorView view(int i) const { return plain_.empty() ? reducer_->gradient(i) : views_[static_cast<size_t>(i)]; }

  const std::vector<int> order_;
  const DType dtype_;
  const Device device_;
  const Variant variant_;
  std::unique_ptr<GradientReducer> reducer_;
  std::vector<Memory> plain_;
  std::vector<TensorView> views_;
  Memory noise_;
  int64_t prepared_ = 0;
  StepSummary summary_;
};

double ScaleOf(const Communicator& world) {
  return world.size() == 1 ? 0.5 : 1;
}

// By graphs all gradients are one bucket, so that a step is one launch.
absl::StatusOr<ReducerOptions> OptionsOf(const Variant& variant, const Communicator& world) {
  ReducerOptions options{.op = ReduceOp::kSum, .postscale = ScaleOf(world), .graphs = variant.graphs};
  if (variant.graphs) options.bucket_bytes = std::numeric_limits<int64_t>::max();
  if (variant.compression.empty()) return options;
  ASSIGN_OR_RETURN(options.compression, ParseCompression(variant.compression));
  options.always_compress = true;
  return options;
}

absl::StatusOr<std::unique_ptr<GpuStepContender>> GpuStepContender::Make(Communicator& world, const Model& model,
                                                                         DType dtype, Device device,
                                                                         const Variant& variant) {
  auto made = std::unique_ptr<GpuStepContender>(new GpuStepContender(model, dtype, device, variant));
  ASSIGN_OR_RETURN(const ReducerOptions options, OptionsOf(variant, world));
  ASSIGN_OR_RETURN(made->reducer_, GradientReducer::Create(world, options));
  int64_t most = 0;
  for (const Parameter& parameter : model.parameters) {
    most = std::max(most, parameter.count());
    RETURN_IF_ERROR(made->reducer_->Register(parameter.name, parameter.shape, dtype, device).status());
    if (!variant.plain) continue;
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
  if (!made->compresses()) return made;
  ASSIGN_OR_RETURN(made->noise_, Memory::Make((most + kRoom) * DTypeSize(dtype)));
  RETURN_IF_ERROR(FillNormal(made->noise_.data(), most + kRoom, static_cast<uint64_t>(world.rank()) + 1));
  return made;
}

absl::Status GpuStepContender::Prepare(const Stream& stream) {
  if (!compresses()) return absl::OkStatus();
  ++prepared_;
  for (const int i : order_) {
    const int64_t first = (prepared_ * 40'503 + i * int64_t{7919}) % kRoom;
    RETURN_IF_ERROR(Check(cudaMemcpyAsync(view(i).data, noise_.data() + first * DTypeSize(dtype_),
                                          static_cast<size_t>(view(i).bytes()), cudaMemcpyDeviceToDevice, stream.get()),
                          "copying noise"));
  }
  return stream.Synchronize();
}

absl::Status GpuStepContender::Step() {
  for (const int i : order_) {
    RETURN_IF_ERROR(plain_.empty() ? reducer_->Ready(i) : reducer_->Ready(i, view(i)));
  }
  ASSIGN_OR_RETURN(summary_, reducer_->Wait());
  return absl::OkStatus();
}

absl::StatusOr<StepTimes> GpuStepContender::Time(const Stream& stream) {
  const auto start = std::chrono::steady_clock::now();
  const auto since = [start] {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  };
  StepTimes times;
  RETURN_IF_ERROR(Step());
  times.host = since();
  RETURN_IF_ERROR(stream.Synchronize());
  times.all = since();
  return times;
}

// Powers of two: exact in every dtype and order of summation.
float PowerOfHalf(int rank) {
  float value = 1;
  for (int i = 0; i < rank % 6; ++i) value /= 2;
  return value;
}

// A tensor is filled and looked at by so many elements at a time: making and comparing all of it by elements takes
// longer than its steps.
constexpr int64_t kPiece = 1 << 20;

std::vector<uint8_t> Encoded(float value, DType dtype) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto width = static_cast<size_t>(DTypeSize(dtype));
  const uint32_t stored = dtype == DType::kF32 ? bits : bits >> 16;
  std::vector<uint8_t> bytes(static_cast<size_t>(kPiece) * width);
  for (size_t at = 0; at < bytes.size(); at += width) std::memcpy(&bytes[at], &stored, width);
  return bytes;
}

// body(where, bytes) of each piece, until one fails.
template <typename Body>
absl::Status ForEachPiece(const TensorView& view, const Body& body) {
  const int64_t width = DTypeSize(view.dtype);
  for (int64_t first = 0; first < view.count; first += kPiece) {
    const int64_t bytes = std::min(kPiece, view.count - first) * width;
    RETURN_IF_ERROR(body(static_cast<std::byte*>(view.data) + first * width, static_cast<size_t>(bytes)));
  }
  return absl::OkStatus();
}

int64_t CountOther(const std::vector<uint8_t>& got, const std::vector<uint8_t>& expected, size_t bytes) {
  if (std::memcmp(got.data(), expected.data(), bytes) == 0) return 0;
  int64_t other = 0;
  for (size_t at = 0; at < bytes; ++at) other += got[at] != expected[at] ? 1 : 0;
  return other;
}

absl::StatusOr<int64_t> GpuStepContender::CountDifferent(const Stream& stream, Communicator& world) {
  RETURN_IF_ERROR(Prepare(stream));
  RETURN_IF_ERROR(Step());
  RETURN_IF_ERROR(stream.Synchronize());
  int64_t different = 0;
  for (const int i : order_) {
    std::vector<uint8_t> got(static_cast<size_t>(view(i).bytes()));
    RETURN_IF_ERROR(Check(cudaMemcpy(got.data(), view(i).data, got.size(), cudaMemcpyDeviceToHost), "looking"));
    std::vector<uint8_t> first = got;
    RETURN_IF_ERROR(world.Broadcast(first, 0));
    different += CountOther(got, first, got.size());
  }
  return different;
}

absl::StatusOr<int64_t> GpuStepContender::CountWrong(const Stream& stream, Communicator& world) {
  if (compresses()) return CountDifferent(stream, world);
  float sum = 0;
  for (int each = 0; each < world.size(); ++each) sum += PowerOfHalf(each);
  std::vector<uint8_t> piece = Encoded(PowerOfHalf(world.rank()), dtype_);
  for (const int i : order_) {
    RETURN_IF_ERROR(ForEachPiece(view(i), [&](std::byte* at, size_t bytes) {
      return Check(cudaMemcpy(at, piece.data(), bytes, cudaMemcpyHostToDevice), "filling");
    }));
  }
  RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "waiting for the GPU"));
  RETURN_IF_ERROR(Step());
  RETURN_IF_ERROR(stream.Synchronize());
  int64_t wrong = 0;
  const std::vector<uint8_t> expected = Encoded(sum * static_cast<float>(ScaleOf(world)), dtype_);
  for (const int i : order_) {
    RETURN_IF_ERROR(ForEachPiece(view(i), [&](std::byte* at, size_t bytes) {
      RETURN_IF_ERROR(Check(cudaMemcpy(piece.data(), at, bytes, cudaMemcpyDeviceToHost), "looking"));
      wrong += CountOther(piece, expected, bytes);
      return Check(cudaMemset(at, 0, bytes), "clearing a gradient");
    }));
  }
  RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "waiting for the GPU"));
  return wrong;
}

void PrintStep(const Model& model, DType dtype, const GpuStepContender& contender, const Times& times,
               const Times& host, int ranks, std::FILE* json) {
  const int64_t bytes = model.count() * DTypeSize(dtype);
  const double rate = static_cast<double>(bytes) / times.median * 1e-3;
  const StepSummary summary = contender.summary();
  absl::PrintF("%-12s %6s %6s %6s %12s %8d %12d %8d %8d %10.3f %10.3f %10.2f %10.1f\n", model.name, DTypeName(dtype),
               contender.buffers(), contender.graphs() ? "yes" : "no", contender.compression(), model.parameters.size(),
               bytes, summary.calls, summary.compressed_calls, times.median * 1e-3, times.min * 1e-3, rate,
               host.median);
  std::fflush(stdout);
  if (json == nullptr) return;
  const nlohmann::ordered_json line = {{"lib", "gyre"},
                                       {"op", "gpu_step"},
                                       {"model", model.name},
                                       {"dtype", DTypeName(dtype)},
                                       {"ranks", ranks},
                                       {"buffers", contender.buffers()},
                                       {"graphs", contender.graphs()},
                                       {"compression", contender.compression()},
                                       {"bytes", bytes},
                                       {"calls", summary.calls},
                                       {"compressed_calls", summary.compressed_calls},
                                       {"compressed_bytes", summary.compressed_bytes},
                                       {"time_us_med", times.median},
                                       {"time_us_min", times.min},
                                       {"host_us_med", host.median},
                                       {"control_messages", summary.control_messages},
                                       {"algbw_gbs", rate}};
  absl::FPrintF(json, "%s\n", line.dump());
  std::fflush(json);
}

// Whether any two ranks have one GPU, also such as take each other for other hosts. Collective.
absl::StatusOr<bool> ShareGpus(Communicator& world, int gpu) {
  cudaDeviceProp properties;
  RETURN_IF_ERROR(Check(cudaGetDeviceProperties(&properties, gpu), "asking what the GPU is"));
  using Id = std::array<int64_t, sizeof(properties.uuid) / sizeof(int64_t)>;
  const auto own = std::bit_cast<Id>(properties.uuid);
  std::vector<int64_t> all(own.size() * static_cast<size_t>(world.size()));
  RETURN_IF_ERROR(world.AllGather(own, all));
  std::set<Id> different;
  for (size_t at = 0; at < all.size(); at += own.size()) {
    Id id = {};
    std::copy_n(&all[at], id.size(), id.begin());
    different.insert(id);
  }
  return std::ssize(different) < world.size();
}

absl::Status RunModel(const StepOptions& options, const Model& model, DType dtype, Communicator& world, Device device,
                      const Stream& stream, std::FILE* json) {
  std::vector<Variant> variants = {{}, {.plain = true}};
  // By graphs one at most: one reducer on a GPU has them at a time. Nothing of what ranks that share a GPU exchange is
  // captured.
  ASSIGN_OR_RETURN(const bool shared, ShareGpus(world, device.gpu));
  if (!shared) variants.push_back({.plain = true, .graphs = true});
  for (const std::string& each : options.compression) {
    if (dtype == DType::kF32) variants.push_back({.compression = each});
  }
  std::vector<std::unique_ptr<GpuStepContender>> contenders;
  for (const Variant& variant : variants) {
    ASSIGN_OR_RETURN(auto contender, GpuStepContender::Make(world, model, dtype, device, variant));
    contenders.push_back(std::move(contender));
  }
  int64_t wrong = 0;
  const auto look = [&]() -> absl::Status {
    for (const auto& contender : contenders) {
      ASSIGN_OR_RETURN(const int64_t more, contender->CountWrong(stream, world));
      wrong += more;
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(look());
  std::vector<std::vector<double>> samples(contenders.size()), hosts(contenders.size());
  for (int step = -kWarmup; step < options.steps; ++step) {
    for (size_t c = 0; c < contenders.size(); ++c) {
      RETURN_IF_ERROR(contenders[c]->Prepare(stream));
      RETURN_IF_ERROR(world.Barrier());
      ASSIGN_OR_RETURN(const StepTimes times, contenders[c]->Time(stream));
      if (step < 0) continue;
      samples[c].push_back(times.all);
      hosts[c].push_back(times.host);
    }
  }
  RETURN_IF_ERROR(look());
  for (size_t c = 0; c < contenders.size(); ++c) {
    RETURN_IF_ERROR(world.AllReduce(samples[c], {.op = ReduceOp::kMax}));
    RETURN_IF_ERROR(world.AllReduce(hosts[c], {.op = ReduceOp::kMax}));
    if (world.rank() != 0) continue;
    PrintStep(model, dtype, *contenders[c], Summarize(samples[c]), Summarize(hosts[c]), world.size(), json);
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
  ASSIGN_OR_RETURN(const OutputFile json, OpenOutputFile(world.rank() == 0 ? options.json : ""));
  if (world.rank() == 0) {
    absl::PrintF("# %s; %d ranks on %d hosts; no computation; medians of the slowest rank\n", command, world.size(),
                 world.node_count());
    absl::PrintF("#%-11s %6s %6s %6s %12s %8s %12s %8s %8s %10s %10s %10s %10s\n", "model", "type", "memory", "graphs",
                 "compression", "tensors", "bytes", "calls", "coded", "ms", "min ms", "GB/s", "host us");
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
