// The language model: predicts a character from the ones before it.
//
//   h1 = relu(table[0][c-1] + table[1][c-2] + ... + b1)   a row for each character at each distance: no products
//   h2 = relu(h1 * W2 + b2) + h1
//   p  = softmax(h2 * W3 + b3)
//
// Weights and gradients lie in flat arrays that the caller owns, so that the gradient can live where all ranks see it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "blas.h"
#include "portable.h"

namespace char_lm {

struct ModelShape {
  int alphabet = 0;  // how many characters there are, 1 to 256
  int context = 0;   // how many characters back the model sees
  int hidden = 0;    // width of both hidden layers

  int64_t parameters() const;

  // The parts of a flat array of parameters, in their order.
  struct Layer {
    const char* name;
    std::vector<int64_t> shape;
    int64_t count() const;
  };
  std::vector<Layer> layers() const;

  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

// Characters to predict, each with those before it: `count` rows of context + 1 symbols, oldest first, the last one
// being the target.
struct Samples {
  std::vector<uint8_t> symbols;
  int count = 0;
};

// T is float, or double for tests. Not thread-safe: it holds the activations.
template <typename T>
class Model {
 public:
  // `portable`: with the same bits on every processor (portable.h), of float; otherwise by BLAS, which is faster.
  explicit Model(const ModelShape& shape, bool portable = false);

  const ModelShape& shape() const { return shape_; }

  // Random weights; the same for the same seed. weights.size() == shape().parameters(), here and below.
  void Initialise(uint64_t seed, std::span<T> weights) const;

  // Sum of the losses of the samples, in nats.
  double Loss(std::span<const T> weights, const Samples& samples);

  // The same, and adds `scale` times its gradient to `gradient`. `complete`, if given, is called with the number of
  // each of the shape's layers() once nothing more will be added to its part, from the last layer to the first.
  using Complete = std::function<void(int layer)>;
  double LossAndGradient(std::span<const T> weights, const Samples& samples, T scale, std::span<T> gradient,
                         const Complete& complete = nullptr);

 private:
  // Where each part of the model lies in a flat array.
  template <typename U>
  struct Parts {
    U* tables;
    U* bias1;
    U* matrix2;
    U* bias2;
    U* matrix3;
    U* bias3;
  };
  template <typename U>
  Parts<U> Split(U* flat) const;

  void Multiply(Transpose transpose_a, Transpose transpose_b, int rows, int columns, int inner, const T* a, const T* b,
                bool add, T* c);
  double Forward(const Parts<const T>& weights, const uint8_t* symbols, int count);  // leaves p in scores_
  void Backward(const Parts<const T>& weights, const uint8_t* symbols, int count, T scale, const Parts<T>& gradient,
                const Complete& complete);

  ModelShape shape_;
  std::optional<PortableProducts> portable_;
  std::vector<T> hidden1_, hidden2_, sum_, scores_, delta_;  // a row for each sample of a slice
};

extern template class Model<float>;
extern template class Model<double>;

}  // namespace char_lm
