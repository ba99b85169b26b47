// The example's own kernels (elementwise.h), as the host launches them. All queue on `stream`; pointers are to the
// GPU's memory. What a launch returns is checked by the caller, as CUDA's other calls are.
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "elementwise.h"

namespace cudnn_cnn {

// How many parts a channel's sums are taken in.
Rows MakeRows(int64_t rows, int channels);

// T: float or Bf16.
template <typename T>
struct Kernels {
  static cudaError_t LoadBatch(const uint8_t* pixels, const int32_t* indices, int64_t images, int64_t rows_of_image,
                               int channels, int padded, T* batch, cudaStream_t stream);

  // `sums`: 2 * rows.threads() floats.
  static cudaError_t Statistics(Rows rows, const T* x, float* sums, float* mean, float* inverse, cudaStream_t stream);
  static cudaError_t Normalise(Rows rows, const T* x, Norm norm, const T* residual, bool relu, T* y,
                               cudaStream_t stream);
  // y: null without relu. dy becomes the residual's gradient.
  static cudaError_t NormaliseBackward(Rows rows, const T* x, const T* y, T* dy, Norm norm, float* sums, float* dscale,
                                       float* dshift, T* dx, cudaStream_t stream);
  static cudaError_t Add(int64_t count, const T* more, T* to, cudaStream_t stream);
  static cudaError_t Pool(int64_t images, int64_t rows_of_image, int channels, const T* x, float* features,
                          cudaStream_t stream);
  static cudaError_t PoolBackward(int64_t images, int64_t rows_of_image, int channels, const float* dfeatures, T* dx,
                                  cudaStream_t stream);
};

cudaError_t AddBias(int64_t images, int classes, const float* bias, float* logits, cudaStream_t stream);
cudaError_t SoftmaxLoss(int64_t images, int classes, const int32_t* labels, const int32_t* indices, float* logits,
                        float* losses, int32_t* right, cudaStream_t stream);
cudaError_t SumColumns(int64_t images, int classes, const float* dlogits, float* dbias, cudaStream_t stream);

// All parameters in one launch. `longest`: the largest count among them.
cudaError_t Update(const Trained* parameters, int count, int64_t longest, float rate, float momentum,
                   cudaStream_t stream);

}  // namespace cudnn_cnn
