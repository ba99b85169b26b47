// What cudnn_cnn's network calls of CUDA and cuBLAS, by their definitions and in host memory, and its own kernels
// thread by thread: in place of the libraries, so that the network can be tried where no GPU is. cuDNN: host_cudnn.cc.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cublas_v2.h"
#include "cuda_runtime_api.h"
#include "elementwise.h"
#include "kernels.h"

using cudnn_cnn::Bf16;

extern "C" {

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*gpu*/) {
  *properties = {};
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int /*gpu*/) {
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) {
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t /*error*/) {
  return "";
}

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t /*handle*/) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t /*handle*/, cudaStream_t /*stream*/) {
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t /*status*/) {
  return "";
}
// Column by column.
cublasStatus_t cublasSgemm_v2(cublasHandle_t /*handle*/, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n,
                              int k, const float* alpha, const float* a, int lda, const float* b, int ldb,
                              const float* beta, float* c, int ldc) {
  if (lda < (of_a == CUBLAS_OP_N ? m : k) || ldb < (of_b == CUBLAS_OP_N ? k : n) || ldc < m || *beta != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (int column = 0; column < n; ++column) {
    for (int row = 0; row < m; ++row) {
      double sum = 0;
      for (int i = 0; i < k; ++i) {
        const float left = of_a == CUBLAS_OP_N ? a[row + i * lda] : a[i + row * lda];
        const float right = of_b == CUBLAS_OP_N ? b[i + column * ldb] : b[column + i * ldb];
        sum += static_cast<double>(left) * static_cast<double>(right);
      }
      c[row + column * ldc] = *alpha * static_cast<float>(sum);
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

// As kernels.cu.
namespace cudnn_cnn {

Rows MakeRows(int64_t rows, int channels) {
  return {.rows = rows, .channels = channels, .chunks = static_cast<int>(std::min<int64_t>(3, rows))};
}

template <typename T>
cudaError_t Kernels<T>::LoadBatch(const uint8_t* pixels, const int32_t* indices, int64_t images, int64_t rows,
                                  int channels, int padded, T* batch, cudaStream_t) {
  for (int64_t i = 0; i < images * rows * padded; ++i) LoadPixel(i, pixels, indices, rows, channels, padded, batch);
  return cudaSuccess;
}
template <typename T>
cudaError_t Kernels<T>::Statistics(Rows rows, const T* x, float* sums, float* mean, float* inverse, cudaStream_t) {
  for (int64_t thread = 0; thread < rows.threads(); ++thread) SumChunk(thread, rows, x, sums);
  for (int64_t c = 0; c < rows.channels; ++c) FinishStatistics(c, rows, TotalOf(c, rows, sums), mean, inverse);
  return cudaSuccess;
}
template <typename T>
cudaError_t Kernels<T>::Normalise(Rows rows, const T* x, Norm norm, const T* residual, bool relu, T* y, cudaStream_t) {
  for (int64_t i = 0; i < rows.rows * rows.channels; ++i) {
    cudnn_cnn::Normalise(i, rows.channels, x, norm, residual, relu, y);
  }
  return cudaSuccess;
}
template <typename T>
cudaError_t Kernels<T>::NormaliseBackward(Rows rows, const T* x, const T* y, T* dy, Norm norm, float* sums,
                                          float* dscale, float* dshift, T* dx, cudaStream_t) {
  for (int64_t thread = 0; thread < rows.threads(); ++thread) {
    SumGradientChunk(thread, rows, x, y, dy, norm.mean, norm.inverse, sums);
  }
  for (int64_t c = 0; c < rows.channels; ++c) FinishGradients(c, TotalOf(c, rows, sums), dscale, dshift);
  for (int64_t i = 0; i < rows.rows * rows.channels; ++i) {
    cudnn_cnn::NormaliseBackward(i, rows, x, dy, norm, dscale, dshift, dx);
  }
  return cudaSuccess;
}
template <typename T>
cudaError_t Kernels<T>::Add(int64_t count, const T* more, T* to, cudaStream_t) {
  for (int64_t i = 0; i < count; ++i) AddTo(i, more, to);
  return cudaSuccess;
}
template <typename T>
cudaError_t Kernels<T>::Pool(int64_t images, int64_t rows, int channels, const T* x, float* features, cudaStream_t) {
  for (int64_t i = 0; i < images * channels; ++i) cudnn_cnn::Pool(i, rows, channels, x, features);
  return cudaSuccess;
}
template <typename T>
cudaError_t Kernels<T>::PoolBackward(int64_t images, int64_t rows, int channels, const float* dfeatures, T* dx,
                                     cudaStream_t) {
  for (int64_t i = 0; i < images * rows * channels; ++i) cudnn_cnn::PoolBackward(i, rows, channels, dfeatures, dx);
  return cudaSuccess;
}
template struct Kernels<float>;
template struct Kernels<Bf16>;

cudaError_t AddBias(int64_t images, int classes, const float* bias, float* logits, cudaStream_t) {
  for (int64_t i = 0; i < images * classes; ++i) AddBias(i, classes, bias, logits);
  return cudaSuccess;
}
cudaError_t SoftmaxLoss(int64_t images, int classes, const int32_t* labels, const int32_t* indices, float* logits,
                        float* losses, int32_t* right, cudaStream_t) {
  for (int64_t n = 0; n < images; ++n) SoftmaxLoss(n, images, classes, labels, indices, logits, losses, right);
  return cudaSuccess;
}
cudaError_t SumColumns(int64_t images, int classes, const float* dlogits, float* dbias, cudaStream_t) {
  for (int64_t k = 0; k < classes; ++k) SumColumn(k, images, classes, dlogits, dbias);
  return cudaSuccess;
}
cudaError_t Update(const Trained* parameters, int count, int64_t /*longest*/, float rate, float momentum,
                   cudaStream_t) {
  for (int p = 0; p < count; ++p) {
    for (int64_t i = 0; i < parameters[p].count; ++i) Update(i, parameters[p], rate, momentum);
  }
  return cudaSuccess;
}

}  // namespace cudnn_cnn
