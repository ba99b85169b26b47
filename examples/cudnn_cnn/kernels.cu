#include <algorithm>

#include "kernels.h"

namespace cudnn_cnn {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 4096;

// body(i) for each i below count, in no order.
template <typename Body>
__global__ void __launch_bounds__(kThreads) RunForEach(int64_t count, Body body) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) body(i);
}

template <typename Body>
cudaError_t ForEach(int64_t count, cudaStream_t stream, Body body) {
  if (count <= 0) return cudaSuccess;
  const int64_t blocks = std::min((count + kThreads - 1) / kThreads, kMostBlocks);
  RunForEach<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(count, body);
  return cudaGetLastError();
}

// finish(channel, its sums) for each channel, a warp each: SumChunk and SumGradientChunk have left the parts.
template <typename Finish>
__global__ void __launch_bounds__(kThreads) RunForEachChannel(Rows rows, const float* sums, Finish finish) {
  constexpr unsigned kAll = 0xffffffff;
  const int64_t channel = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  if (channel >= rows.channels) return;  // all of a warp
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  Pair total = PartOf(channel, lane, rows, sums);
  for (int half = kLanes / 2; half > 0; half /= 2) {  // as TotalOf; the lanes above half have what nobody takes
    total = total + Pair{__shfl_down_sync(kAll, total.first, half), __shfl_down_sync(kAll, total.second, half)};
  }
  if (lane == 0) finish(channel, total);
}

template <typename Finish>
cudaError_t ForEachChannel(Rows rows, const float* sums, cudaStream_t stream, Finish finish) {
  constexpr int kWarps = kThreads / kLanes;
  const auto blocks = static_cast<unsigned>((rows.channels + kWarps - 1) / kWarps);
  RunForEachChannel<<<blocks, kThreads, 0, stream>>>(rows, sums, finish);
  return cudaGetLastError();
}

// A block's second number is the parameter's.
__global__ void __launch_bounds__(kThreads) UpdateAll(const Trained* parameters, float rate, float momentum) {
  const Trained parameter = parameters[blockIdx.y];
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < parameter.count; i += step) {
    Update(i, parameter, rate, momentum);
  }
}

}  // namespace

Rows MakeRows(int64_t rows, int channels) {
  constexpr int64_t kWanted = 1 << 17;  // threads that fill a large GPU about once
  const int64_t chunks = std::clamp<int64_t>(kWanted / channels, 1, 2048);
  return {.rows = rows, .channels = channels, .chunks = static_cast<int>(std::min(chunks, rows))};
}

template <typename T>
cudaError_t Kernels<T>::LoadBatch(const uint8_t* pixels, const int32_t* indices, int64_t images, int64_t rows_of_image,
                                  int channels, int padded, T* batch, cudaStream_t stream) {
  return ForEach(images * rows_of_image * padded, stream,
                 [=] __device__(int64_t i) { LoadPixel(i, pixels, indices, rows_of_image, channels, padded, batch); });
}

template <typename T>
cudaError_t Kernels<T>::Statistics(Rows rows, const T* x, float* sums, float* mean, float* inverse,
                                   cudaStream_t stream) {
  const cudaError_t error =
      ForEach(rows.threads(), stream, [=] __device__(int64_t thread) { SumChunk(thread, rows, x, sums); });
  if (error != cudaSuccess) return error;
  return ForEachChannel(rows, sums, stream, [=] __device__(int64_t channel, Pair total) {
    FinishStatistics(channel, rows, total, mean, inverse);
  });
}

template <typename T>
cudaError_t Kernels<T>::Normalise(Rows rows, const T* x, Norm norm, const T* residual, bool relu, T* y,
                                  cudaStream_t stream) {
  return ForEach(rows.rows * rows.channels, stream,
                 [=] __device__(int64_t i) { cudnn_cnn::Normalise(i, rows.channels, x, norm, residual, relu, y); });
}

template <typename T>
cudaError_t Kernels<T>::NormaliseBackward(Rows rows, const T* x, const T* y, T* dy, Norm norm, float* sums,
                                          float* dscale, float* dshift, T* dx, cudaStream_t stream) {
  cudaError_t error = ForEach(rows.threads(), stream, [=] __device__(int64_t thread) {
    SumGradientChunk(thread, rows, x, y, dy, norm.mean, norm.inverse, sums);
  });
  if (error != cudaSuccess) return error;
  error = ForEachChannel(rows, sums, stream, [=] __device__(int64_t channel, Pair total) {
    FinishGradients(channel, total, dscale, dshift);
  });
  if (error != cudaSuccess) return error;
  return ForEach(rows.rows * rows.channels, stream,
                 [=] __device__(int64_t i) { cudnn_cnn::NormaliseBackward(i, rows, x, dy, norm, dscale, dshift, dx); });
}

template <typename T>
cudaError_t Kernels<T>::Add(int64_t count, const T* more, T* to, cudaStream_t stream) {
  return ForEach(count, stream, [=] __device__(int64_t i) { AddTo(i, more, to); });
}

template <typename T>
cudaError_t Kernels<T>::Pool(int64_t images, int64_t rows_of_image, int channels, const T* x, float* features,
                             cudaStream_t stream) {
  return ForEach(images * channels, stream,
                 [=] __device__(int64_t i) { cudnn_cnn::Pool(i, rows_of_image, channels, x, features); });
}

template <typename T>
cudaError_t Kernels<T>::PoolBackward(int64_t images, int64_t rows_of_image, int channels, const float* dfeatures, T* dx,
                                     cudaStream_t stream) {
  return ForEach(images * rows_of_image * channels, stream,
                 [=] __device__(int64_t i) { cudnn_cnn::PoolBackward(i, rows_of_image, channels, dfeatures, dx); });
}

template struct Kernels<float>;
template struct Kernels<Bf16>;

cudaError_t AddBias(int64_t images, int classes, const float* bias, float* logits, cudaStream_t stream) {
  return ForEach(images * classes, stream, [=] __device__(int64_t i) { AddBias(i, classes, bias, logits); });
}

cudaError_t SoftmaxLoss(int64_t images, int classes, const int32_t* labels, const int32_t* indices, float* logits,
                        float* losses, int32_t* right, cudaStream_t stream) {
  return ForEach(images, stream, [=] __device__(int64_t n) {
    SoftmaxLoss(n, images, classes, labels, indices, logits, losses, right);
  });
}

cudaError_t SumColumns(int64_t images, int classes, const float* dlogits, float* dbias, cudaStream_t stream) {
  return ForEach(classes, stream, [=] __device__(int64_t k) { SumColumn(k, images, classes, dlogits, dbias); });
}

cudaError_t Update(const Trained* parameters, int count, int64_t longest, float rate, float momentum,
                   cudaStream_t stream) {
  const int64_t blocks = std::clamp<int64_t>((longest + kThreads - 1) / kThreads, 1, 1024);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(count));
  UpdateAll<<<grid, kThreads, 0, stream>>>(parameters, rate, momentum);
  return cudaGetLastError();
}

}  // namespace cudnn_cnn
