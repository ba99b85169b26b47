#include "network.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "convolutions.h"
#include "gyre/status_macros.h"
#include "kernels.h"

namespace cudnn_cnn {

namespace {

constexpr float kOne = 1, kZero = 0;

// T: of activations, float or Bf16.
template <typename T>
class NetworkOf final : public Network {
 public:
  NetworkOf(const Gpu& gpu, int batch, Precision precision)
      : Network(gpu, batch), convolutions_(gpu.dnn.get(), batch, precision) {}
  absl::Status Build(const NetworkShape& shape, const Options& options);

  absl::Status Forward(const Data& data, const int32_t* indices) override;
  absl::Status Backward(const Ready& ready) override;

 private:
  using K = Kernels<T>;

  // A convolution and its normalisation: z = conv(x), y = norm(z), perhaps plus a residual, perhaps cut off at 0.
  struct Unit {
    const Convolution* convolution;
    Rows rows;
    bool relu;
    int weight;  // the parameter; its scale and shift are the next two
    T *z, *y;
    float *mean, *inverse;
  };
  struct Block {
    Unit first, second;
    std::optional<Unit> shortcut;
    int64_t inputs;  // elements of an image's x
  };

  absl::StatusOr<Unit> MakeUnit(const ConvShape& shape, bool relu, const Options& options);
  absl::Status MakeHead(const Options& options);
  Norm NormOf(const Unit& unit) const;
  absl::Status Forward(const Unit& unit, const T* x, const T* residual);

  // dy: the gradient of the unit's y; it becomes that of its residual. dx: null where nobody asks for it.
  absl::Status Backward(const Unit& unit, const T* x, T* dy, T* dx, const Ready& ready);
  absl::Status Backward(const Block& block, const T* x, const Ready& ready);
  absl::Status ForwardHead(const Data& data, const int32_t* indices);
  absl::Status BackwardHead(const Ready& ready);
  const T* weights(const Unit& unit) const;
  const T* last() const { return blocks_.back().second.y; }
  cudaStream_t stream() const { return gpu_.stream.get(); }

  NetworkShape shape_;
  Convolutions convolutions_;
  std::optional<Unit> stem_;
  std::vector<Block> blocks_;
  int linear_ = 0;  // the parameter; its bias is the next
  T* batch_images_ = nullptr;
  T* dz_ = nullptr;
  std::array<T*, 3> gradients_ = {};  // [0]: of what the backward pass has come to; the others: within a block
  float *sums_ = nullptr, *features_ = nullptr, *dfeatures_ = nullptr, *logits_ = nullptr;
  void* workspace_ = nullptr;
};

template <typename T>
const T* NetworkOf<T>::weights(const Unit& unit) const {
  const Parameter& parameter = parameters_[static_cast<size_t>(unit.weight)];
  if constexpr (std::is_same_v<T, Bf16>) {
    return parameter.narrow_weight;
  } else {
    return parameter.weight;
  }
}

template <typename T>
Norm NetworkOf<T>::NormOf(const Unit& unit) const {
  return {.mean = unit.mean,
          .inverse = unit.inverse,
          .scale = parameters_[static_cast<size_t>(unit.weight) + 1].weight,
          .shift = parameters_[static_cast<size_t>(unit.weight) + 2].weight};
}

template <typename T>
absl::StatusOr<typename NetworkOf<T>::Unit> NetworkOf<T>::MakeUnit(const ConvShape& shape, bool relu,
                                                                   const Options& options) {
  const int index = static_cast<int>(parameters_.size());
  const int64_t inputs = int64_t{shape.kernel} * shape.kernel * shape.in.channels;
  Parameter weight{.name = absl::StrCat(shape.name, ".weight"),
                   .shape = {shape.out.channels, shape.kernel, shape.kernel, shape.in.channels},
                   .count = shape.weights(),
                   .narrow = std::is_same_v<T, Bf16>,
                   .decay = options.decay};
  RETURN_IF_ERROR(
      AddParameter(std::move(weight), InitialWeights(options.seed, index, shape.weights(), inputs)).status());
  for (const auto& [name, value] : {std::pair("scale", 1.0f), std::pair("shift", 0.0f)}) {
    Parameter parameter{
        .name = absl::StrCat(shape.name, ".", name), .shape = {shape.out.channels}, .count = shape.out.channels};
    const std::vector<float> values(static_cast<size_t>(shape.out.channels), value);
    RETURN_IF_ERROR(AddParameter(std::move(parameter), values).status());
  }
  const bool first = index == 0;  // nobody asks for the gradient of images
  ASSIGN_OR_RETURN(const Convolution* const convolution, convolutions_.Of(shape, !first));
  Unit unit{.convolution = convolution,
            .rows = MakeRows(batch_ * shape.out.pixels(), shape.out.channels),
            .relu = relu,
            .weight = index,
            .z = nullptr,
            .y = nullptr,
            .mean = nullptr,
            .inverse = nullptr};
  RETURN_IF_ERROR(Take(batch_ * shape.out.elements(), unit.z));
  RETURN_IF_ERROR(Take(batch_ * shape.out.elements(), unit.y));
  RETURN_IF_ERROR(Take(shape.out.channels, unit.mean));
  RETURN_IF_ERROR(Take(shape.out.channels, unit.inverse));
  return unit;
}

template <typename T>
absl::Status NetworkOf<T>::MakeHead(const Options& options) {
  linear_ = static_cast<int>(parameters_.size());
  const int64_t count = int64_t{shape_.classes} * shape_.features;
  Parameter weight{
      .name = "linear.weight", .shape = {shape_.classes, shape_.features}, .count = count, .decay = options.decay};
  RETURN_IF_ERROR(
      AddParameter(std::move(weight), InitialWeights(options.seed, linear_, count, shape_.features)).status());
  Parameter bias{.name = "linear.bias", .shape = {shape_.classes}, .count = shape_.classes};
  const std::vector<float> zeros(static_cast<size_t>(shape_.classes));
  RETURN_IF_ERROR(AddParameter(std::move(bias), zeros).status());
  RETURN_IF_ERROR(Take(int64_t{batch_} * shape_.features, features_));
  RETURN_IF_ERROR(Take(int64_t{batch_} * shape_.features, dfeatures_));
  RETURN_IF_ERROR(Take(int64_t{batch_} * shape_.classes, logits_));
  RETURN_IF_ERROR(Take(int64_t{batch_}, losses_));
  return Take(int64_t{batch_}, right_);
}

template <typename T>
absl::Status NetworkOf<T>::Build(const NetworkShape& shape, const Options& options) {
  shape_ = shape;
  ASSIGN_OR_RETURN(stem_, MakeUnit(shape.stem, true, options));
  for (const BlockShape& each : shape.blocks) {
    ASSIGN_OR_RETURN(Unit first, MakeUnit(each.first, true, options));
    ASSIGN_OR_RETURN(Unit second, MakeUnit(each.second, true, options));
    Block block{.first = std::move(first),
                .second = std::move(second),
                .shortcut = std::nullopt,
                .inputs = each.first.in.elements()};
    for (const ConvShape& shortcut : each.shortcut) {
      ASSIGN_OR_RETURN(block.shortcut, MakeUnit(shortcut, false, options));
    }
    blocks_.push_back(std::move(block));
  }
  RETURN_IF_ERROR(MakeHead(options));
  int64_t elements = 0, sums = 0;
  for (const ConvShape& each : shape.convolutions()) {
    elements = std::max(elements, batch_ * std::max(each.in.elements(), each.out.elements()));
    sums = std::max(sums, 2 * MakeRows(batch_ * each.out.pixels(), each.out.channels).threads());
  }
  for (T*& gradient : gradients_) RETURN_IF_ERROR(Take(elements, gradient));
  RETURN_IF_ERROR(Take(elements, dz_));
  RETURN_IF_ERROR(Take(batch_ * shape.stem.in.elements(), batch_images_));
  RETURN_IF_ERROR(Take(sums, sums_));
  std::byte* bytes = nullptr;
  RETURN_IF_ERROR(Take(convolutions_.workspace(), bytes));
  workspace_ = bytes;
  return absl::OkStatus();
}

template <typename T>
absl::Status NetworkOf<T>::Forward(const Unit& unit, const T* x, const T* residual) {
  RETURN_IF_ERROR(unit.convolution->Forward(x, weights(unit), unit.z, workspace_));
  RETURN_IF_ERROR(Check(K::Statistics(unit.rows, unit.z, sums_, unit.mean, unit.inverse, stream()), "statistics"));
  return Check(K::Normalise(unit.rows, unit.z, NormOf(unit), residual, unit.relu, unit.y, stream()), "normalising");
}

template <typename T>
absl::Status NetworkOf<T>::Forward(const Data& data, const int32_t* indices) {
  const int64_t rows = shape_.stem.in.pixels();
  RETURN_IF_ERROR(
      Check(K::LoadBatch(data.pixels, indices, batch_, rows, data.channels, kInputChannels, batch_images_, stream()),
            "loading a batch"));
  RETURN_IF_ERROR(Forward(*stem_, batch_images_, nullptr));
  const T* x = stem_->y;
  for (const Block& block : blocks_) {
    RETURN_IF_ERROR(Forward(block.first, x, nullptr));
    if (block.shortcut) RETURN_IF_ERROR(Forward(*block.shortcut, x, nullptr));
    RETURN_IF_ERROR(Forward(block.second, block.first.y, block.shortcut ? block.shortcut->y : x));
    x = block.second.y;
  }
  return ForwardHead(data, indices);
}

// Matrices of C's order are transposed ones of cuBLAS's.
template <typename T>
absl::Status NetworkOf<T>::ForwardHead(const Data& data, const int32_t* indices) {
  const int features = shape_.features, classes = shape_.classes;
  const int64_t rows = shape_.blocks.back().second.out.pixels();
  RETURN_IF_ERROR(Check(K::Pool(batch_, rows, features, last(), features_, stream()), "pooling"));
  const Parameter& weight = parameters_[static_cast<size_t>(linear_)];
  const Parameter& bias = parameters_[static_cast<size_t>(linear_) + 1];
  RETURN_IF_ERROR(Check(cublasSgemm_v2(gpu_.blas.get(), CUBLAS_OP_T, CUBLAS_OP_N, classes, batch_, features, &kOne,
                                       weight.weight, features, features_, features, &kZero, logits_, classes),
                        "the last layer"));
  RETURN_IF_ERROR(Check(AddBias(batch_, classes, bias.weight, logits_, stream()), "the last layer"));
  return Check(SoftmaxLoss(batch_, classes, data.labels, indices, logits_, losses_, right_, stream()), "the loss");
}

template <typename T>
absl::Status NetworkOf<T>::BackwardHead(const Ready& ready) {
  const int features = shape_.features, classes = shape_.classes;
  const Parameter& weight = parameters_[static_cast<size_t>(linear_)];
  const Parameter& bias = parameters_[static_cast<size_t>(linear_) + 1];
  RETURN_IF_ERROR(
      Check(SumColumns(batch_, classes, logits_, static_cast<float*>(bias.gradient), stream()), "the bias"));
  RETURN_IF_ERROR(ready(linear_ + 1));
  RETURN_IF_ERROR(
      Check(cublasSgemm_v2(gpu_.blas.get(), CUBLAS_OP_N, CUBLAS_OP_T, features, classes, batch_, &kOne, features_,
                           features, logits_, classes, &kZero, static_cast<float*>(weight.gradient), features),
            "the last layer"));
  RETURN_IF_ERROR(ready(linear_));
  RETURN_IF_ERROR(Check(cublasSgemm_v2(gpu_.blas.get(), CUBLAS_OP_N, CUBLAS_OP_N, features, batch_, classes, &kOne,
                                       weight.weight, features, logits_, classes, &kZero, dfeatures_, features),
                        "the last layer"));
  const int64_t rows = shape_.blocks.back().second.out.pixels();
  return Check(K::PoolBackward(batch_, rows, features, dfeatures_, gradients_[0], stream()), "pooling");
}

template <typename T>
absl::Status NetworkOf<T>::Backward(const Unit& unit, const T* x, T* dy, T* dx, const Ready& ready) {
  const auto gradient = [&](int i) {
    return parameters_[static_cast<size_t>(unit.weight) + static_cast<size_t>(i)].gradient;
  };
  RETURN_IF_ERROR(
      Check(K::NormaliseBackward(unit.rows, unit.z, unit.relu ? unit.y : nullptr, dy, NormOf(unit), sums_,
                                 static_cast<float*>(gradient(1)), static_cast<float*>(gradient(2)), dz_, stream()),
            "normalising"));
  RETURN_IF_ERROR(ready(unit.weight + 2));
  RETURN_IF_ERROR(ready(unit.weight + 1));
  RETURN_IF_ERROR(unit.convolution->BackwardWeights(x, dz_, gradient(0), workspace_));
  RETURN_IF_ERROR(ready(unit.weight));
  if (dx == nullptr) return absl::OkStatus();
  return unit.convolution->BackwardData(weights(unit), dz_, dx, workspace_);
}

template <typename T>
absl::Status NetworkOf<T>::Backward(const Block& block, const T* x, const Ready& ready) {
  auto& [dy, within, dx] = gradients_;
  RETURN_IF_ERROR(Backward(block.second, block.first.y, dy, within, ready));  // dy: now of the shortcut
  RETURN_IF_ERROR(Backward(block.first, x, within, dx, ready));
  T* through = dy;
  if (block.shortcut) {
    RETURN_IF_ERROR(Backward(*block.shortcut, x, dy, within, ready));
    through = within;
  }
  RETURN_IF_ERROR(Check(K::Add(batch_ * block.inputs, through, dx, stream()), "adding gradients"));
  std::swap(dy, dx);
  return absl::OkStatus();
}

template <typename T>
absl::Status NetworkOf<T>::Backward(const Ready& ready) {
  RETURN_IF_ERROR(BackwardHead(ready));
  for (size_t i = blocks_.size(); i-- > 0;) {
    RETURN_IF_ERROR(Backward(blocks_[i], i == 0 ? stem_->y : blocks_[i - 1].second.y, ready));
  }
  return Backward(*stem_, batch_images_, gradients_[0], nullptr, ready);
}

}  // namespace

absl::StatusOr<int> Network::AddParameter(Parameter parameter, const std::vector<float>& values) {
  RETURN_IF_ERROR(Take(parameter.count, parameter.weight));
  std::vector<Bf16> narrow(parameter.narrow ? values.size() : 0);
  RETURN_IF_ERROR(Check(cudaMemcpy(parameter.weight, values.data(), values.size() * sizeof(float), cudaMemcpyDefault),
                        "copying weights"));
  if (parameter.narrow) {
    RETURN_IF_ERROR(Take(parameter.count, parameter.narrow_weight));
    std::ranges::transform(values, narrow.begin(), FromFloat<Bf16>);
    RETURN_IF_ERROR(
        Check(cudaMemcpy(parameter.narrow_weight, narrow.data(), narrow.size() * sizeof(Bf16), cudaMemcpyDefault),
              "copying weights"));
  }
  // What is copied from pageable memory may still be on its way, and the stream does not wait for the default one.
  RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "copying weights"));
  parameters_.push_back(std::move(parameter));
  return static_cast<int>(parameters_.size()) - 1;
}

absl::Status Network::UseGradients(const std::vector<void*>& gradients) {
  std::vector<Trained> trained;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    parameter.gradient = gradients[i];
    longest_ = std::max(longest_, parameter.count);
    float* velocity = nullptr;
    RETURN_IF_ERROR(Take(parameter.count, velocity));
    trained.push_back({.weight = parameter.weight,
                       .velocity = velocity,
                       .gradient = parameter.gradient,
                       .narrow = parameter.narrow_weight,
                       .count = parameter.count,
                       .decay = parameter.decay,
                       .narrow_gradient = parameter.narrow});
  }
  RETURN_IF_ERROR(Take(static_cast<int64_t>(trained.size()), trained_));
  RETURN_IF_ERROR(Check(cudaMemcpy(trained_, trained.data(), trained.size() * sizeof(Trained), cudaMemcpyDefault),
                        "copying a table"));
  return Check(cudaDeviceSynchronize(), "copying a table");
}

absl::Status Network::Update(float rate, float momentum) {
  return Check(
      cudnn_cnn::Update(trained_, static_cast<int>(parameters_.size()), longest_, rate, momentum, gpu_.stream.get()),
      "updating");
}

absl::StatusOr<std::unique_ptr<Network>> Network::Make(const Gpu& gpu, const NetworkShape& shape, int batch,
                                                       const Options& options) {
  if (options.precision == Precision::kBf16) {
    auto network = std::make_unique<NetworkOf<Bf16>>(gpu, batch, options.precision);
    RETURN_IF_ERROR(network->Build(shape, options));
    return network;
  }
  auto network = std::make_unique<NetworkOf<float>>(gpu, batch, options.precision);
  RETURN_IF_ERROR(network->Build(shape, options));
  return network;
}

}  // namespace cudnn_cnn
