// The network on a GPU: its parameters, a forward and a backward pass over a batch of fixed size, and the update. Knows
// nothing of ranks: who makes it says where gradients go, and is told when each is there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "elementwise.h"
#include "gpu.h"
#include "options.h"
#include "shapes.h"

namespace cudnn_cnn {

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t count = 0;
  bool narrow = false;  // its gradient is Bf16, else float
  float decay = 0;
  float* weight = nullptr;
  Bf16* narrow_weight = nullptr;  // what convolutions take in Precision::kBf16
  void* gradient = nullptr;
};

// The images of training, all of them on the GPU.
struct Data {
  const uint8_t* pixels;
  const int32_t* labels;
  int channels;
};

// All work is queued on the Gpu's stream; nothing waits for it.
class Network {
 public:
  // With the weights of `seed`, the same on every rank. The Gpu outlives it.
  static absl::StatusOr<std::unique_ptr<Network>> Make(const Gpu& gpu, const NetworkShape& shape, int batch,
                                                       const Options& options);
  virtual ~Network() = default;

  // In the order of a forward pass.
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // Before the first Backward: memory of each parameter's gradient, in its order and type.
  absl::Status UseGradients(const std::vector<void*>& gradients);

  // Of images `indices` (on the GPU) of the data.
  virtual absl::Status Forward(const Data& data, const int32_t* indices) = 0;

  // After Forward. `ready(i)` is called once the work that makes parameter i's gradient has been queued, the last
  // layer's first.
  using Ready = std::function<absl::Status(int)>;
  virtual absl::Status Backward(const Ready& ready) = 0;

  absl::Status Update(float rate, float momentum);

  // Of the last Forward: of each image on the GPU, its loss, and whether it was taken for what it is.
  const float* losses() const { return losses_; }
  const int32_t* right() const { return right_; }

 protected:
  Network(const Gpu& gpu, int batch) : gpu_(gpu), batch_(batch) {}

  template <typename T>
  absl::Status Take(int64_t count, T*& data) {
    memory_.emplace_back();
    return Allocate<T>(count, memory_.back(), data);
  }
  // Returns its index. `values`: at the start.
  absl::StatusOr<int> AddParameter(Parameter parameter, const std::vector<float>& values);

  const Gpu& gpu_;
  const int batch_;
  std::vector<Parameter> parameters_;
  float* losses_ = nullptr;
  int32_t* right_ = nullptr;

 private:
  std::vector<OwnedMemory> memory_;
  Trained* trained_ = nullptr;
  int64_t longest_ = 0;
};

}  // namespace cudnn_cnn
