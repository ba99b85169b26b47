// What the example's own kernels do, element by element or channel by channel: one call is one thread's part. They are
// constexpr, which nvcc takes for the GPU as well (--expt-relaxed-constexpr), so that tests run the same code on the
// host. Tensors are N x height x width x channels; a row is a pixel of an image, with all its channels.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace cudnn_cnn {

// The upper half of a float's bits.
struct Bf16 {
  uint16_t bits;
};

constexpr float ToFloat(float value) {
  return value;
}
constexpr float ToFloat(Bf16 value) {
  return std::bit_cast<float>(uint32_t{value.bits} << 16);
}

// Rounded to nearest even.
template <typename T>
constexpr T FromFloat(float value) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return value;
  } else {
    const auto bits = std::bit_cast<uint32_t>(value);
    if (value != value) return T{static_cast<uint16_t>(bits >> 16 | 0x40)};
    return T{static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
  }
}

// Image `indices[...]` of the pixels as bytes: about -2 to 2, and zeros for the channels that it has not. Thread i:
// element i of the batch.
template <typename T>
constexpr void LoadPixel(int64_t i, const uint8_t* pixels, const int32_t* indices, int64_t rows_of_image, int channels,
                         int padded, T* batch) {
  const int64_t row = i / padded;
  const int channel = static_cast<int>(i % padded);
  float value = 0;
  if (channel < channels) {
    const int64_t at = indices[row / rows_of_image] * rows_of_image + row % rows_of_image;
    value = (static_cast<float>(pixels[at * channels + channel]) - 128.0f) / 64.0f;
  }
  batch[i] = FromFloat<T>(value);
}

// Batch normalisation (Ioffe and Szegedy, ICML 2015): sums over rows are taken in `chunks` parts of each channel, and
// put together in one order, so that they come out the same every time.
struct Rows {
  int64_t rows;
  int channels, chunks;

  constexpr int64_t threads() const { return int64_t{channels} * chunks; }
  constexpr int64_t first(int64_t chunk) const { return rows * chunk / chunks; }
};

// Sums and sums of squares of a chunk of a channel: sums[chunk][0 or 1][channel].
template <typename T>
constexpr void SumChunk(int64_t thread, Rows r, const T* x, float* sums) {
  const int64_t chunk = thread / r.channels, channel = thread % r.channels;
  float sum = 0, squares = 0;
  for (int64_t row = r.first(chunk); row < r.first(chunk + 1); ++row) {
    const float value = ToFloat(x[row * r.channels + channel]);
    sum += value;
    squares += value * value;
  }
  sums[2 * chunk * r.channels + channel] = sum;
  sums[(2 * chunk + 1) * r.channels + channel] = squares;
}

// A channel's two sums.
struct Pair {
  double first, second;

  constexpr Pair operator+(const Pair& other) const { return {first + other.first, second + other.second}; }
};

// What a channel's chunks come to is added up by kLanes threads, each of which takes every kLanes-th; then thread i
// adds what thread i + kLanes / 2 has, and so on by halves: always in the same order.
constexpr int kLanes = 32;

constexpr Pair PartOf(int64_t channel, int lane, Rows r, const float* sums) {
  Pair part = {0, 0};
  for (int64_t chunk = lane; chunk < r.chunks; chunk += kLanes) {
    part.first += static_cast<double>(sums[2 * chunk * r.channels + channel]);
    part.second += static_cast<double>(sums[(2 * chunk + 1) * r.channels + channel]);
  }
  return part;
}

// As one thread, and what kLanes of them come to: for the host.
constexpr Pair TotalOf(int64_t channel, Rows r, const float* sums) {
  std::array<Pair, kLanes> parts = {};
  for (size_t lane = 0; lane < kLanes; ++lane) parts[lane] = PartOf(channel, static_cast<int>(lane), r, sums);
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) parts[lane] = parts[lane] + parts[lane + half];
  }
  return parts[0];
}

// Once a channel. Mean, and the inverse of the standard deviation.
constexpr void FinishStatistics(int64_t channel, Rows r, Pair total, float* mean, float* inverse) {
  const double average = total.first / static_cast<double>(r.rows);
  const double variance = total.second / static_cast<double>(r.rows) - average * average;
  mean[channel] = static_cast<float>(average);
  inverse[channel] = static_cast<float>(1 / std::sqrt((variance > 0 ? variance : 0) + 1e-5));
}

struct Norm {
  const float *mean, *inverse, *scale, *shift;  // by channel
};

// y = scale * (x - mean) * inverse + shift, plus `residual` unless null; cut off at 0 if `relu`. Thread: an element.
template <typename T>
constexpr void Normalise(int64_t i, int channels, const T* x, Norm norm, const T* residual, bool relu, T* y) {
  const int64_t c = i % channels;
  float value = (ToFloat(x[i]) - norm.mean[c]) * norm.inverse[c] * norm.scale[c] + norm.shift[c];
  if (residual != nullptr) value += ToFloat(residual[i]);
  y[i] = FromFloat<T>(relu && value < 0 ? 0 : value);
}

// Takes from the gradient `dy` what relu cut off (`y` is its result; null: no relu), in place, and sums it and its
// product with the normalised x. Threads and sums as in SumChunk.
template <typename T>
constexpr void SumGradientChunk(int64_t thread, Rows r, const T* x, const T* y, T* dy, const float* mean,
                                const float* inverse, float* sums) {
  const int64_t chunk = thread / r.channels, channel = thread % r.channels;
  float sum = 0, products = 0;
  for (int64_t row = r.first(chunk); row < r.first(chunk + 1); ++row) {
    const int64_t at = row * r.channels + channel;
    float gradient = ToFloat(dy[at]);
    if (y != nullptr && !(ToFloat(y[at]) > 0)) {
      gradient = 0;
      dy[at] = FromFloat<T>(0);
    }
    sum += gradient;
    products += gradient * (ToFloat(x[at]) - mean[channel]) * inverse[channel];
  }
  sums[2 * chunk * r.channels + channel] = sum;
  sums[(2 * chunk + 1) * r.channels + channel] = products;
}

// Once a channel. The gradients of scale and shift.
constexpr void FinishGradients(int64_t channel, Pair total, float* dscale, float* dshift) {
  dshift[channel] = static_cast<float>(total.first);
  dscale[channel] = static_cast<float>(total.second);
}

// The gradient of x, of what SumGradientChunk has left of dy. Thread: an element.
template <typename T>
constexpr void NormaliseBackward(int64_t i, Rows r, const T* x, const T* dy, Norm norm, const float* dscale,
                                 const float* dshift, T* dx) {
  const int64_t c = i % r.channels;
  const float normalised = (ToFloat(x[i]) - norm.mean[c]) * norm.inverse[c];
  const float count = static_cast<float>(r.rows);
  const float centred = ToFloat(dy[i]) - dshift[c] / count - normalised * dscale[c] / count;
  dx[i] = FromFloat<T>(norm.scale[c] * norm.inverse[c] * centred);
}

template <typename T>
constexpr void AddTo(int64_t i, const T* more, T* to) {
  to[i] = FromFloat<T>(ToFloat(to[i]) + ToFloat(more[i]));
}

// The mean of each image's rows: features[n][c]. Thread: image n, channel c. And back; thread: an element of dx.
template <typename T>
constexpr void Pool(int64_t i, int64_t rows_of_image, int channels, const T* x, float* features) {
  const int64_t first = i / channels * rows_of_image, channel = i % channels;
  float sum = 0;
  for (int64_t row = first; row < first + rows_of_image; ++row) sum += ToFloat(x[row * channels + channel]);
  features[i] = sum / static_cast<float>(rows_of_image);
}
template <typename T>
constexpr void PoolBackward(int64_t i, int64_t rows_of_image, int channels, const float* dfeatures, T* dx) {
  const int64_t image = i / channels / rows_of_image;
  dx[i] = FromFloat<T>(dfeatures[image * channels + i % channels] / static_cast<float>(rows_of_image));
}

// logits[n][k] += bias[k]. Thread: an element.
constexpr void AddBias(int64_t i, int classes, const float* bias, float* logits) {
  logits[i] += bias[i % classes];
}

// Cross entropy of the softmax of image n's logits, which become the gradient of the batch's mean loss; whether the
// largest is the right one. Thread: image n.
template <typename Real>
constexpr void SoftmaxLoss(int64_t n, int64_t batch, int classes, const int32_t* labels, const int32_t* indices,
                           Real* logits, Real* losses, int32_t* right) {
  Real* const row = logits + n * classes;
  const int32_t label = labels[indices[n]];
  int32_t best = 0;
  for (int32_t k = 1; k < classes; ++k) best = row[k] > row[best] ? k : best;
  const Real most = row[best], wanted = row[label];
  Real sum = 0;
  for (int32_t k = 0; k < classes; ++k) {
    row[k] = std::exp(row[k] - most);
    sum += row[k];
  }
  losses[n] = std::log(sum) + most - wanted;
  right[n] = best == label ? 1 : 0;
  for (int32_t k = 0; k < classes; ++k) {
    row[k] = (row[k] / sum - (k == label ? Real{1} : Real{0})) / static_cast<Real>(batch);
  }
}

// dbias[k] = the sum of dlogits[n][k] over n. Thread: k.
constexpr void SumColumn(int64_t k, int64_t batch, int classes, const float* dlogits, float* dbias) {
  float sum = 0;
  for (int64_t n = 0; n < batch; ++n) sum += dlogits[n * classes + k];
  dbias[k] = sum;
}

// A parameter as its update sees it. Plain data, on the GPU.
struct Trained {
  float *weight, *velocity;
  const void* gradient;
  Bf16* narrow;  // the weight as convolutions take it; null: as it is
  int64_t count;
  float decay;
  bool narrow_gradient;  // Bf16, else float
};

// SGD with momentum: v = momentum * v + g + decay * w; w -= rate * v. Thread: an element.
constexpr void Update(int64_t i, const Trained& t, float rate, float momentum) {
  const float gradient =
      t.narrow_gradient ? ToFloat(static_cast<const Bf16*>(t.gradient)[i]) : static_cast<const float*>(t.gradient)[i];
  t.velocity[i] = momentum * t.velocity[i] + gradient + t.decay * t.weight[i];
  t.weight[i] -= rate * t.velocity[i];
  if (t.narrow != nullptr) t.narrow[i] = FromFloat<Bf16>(t.weight[i]);
}

}  // namespace cudnn_cnn
