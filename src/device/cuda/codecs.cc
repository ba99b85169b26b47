#include "device/cuda/codecs.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "device/cuda/call.h"
#include "device/cuda/launch.cuh"
#include "gyre/status_macros.h"

namespace gyre::device::cuda {

namespace {

class CudaCodecs final : public GpuCodecs {
 public:
  CudaCodecs(const PrimaryContext& primary, int multiprocessors)
      : primary_(primary), multiprocessors_(multiprocessors) {}

  absl::Status Quantize(Quantizer kind, const float* gradient, float* kept, int64_t count, uint64_t seed,
                        std::byte* out, Stream stream) override {
    RETURN_IF_ERROR(CheckQuantization(gradient, kept, count, out));
    return On(
        [&](cudaStream_t on) {
          return LaunchQuantize(kind, {gradient, kept, count, seed, out}, multiprocessors_, on);
        },
        stream, "quantising");
  }

  absl::Status DequantizeAdd(Quantizer kind, const std::byte* from, int64_t count, float scale, float* sum,
                             Stream stream) override {
    RETURN_IF_ERROR(CheckDequantization(from));
    return On(
        [&](cudaStream_t on) {
          return LaunchDequantizeAdd(kind, {from, sum, count, scale}, multiprocessors_, on);
        },
        stream, "adding up what was quantised");
  }

  absl::Status SelectLargest(const kernels::DgcTable& table, DType gradients, const kernels::DgcStep& step,
                             Stream stream) override {
    RETURN_IF_ERROR(CheckSelection(gradients, step));
    return On([&](cudaStream_t on) { return LaunchSelectLargest(table, gradients, step, multiprocessors_, on); },
              stream, "choosing the largest elements");
  }

  absl::Status EncodeSparse(std::span<const kernels::SparseEncoding> tensors, kernels::SparseValues values,
                            Stream stream) override {
    for (const auto& tensor : tensors) RETURN_IF_ERROR(CheckSparse(tensor.count));
    for (; !tensors.empty(); tensors = Rest(tensors)) {
      RETURN_IF_ERROR(On([&](cudaStream_t on) { return LaunchEncodeSparse(First(tensors), values, on); }, stream,
                         "encoding sparse payloads"));
    }
    return absl::OkStatus();
  }

  absl::Status DecodeAddSparse(std::span<const kernels::SparseDecoding> payloads, Stream stream) override {
    for (const auto& payload : payloads) RETURN_IF_ERROR(CheckSparse(payload.count));
    for (; !payloads.empty(); payloads = Rest(payloads)) {
      RETURN_IF_ERROR(On([&](cudaStream_t on) { return LaunchDecodeAddSparse(First(payloads), on); }, stream,
                         "adding up sparse payloads"));
    }
    return absl::OkStatus();
  }

  absl::Status TakeRandom(const kernels::RandomChoice& choice, float* values, float* to, Stream stream) override {
    RETURN_IF_ERROR(CheckRandom(choice));
    return On([&](cudaStream_t on) { return LaunchTakeRandom(choice, values, to, multiprocessors_, on); }, stream,
              "taking elements by lot");
  }

  absl::Status AddRandom(const kernels::RandomChoice& choice, const float* from, float scale, float* sum,
                         Stream stream) override {
    RETURN_IF_ERROR(CheckRandom(choice));
    return On([&](cudaStream_t on) { return LaunchAddRandom(choice, from, scale, sum, multiprocessors_, on); }, stream,
              "adding up elements by lot");
  }

  absl::Status PutElements(const kernels::ElementList& list, float* to, Stream stream) override {
    return On([&](cudaStream_t on) { return LaunchPutElements(list, to, multiprocessors_, on); }, stream,
              "putting sums in place");
  }

  absl::Status TakeBack(const kernels::ReturnedList& returned, Stream stream) override {
    return On([&](cudaStream_t on) { return LaunchTakeBack(returned, multiprocessors_, on); }, stream,
              "taking elements back");
  }

  absl::Status LowRank(kernels::LowRankPass pass, std::span<const kernels::LowRankMatrix> matrices,
                       Stream stream) override {
    RETURN_IF_ERROR(CheckLowRank(matrices));
    for (; !matrices.empty(); matrices = Rest(matrices)) {
      RETURN_IF_ERROR(On([&](cudaStream_t on) { return LaunchLowRank(pass, First(matrices), multiprocessors_, on); },
                         stream, "multiplying by factors of low rank"));
    }
    return absl::OkStatus();
  }

 private:
  // What one launch takes, and what is left for the next.
  template <typename Task>
  static std::span<const Task> First(std::span<const Task> tasks) {
    return tasks.first(std::min<size_t>(tasks.size(), kTaskBatch));
  }
  template <typename Task>
  static std::span<const Task> Rest(std::span<const Task> tasks) {
    return tasks.subspan(First(tasks).size());
  }

  template <typename Launch>
  absl::Status On(const Launch& launch, Stream stream, std::string_view what) {
    return cuda::On(
        primary_, [&] { return launch(AsCuda(stream)); }, what);
  }

  const PrimaryContext primary_;
  const int multiprocessors_;
};

}  // namespace

std::unique_ptr<GpuCodecs> MakeCodecs(const PrimaryContext& primary, int multiprocessors) {
  return std::make_unique<CudaCodecs>(primary, multiprocessors);
}

}  // namespace gyre::device::cuda
