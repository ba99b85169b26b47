// cuDNN's backend API as cudnn_cnn's convolutions call it, by its definitions and in host memory. It is strict where
// cuDNN is: descriptors take the attributes that NVIDIA's documentation names, of the types and numbers that it names,
// all of them, before they are finalised, and are used after. Of what its heuristics name some cannot be built, some
// need too much memory, and some need not give the same bits every time.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cudnn_graph.h"
#include "elementwise.h"

struct cudnnContext {};

namespace {

using cudnn_cnn::Bf16;

// As cuDNN's: a thread's own.
std::string& LastError() {
  thread_local std::string text;
  return text;
}

cudnnStatus_t Refuse(cudnnStatus_t status, const std::string& why) {
  LastError() = why;
  return status;
}

struct Fake {
  cudnnBackendDescriptorType_t type{};
  bool finalized = false;
  std::map<int, std::vector<std::byte>> values{};
  std::map<int, std::shared_ptr<Fake>> parts{};
  int engine = 0;  // that a configuration is of, or that it is

  template <typename T>
  T Value(int name, size_t i = 0) const {
    T value;
    std::memcpy(&value, values.at(name).data() + i * sizeof(T), sizeof(T));
    return value;
  }
};

// What cudnnBackendDescriptor_t points to. As with cuDNN, what a descriptor is part of keeps it.
using Handle = std::shared_ptr<Fake>;

struct Rule {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t count;
};
constexpr auto kTensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
constexpr auto kGeometry = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;
constexpr auto kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
constexpr auto kFilter = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
constexpr auto kData = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
constexpr auto kGraph = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR;
constexpr auto kHeuristics = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR;
constexpr auto kPlan = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
constexpr auto kPack = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
constexpr auto kPart = CUDNN_TYPE_BACKEND_DESCRIPTOR;

// What an operation's attributes are called.
struct Names {
  cudnnBackendAttributeName_t x, w, y, geometry, alpha, beta;
};
Names NamesOf(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case kForward:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case kFilter:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
  }
}

constexpr std::array kRules = {
    Rule{kTensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1},
    Rule{kTensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1},
    Rule{kTensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1},
    Rule{kTensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4},
    Rule{kTensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4},
    Rule{kGeometry, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1},
    Rule{kGeometry, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1},
    Rule{kGeometry, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1},
    Rule{kGeometry, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2},
    Rule{kGeometry, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2},
    Rule{kGeometry, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2},
    Rule{kGeometry, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2},
    Rule{kGraph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1},
    Rule{kGraph, CUDNN_ATTR_OPERATIONGRAPH_OPS, kPart, 1},
    Rule{kHeuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kPart, 1},
    Rule{kHeuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1},
    Rule{kPlan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1},
    Rule{kPlan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kPart, 1},
    Rule{kPack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3},
    Rule{kPack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3},
    Rule{kPack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1},
};

std::vector<Rule> RulesOf(cudnnBackendDescriptorType_t type) {
  if (type != kForward && type != kFilter && type != kData) {
    std::vector<Rule> rules;
    std::ranges::copy_if(kRules, std::back_inserter(rules), [&](const Rule& each) { return each.of == type; });
    return rules;
  }
  const Names names = NamesOf(type);
  return {{type, names.x, kPart, 1},
          {type, names.w, kPart, 1},
          {type, names.y, kPart, 1},
          {type, names.geometry, kPart, 1},
          {type, names.alpha, CUDNN_TYPE_FLOAT, 1},
          {type, names.beta, CUDNN_TYPE_FLOAT, 1}};
}

size_t SizeOf(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64: return sizeof(int64_t);
    case CUDNN_TYPE_FLOAT: return sizeof(float);
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE: return sizeof(void*);
    default: return sizeof(cudnnDataType_t);  // as all enumerations
  }
}

// A tensor as it is described; weights are out x in x height x width.
struct Tensor {
  explicit Tensor(const Fake& fake)
      : type(fake.Value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
        id(fake.Value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)) {
    for (size_t i = 0; i < 4; ++i) {
      size[i] = fake.Value<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, i);
      stride[i] = fake.Value<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, i);
    }
  }
  int64_t At(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return n * stride[0] + c * stride[1] + h * stride[2] + w * stride[3];
  }
  int64_t count() const { return size[0] * size[1] * size[2] * size[3]; }

  cudnnDataType_t type;
  int64_t id;
  std::array<int64_t, 4> size{}, stride{};
};

struct Operation {
  explicit Operation(const Fake& fake)
      : x(*fake.parts.at(NamesOf(fake.type).x)),
        w(*fake.parts.at(NamesOf(fake.type).w)),
        y(*fake.parts.at(NamesOf(fake.type).y)) {
    const Fake& geometry = *fake.parts.at(NamesOf(fake.type).geometry);
    padding = geometry.Value<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    step = geometry.Value<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  }

  bool Fits() const {
    const auto extent = [&](size_t i) { return (x.size[i] + 2 * padding - w.size[i]) / step + 1; };
    return x.size[0] == y.size[0] && x.size[1] == w.size[1] && y.size[1] == w.size[0] && y.size[2] == extent(2) &&
           y.size[3] == extent(3) && x.type == w.type && x.type == y.type && x.id != w.id && x.id != y.id &&
           w.id != y.id;
  }

  // body(place in x, place in w, place in y) for every product.
  template <typename Body>
  void ForEachProduct(Body body) const {
    for (int64_t n = 0; n < y.size[0]; ++n) {
      for (int64_t row = 0; row < y.size[2]; ++row) {
        for (int64_t column = 0; column < y.size[3]; ++column) {
          for (int64_t tap = 0; tap < w.size[2] * w.size[3]; ++tap) {
            const int64_t down = tap / w.size[3], right = tap % w.size[3];
            const int64_t above = row * step + down - padding, left = column * step + right - padding;
            if (above < 0 || above >= x.size[2] || left < 0 || left >= x.size[3]) continue;
            for (int64_t k = 0; k < w.size[0]; ++k) {
              for (int64_t c = 0; c < w.size[1]; ++c) {
                body(x.At(n, c, above, left), w.At(k, c, down, right), y.At(n, k, row, column));
              }
            }
          }
        }
      }
    }
  }

  Tensor x, w, y;
  int64_t padding, step;
};

float Load(const Tensor& tensor, const void* data, int64_t i) {
  if (tensor.type == CUDNN_DATA_BFLOAT16) return ToFloat(static_cast<const Bf16*>(data)[i]);
  return static_cast<const float*>(data)[i];
}
void Store(const Tensor& tensor, void* data, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (tensor.type == CUDNN_DATA_BFLOAT16) {
      static_cast<Bf16*>(data)[i] = cudnn_cnn::FromFloat<Bf16>(static_cast<float>(values[i]));
    } else {
      static_cast<float*>(data)[i] = static_cast<float>(values[i]);
    }
  }
}

constexpr int64_t kWorkspace = 16;

// Engines: 0 cannot be built, 1 needs too much, 2 is good, 3 is but for the order of its sums. Of 5 x 5 there is no
// good one, nor of 9 x 9 for the gradient of the input, and of 7 x 7 only number 3. Number 2 is the last resort of
// gradients.
std::vector<int> Engines(const Fake& graph, cudnnBackendHeurMode_t mode) {
  const Fake& fake = *graph.parts.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const int64_t kernel = Operation(fake).w.size[2];
  const bool supported = kernel != 5 && (kernel != 9 || fake.type != kData);
  const bool first = mode == CUDNN_HEUR_MODE_A;
  if (!first && mode != CUDNN_HEUR_MODE_FALLBACK) return {};
  if (!supported) return first ? std::vector{0, 1} : std::vector{0};
  if (kernel == 7) return first ? std::vector{0, 3} : std::vector<int>{};
  if (!first) return {2};
  return fake.type == kForward ? std::vector{0, 1, 2} : std::vector{3, 0, 1};
}

// What cuDNN looks at when all attributes are there.
cudnnStatus_t Examine(const Fake& fake) {
  switch (fake.type) {
    case kTensor: {
      const Tensor tensor(fake);
      const std::array<int64_t, 4>& size = tensor.size;
      const std::array<int64_t, 4> expected = {size[1] * size[2] * size[3], 1, size[3] * size[1], size[1]};
      const bool known = tensor.type == CUDNN_DATA_FLOAT || tensor.type == CUDNN_DATA_BFLOAT16;
      if (tensor.stride == expected && known) return CUDNN_STATUS_SUCCESS;
      return Refuse(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "layout");
    }
    case kGeometry: {
      const auto same = [&](int a, int b) { return fake.values.at(a) == fake.values.at(b); };
      const bool known =
          fake.Value<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT &&
          fake.Value<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION &&
          fake.Value<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == 2 &&
          fake.Value<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, 0) == 1 &&
          fake.Value<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1) == 1 &&
          same(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
      return known ? CUDNN_STATUS_SUCCESS : Refuse(CUDNN_STATUS_NOT_SUPPORTED, "geometry");
    }
    case kForward:
    case kFilter:
    case kData: {
      const Names names = NamesOf(fake.type);
      const bool plain = fake.Value<float>(names.alpha) == 1 && fake.Value<float>(names.beta) == 0;
      return plain && Operation(fake).Fits() ? CUDNN_STATUS_SUCCESS : Refuse(CUDNN_STATUS_BAD_PARAM, "shapes");
    }
    case kPlan: {
      const Fake& configuration = *fake.parts.at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
      return configuration.engine != 0 ? CUDNN_STATUS_SUCCESS : Refuse(CUDNN_STATUS_NOT_SUPPORTED, "engine 0");
    }
    default: return CUDNN_STATUS_SUCCESS;
  }
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t /*handle*/, cudaStream_t /*stream*/) {
  return CUDNN_STATUS_SUCCESS;
}
const char* cudnnGetErrorString(cudnnStatus_t /*status*/) {
  return "CUDNN_STATUS";
}
void cudnnGetLastErrorString(char* message, size_t size) {
  message[LastError().copy(message, size - 1)] = 0;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  auto made = std::make_shared<Fake>();
  made->type = type;
  *descriptor = new Handle(std::move(made));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Handle*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  Fake& fake = **static_cast<Handle*>(descriptor);
  const std::vector<Rule> rules = RulesOf(fake.type);
  const auto rule = std::ranges::find(rules, name, &Rule::name);
  if (fake.finalized || rule == rules.end()) return Refuse(CUDNN_STATUS_BAD_PARAM, "no such attribute");
  if (rule->type != type) return Refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "type of attribute");
  if (rule->count != count) return Refuse(CUDNN_STATUS_BAD_PARAM, "number of values");
  if (type == kPart) {
    const Handle& part = *static_cast<Handle*>(*static_cast<const cudnnBackendDescriptor_t*>(values));
    if (!part->finalized) return Refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a part is not finalised");
    fake.parts[name] = part;
    return CUDNN_STATUS_SUCCESS;
  }
  if (type == CUDNN_TYPE_HANDLE && *static_cast<const cudnnHandle_t*>(values) == nullptr) {
    return Refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "handle");
  }
  const auto* const bytes = static_cast<const std::byte*>(values);
  fake.values[name].assign(bytes, bytes + static_cast<size_t>(count) * SizeOf(type));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Fake& fake = **static_cast<Handle*>(descriptor);
  for (const Rule& each : RulesOf(fake.type)) {
    const bool there = fake.values.contains(each.name) || fake.parts.contains(each.name);
    if (!there) return Refuse(CUDNN_STATUS_BAD_PARAM, "an attribute is missing");
  }
  const cudnnStatus_t status = Examine(fake);
  fake.finalized = status == CUDNN_STATUS_SUCCESS;
  return status;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count, void* values) {
  const Fake& fake = **static_cast<const Handle*>(descriptor);
  if (!fake.finalized) return Refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "not finalised");
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 && fake.type == kPlan) {
    const int engine = fake.parts.at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine;
    *static_cast<int64_t*>(values) = engine == 1 ? int64_t{1} << 40 : engine == 3 ? 2 * kWorkspace : kWorkspace;
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == kPart && fake.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
    Fake& engine = **static_cast<Handle*>(*static_cast<cudnnBackendDescriptor_t*>(values));
    if (engine.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR || wanted != 1) return Refuse(CUDNN_STATUS_BAD_PARAM, "engine");
    engine.engine = fake.engine;
    engine.finalized = true;
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE &&
      fake.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
    auto* const notes = static_cast<cudnnBackendNumericalNote_t*>(values);
    *count = 0;
    if (wanted < 2) return Refuse(CUDNN_STATUS_BAD_PARAM, "room for notes");
    notes[(*count)++] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    if (fake.engine == 3) notes[(*count)++] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return CUDNN_STATUS_SUCCESS;
  }
  if (name != CUDNN_ATTR_ENGINEHEUR_RESULTS || type != kPart || fake.type != kHeuristics) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, "no such attribute");
  }
  const Handle& graph = fake.parts.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  const std::vector<int> engines = Engines(*graph, fake.Value<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE));
  *count = std::ssize(engines);
  for (size_t i = 0; i < engines.size() && static_cast<int64_t>(i) < wanted; ++i) {
    Fake& configuration = **static_cast<Handle*>(static_cast<cudnnBackendDescriptor_t*>(values)[i]);
    if (configuration.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) return Refuse(CUDNN_STATUS_BAD_PARAM, "results");
    configuration.engine = engines[i];
    configuration.parts[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] = graph;
    configuration.finalized = true;
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t /*handle*/, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  const Fake &planned = **static_cast<Handle*>(plan), &pack = **static_cast<Handle*>(variant_pack);
  if (!planned.finalized || !pack.finalized) return Refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "not finalised");
  const Fake& fake = *planned.parts.at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                          ->parts.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
                          ->parts.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const Operation operation(fake);
  std::map<int64_t, void*> data;
  for (size_t i = 0; i < 3; ++i) {
    void* const at = pack.Value<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
    const auto alignment =
        static_cast<uintptr_t>(fake.parts.at(NamesOf(fake.type).x)->Value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT));
    if (reinterpret_cast<uintptr_t>(at) % alignment != 0)
      return Refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "alignment");
    data[pack.Value<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i)] = at;
  }
  if (!data.contains(operation.x.id) || !data.contains(operation.w.id) || !data.contains(operation.y.id)) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, "a tensor is missing");
  }
  std::memset(pack.Value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE), 0xff, kWorkspace);
  const Tensor &x = operation.x, &w = operation.w, &y = operation.y;
  void *const at_x = data[x.id], *const at_w = data[w.id], *const at_y = data[y.id];
  const Tensor& result = fake.type == kForward ? y : fake.type == kFilter ? w : x;
  std::vector<double> sums(static_cast<size_t>(result.count()));
  operation.ForEachProduct([&](int64_t from, int64_t weight, int64_t to) {
    if (fake.type == kForward) {
      sums[static_cast<size_t>(to)] += Load(x, at_x, from) * Load(w, at_w, weight);
    } else if (fake.type == kFilter) {
      sums[static_cast<size_t>(weight)] += Load(x, at_x, from) * Load(y, at_y, to);
    } else {
      sums[static_cast<size_t>(from)] += Load(w, at_w, weight) * Load(y, at_y, to);
    }
  });
  Store(result, data[result.id], sums);
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
