// What cudnn_cnn's network calls of CUDA, cuDNN and cuBLAS, by their definitions and in host memory, and its own
// kernels thread by thread: in place of the libraries, so that the network can be tried where no GPU is.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cublas_v2.h"
#include "cuda_runtime_api.h"
#include "cudnn.h"
#include "elementwise.h"
#include "kernels.h"

using cudnn_cnn::Bf16;

struct cudnnTensorStruct {
  cudnnDataType_t type;
  int n, c, h, w;
};
struct cudnnFilterStruct {
  cudnnDataType_t type;
  int k, c, size;
};
struct cudnnConvolutionStruct {
  int padding, stride;
};

namespace {

float Load(cudnnDataType_t type, const void* data, int64_t i) {
  if (type == CUDNN_DATA_BFLOAT16) return ToFloat(static_cast<const Bf16*>(data)[i]);
  return static_cast<const float*>(data)[i];
}
void Store(cudnnDataType_t type, void* data, int64_t i, double value) {
  if (type == CUDNN_DATA_BFLOAT16) {
    static_cast<Bf16*>(data)[i] = cudnn_cnn::FromFloat<Bf16>(static_cast<float>(value));
  } else {
    static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

// body(place in x, place in w, place in y) for every product of a convolution.
template <typename Body>
void ForEachProduct(const cudnnTensorStruct& x, const cudnnFilterStruct& w, const cudnnConvolutionStruct& how,
                    const cudnnTensorStruct& y, Body body) {
  for (int64_t n = 0; n < y.n; ++n) {
    for (int64_t row = 0; row < y.h; ++row) {
      for (int64_t column = 0; column < y.w; ++column) {
        for (int64_t tap = 0; tap < int64_t{w.size} * w.size; ++tap) {
          const int64_t above = row * how.stride + tap / w.size - how.padding;
          const int64_t left = column * how.stride + tap % w.size - how.padding;
          if (above < 0 || above >= x.h || left < 0 || left >= x.w) continue;
          const int64_t from = ((n * x.h + above) * x.w + left) * x.c;
          const int64_t to = ((n * y.h + row) * y.w + column) * y.c;
          for (int64_t k = 0; k < w.k; ++k) {
            const int64_t weight = (k * w.size * w.size + tap) * w.c;
            for (int64_t c = 0; c < w.c; ++c) body(from + c, weight + c, to + k);
          }
        }
      }
    }
  }
}

template <typename Performance>
cudnnStatus_t OneAlgorithm(int* count, Performance* found) {
  *count = 2;
  found[0] = {};
  found[0].status = CUDNN_STATUS_NOT_SUPPORTED;  // to be passed over
  found[1] = {};
  found[1].status = CUDNN_STATUS_SUCCESS;
  found[1].memory = 16;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

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

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = nullptr;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t /*handle*/) {
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t /*handle*/, cudaStream_t /*stream*/) {
  return CUDNN_STATUS_SUCCESS;
}
const char* cudnnGetErrorString(cudnnStatus_t /*status*/) {
  return "";
}
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  *tensor = new cudnnTensorStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  delete tensor;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  *tensor = {.type = type, .n = n, .c = c, .h = h, .w = w};
  return format == CUDNN_TENSOR_NHWC ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  *filter = new cudnnFilterStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  delete filter;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  *filter = {.type = type, .k = k, .c = c, .size = h};
  return format == CUDNN_TENSOR_NHWC && h == w ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  *convolution = new cudnnConvolutionStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  delete convolution;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t /*type*/) {
  *convolution = {.padding = pad_h, .stride = stride_h};
  const bool known = pad_h == pad_w && stride_h == stride_w && dilation_h == 1 && dilation_w == 1;
  return known && mode == CUDNN_CROSS_CORRELATION ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t /*convolution*/, cudnnMathType_t /*type*/) {
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                                     cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, int,
                                                     int* count, cudnnConvolutionFwdAlgoPerf_t* found) {
  return OneAlgorithm(count, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                            cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                            cudnnFilterDescriptor_t, int, int* count,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* found) {
  return OneAlgorithm(count, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                          cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                          cudnnTensorDescriptor_t, int, int* count,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* found) {
  return OneAlgorithm(count, found);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t, const void*, cudnnTensorDescriptor_t x, const void* x_data,
                                      cudnnFilterDescriptor_t w, const void* w_data, cudnnConvolutionDescriptor_t how,
                                      cudnnConvolutionFwdAlgo_t, void*, size_t, const void*, cudnnTensorDescriptor_t y,
                                      void* y_data) {
  std::vector<double> sums(static_cast<size_t>(y->n) * y->h * y->w * y->c);
  ForEachProduct(*x, *w, *how, *y, [&](int64_t from, int64_t weight, int64_t to) {
    sums[static_cast<size_t>(to)] += Load(x->type, x_data, from) * Load(w->type, w_data, weight);
  });
  for (size_t i = 0; i < sums.size(); ++i) Store(y->type, y_data, static_cast<int64_t>(i), sums[i]);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t, const void*, cudnnTensorDescriptor_t x, const void* x_data,
                                             cudnnTensorDescriptor_t y, const void* dy,
                                             cudnnConvolutionDescriptor_t how, cudnnConvolutionBwdFilterAlgo_t, void*,
                                             size_t, const void*, cudnnFilterDescriptor_t w, void* dw) {
  std::vector<double> sums(static_cast<size_t>(w->k) * w->size * w->size * w->c);
  ForEachProduct(*x, *w, *how, *y, [&](int64_t from, int64_t weight, int64_t to) {
    sums[static_cast<size_t>(weight)] += Load(x->type, x_data, from) * Load(y->type, dy, to);
  });
  for (size_t i = 0; i < sums.size(); ++i) Store(w->type, dw, static_cast<int64_t>(i), sums[i]);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t, const void*, cudnnFilterDescriptor_t w, const void* w_data,
                                           cudnnTensorDescriptor_t y, const void* dy, cudnnConvolutionDescriptor_t how,
                                           cudnnConvolutionBwdDataAlgo_t, void*, size_t, const void*,
                                           cudnnTensorDescriptor_t x, void* dx) {
  std::vector<double> sums(static_cast<size_t>(x->n) * x->h * x->w * x->c);
  ForEachProduct(*x, *w, *how, *y, [&](int64_t from, int64_t weight, int64_t to) {
    sums[static_cast<size_t>(from)] += Load(w->type, w_data, weight) * Load(y->type, dy, to);
  });
  for (size_t i = 0; i < sums.size(); ++i) Store(x->type, dx, static_cast<int64_t>(i), sums[i]);
  return CUDNN_STATUS_SUCCESS;
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
  for (int64_t c = 0; c < rows.channels; ++c) FinishStatistics(c, rows, sums, mean, inverse);
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
  for (int64_t c = 0; c < rows.channels; ++c) FinishGradients(c, rows, sums, dscale, dshift);
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
