// What cuDNN's backend API (cudnn_graph.h of cuDNN 9) is made of: descriptors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu.h"

namespace cudnn_cnn {

// The name that cuDNN has for a type of values: attributes take one type each. Of other types there are no attributes,
// and using them does not compile.
template <typename T>
inline constexpr cudnnBackendAttributeType_t kTypeOf = T::kNoTypeOfAttributes;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<void*> = CUDNN_TYPE_VOID_PTR;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;

// A set of attributes: made, filled, and finalised before it is used. The first failure is kept and comes from
// Finalize, so that attributes can be set without looking at each. cuDNN copies values; descriptors that were set must
// stay until what is made of this one has been finalised. Not for several threads at once.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);

  template <typename T>
  Descriptor& Set(cudnnBackendAttributeName_t name, const T& value) {
    return SetAll<T>(name, std::span<const T>(&value, 1));
  }
  Descriptor& Set(cudnnBackendAttributeName_t name, const Descriptor& value);
  template <typename T>
  Descriptor& SetAll(cudnnBackendAttributeName_t name, std::span<const T> values) {
    return SetRaw(name, kTypeOf<T>, values.size(), values.data());
  }

  // kInternal, with the status and the message of cuDNN; attributes and descriptors go by their numbers in
  // cudnn_graph.h.
  absl::Status Finalize();

  // Of one that is finalised. Get and GetAll: descriptors of `type`, finalised too. GetNotes: an engine's.
  absl::StatusOr<int64_t> GetInt64(cudnnBackendAttributeName_t name) const;
  absl::StatusOr<std::vector<cudnnBackendNumericalNote_t>> GetNotes() const;
  absl::StatusOr<Descriptor> Get(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const;
  absl::StatusOr<std::vector<Descriptor>> GetAll(cudnnBackendAttributeName_t name,
                                                 cudnnBackendDescriptorType_t type) const;

  cudnnBackendDescriptor_t get() const { return owned_.get(); }

 private:
  Descriptor& SetRaw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, size_t count,
                     const void* values);
  std::string Text(const char* doing, int attribute) const;

  cudnnBackendDescriptorType_t type_;
  Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor> owned_{};
  absl::Status status_{};
};

}  // namespace cudnn_cnn
