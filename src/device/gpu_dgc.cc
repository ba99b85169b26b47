#include "device/gpu_dgc.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/kernels/kth.h"
#include "device/kernels/sample.h"
#include "gyre/status_macros.h"

namespace gyre::device {

namespace {

using kernels::DgcState;
using kernels::DgcTable;
using kernels::DgcTensor;

constexpr int64_t kListSlack = 512;  // places for candidates of tensors that send few

// As compression::KeptCount.
int64_t KeptCount(double sparsity, int64_t count) {
  return std::clamp<int64_t>(std::llround((1 - sparsity) * static_cast<double>(count)), std::min<int64_t>(1, count),
                             count);
}

absl::Status CheckTensor(const GpuDgcTensor& tensor, size_t number, bool momentum, bool sampled) {
  const auto wrong = [number](std::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", number, ": ", absl::string_view(what.data(), what.size())));
  };
  const auto aligned = [](const float* array) { return reinterpret_cast<uintptr_t>(array) % 16 == 0; };
  if (tensor.count < 0 || tensor.count > int64_t{UINT32_MAX}) return wrong("its size is out of range");
  if (tensor.count == 0) return absl::OkStatus();
  if (tensor.velocity == nullptr || tensor.gradient == nullptr) return wrong("its memory is missing");
  if ((tensor.momentum != nullptr) != momentum) return wrong("it has momentum, or the first has, but not both");
  if (sampled && momentum) return wrong("it has momentum, of which a sample does not know");
  if (!aligned(tensor.velocity) || !aligned(tensor.momentum)) return wrong("accumulators must be aligned to 16 bytes");
  return absl::OkStatus();
}

// Hands out pieces of one allocation: first of none, to learn how much is needed.
class Pieces {
 public:
  explicit Pieces(std::byte* base) : base_(base) {}

  template <typename T>
  T* Take(int64_t count) {
    const int64_t at = used_;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }

  int64_t used() const { return used_; }

 private:
  std::byte* const base_;
  int64_t used_ = 0;
};

struct Layout {
  std::vector<DgcTensor> tensors;
  DgcTensor* table_tensors;
  kernels::DgcTileRef* table_tiles;
  DgcState* states;
  DgcTable table;
  int64_t bytes, cleared_bytes;  // all; the first of them, which begin as 0
};

Layout Place(std::span<const GpuDgcTensor> given, const GpuDgcOptions& options, std::byte* base) {
  Layout layout = {};
  Pieces pieces(base);
  const auto count = static_cast<int64_t>(given.size());
  layout.table.counted = pieces.Take<uint32_t>(1);
  auto* const bins = pieces.Take<uint32_t>(count * kernels::kBins);
  layout.cleared_bytes = pieces.used();
  layout.states = pieces.Take<DgcState>(count);
  layout.table_tensors = pieces.Take<DgcTensor>(count);
  uint32_t tiles = 0;
  for (int64_t t = 0; t < count; ++t) {
    const GpuDgcTensor& from = given[static_cast<size_t>(t)];
    const int64_t most = KeptCount(options.least_sparsity, from.count),
                  places = std::min(4 * most + kListSlack, from.count);
    DgcTensor tensor = {};
    tensor.momentum = from.momentum;
    tensor.velocity = from.velocity;
    tensor.gradient = from.gradient;
    tensor.count = from.count;
    tensor.indices = pieces.Take<uint32_t>(places);
    tensor.velocities = pieces.Take<float>(places);
    tensor.momenta = from.momentum == nullptr ? nullptr : pieces.Take<float>(places);
    tensor.capacity = static_cast<uint32_t>(places);
    const int64_t selected = options.sampled ? std::min(2 * most, from.count) : most;
    tensor.selected_indices = pieces.Take<uint32_t>(selected);
    tensor.selected_values = pieces.Take<float>(selected);
    if (options.gives_momenta && from.momentum != nullptr) tensor.selected_momenta = pieces.Take<float>(selected);
    if (options.sampled && from.count != 0) {
      const kernels::SamplePlan plan = kernels::PlanSample(from.count, most);
      tensor.sample = pieces.Take<uint32_t>(plan.elements);
      tensor.sample_count = static_cast<uint32_t>(plan.elements);
      tensor.sample_rank = static_cast<uint32_t>(plan.rank);
    }
    tensor.first_tile = tiles;
    tensor.tiles = static_cast<uint32_t>((from.count + kernels::kTileElements - 1) / kernels::kTileElements);
    tensor.bins = base == nullptr ? nullptr : bins + t * kernels::kBins;
    tensor.state = base == nullptr ? nullptr : layout.states + t;
    tiles += tensor.tiles;
    layout.table.momentum |= from.count != 0 && from.momentum != nullptr;
    layout.tensors.push_back(tensor);
  }
  layout.table.sampled = options.sampled;
  layout.table_tiles = pieces.Take<kernels::DgcTileRef>(tiles);
  layout.table.lists = pieces.Take<kernels::DgcTileList>(tiles);
  layout.table.kept = pieces.Take<kernels::DgcTileKept>(tiles);
  layout.table.tensors = layout.table_tensors;
  layout.table.tiles = layout.table_tiles;
  layout.table.tensor_count = static_cast<uint32_t>(count);
  layout.table.tile_count = tiles;
  layout.bytes = pieces.used();
  return layout;
}

template <typename T>
absl::Status CopyAll(Gpu& gpu, T* to, const std::vector<T>& from, Gpu::Stream stream) {
  return gpu.Copy(to, from.data(), static_cast<int64_t>(from.size() * sizeof(T)), stream);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuDgc>> GpuDgc::Create(Gpu& gpu, std::span<const GpuDgcTensor> tensors,
                                                       const GpuDgcOptions& options) {
  RETURN_IF_ERROR(CheckSelection(options.gradients, {.sparsity = options.least_sparsity}));
  const auto first = std::ranges::find_if(tensors, [](const GpuDgcTensor& tensor) { return tensor.count != 0; });
  for (size_t t = 0; t < tensors.size(); ++t) {
    RETURN_IF_ERROR(CheckTensor(tensors[t], t, first != tensors.end() && first->momentum != nullptr, options.sampled));
  }
  std::unique_ptr<GpuDgc> made(new GpuDgc(gpu, options));
  ASSIGN_OR_RETURN(Gpu::Stream const stream, gpu.CreateStream());
  const absl::Status built = made->Build(tensors, stream);
  gpu.DestroyStream(stream);
  RETURN_IF_ERROR(built);
  return made;
}

absl::Status GpuDgc::Build(std::span<const GpuDgcTensor> tensors, Gpu::Stream stream) {
  ASSIGN_OR_RETURN(memory_, gpu_.Allocate(Place(tensors, options_, nullptr).bytes));
  Layout layout = Place(tensors, options_, static_cast<std::byte*>(memory_));
  std::vector<kernels::DgcTileRef> tiles;
  for (uint32_t t = 0; t < layout.table.tensor_count; ++t) {
    for (uint32_t number = 0; number < layout.tensors[t].tiles; ++number) tiles.push_back({t, number});
  }
  const std::vector<std::byte> zeros(static_cast<size_t>(layout.cleared_bytes));
  const std::vector<DgcState> states(tensors.size());
  absl::Status copied = CopyAll(gpu_, static_cast<std::byte*>(memory_), zeros, stream);
  copied.Update(CopyAll(gpu_, layout.states, states, stream));
  copied.Update(CopyAll(gpu_, layout.table_tensors, layout.tensors, stream));
  copied.Update(CopyAll(gpu_, layout.table_tiles, tiles, stream));
  copied.Update(gpu_.Synchronize(stream));  // what is copied is this function's
  RETURN_IF_ERROR(copied);
  tensors_ = std::move(layout.tensors);
  table_ = layout.table;
  return absl::OkStatus();
}

GpuDgc::~GpuDgc() {
  if (memory_ != nullptr) gpu_.Free(memory_);
}

absl::Status GpuDgc::Step(const kernels::DgcStep& step, Gpu::Stream stream) {
  if (step.select && step.sparsity < options_.least_sparsity) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sparsity of ", step.sparsity, " where there is memory for ", options_.least_sparsity));
  }
  if (step.select && options_.sampled && step.sparsity != options_.least_sparsity) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sparsity of ", step.sparsity, " where samples are for ", options_.least_sparsity));
  }
  return gpu_.codecs().SelectLargest(table_, options_.gradients, step, stream);
}

GpuDgcChosen GpuDgc::chosen(int tensor) const {
  const DgcTensor& of = tensors_[static_cast<size_t>(tensor)];
  return {of.selected_indices, of.selected_values, &of.state->selected, of.selected_momenta};
}

kernels::SparseEncoding GpuDgc::encoding(int tensor, std::byte* out, uint64_t* bytes) const {
  const DgcTensor& of = tensors_[static_cast<size_t>(tensor)];
  return {.indices = of.selected_indices,
          .values = of.selected_values,
          .selected = &of.state->selected,
          .count = of.count,
          .residual = of.velocity,
          .out = out,
          .bytes = bytes};
}

absl::StatusOr<std::vector<GpuDgcSummary>> GpuDgc::Read(Gpu::Stream stream) {
  std::vector<DgcState> states(tensors_.size());
  if (states.empty()) return std::vector<GpuDgcSummary>();
  RETURN_IF_ERROR(
      gpu_.Copy(states.data(), tensors_[0].state, static_cast<int64_t>(states.size() * sizeof(DgcState)), stream));
  RETURN_IF_ERROR(gpu_.Synchronize(stream));
  std::vector<GpuDgcSummary> summaries;
  for (const DgcState& state : states) {
    summaries.push_back({.selected = state.selected,
                         .non_finite = static_cast<int64_t>(state.non_finite),
                         .rescans = static_cast<int64_t>(state.rescans),
                         .threshold = state.threshold});
  }
  return summaries;
}

}  // namespace gyre::device
