#include "gyre/optimizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "optimizer/config.h"
#include "optimizer/rules.h"
#include "optimizer/state_format.h"

namespace gyre {

Optimizer::Optimizer(const OptimizerConfig& config, std::vector<Slot> slots)
    : config_(config), slots_(std::move(slots)) {}

absl::StatusOr<Optimizer> Optimizer::Create(const OptimizerConfig& config, std::span<const int64_t> counts) {
  RETURN_IF_ERROR(CheckConfig(config));
  std::vector<Slot> slots;
  slots.reserve(counts.size());
  for (int64_t count : counts) {
    if (count < 0) {
      return absl::InvalidArgumentError(absl::StrCat("buffer ", slots.size(), " has ", count, " elements"));
    }
    Slot& slot = slots.emplace_back(Slot{.count = count});
    if (AccumulatorsOf(config) > 0) slot.first.assign(count, InitialOf(config));
    if (AccumulatorsOf(config) > 1) slot.second.assign(count, InitialOf(config));
  }
  return Optimizer(config, std::move(slots));
}

absl::Status Optimizer::CheckBuffer(int buffer, int64_t weights) const {
  if (buffer < 0 || buffer >= buffers()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no buffer ", buffer, " among ", buffers()));
  }
  const int64_t count = slots_[buffer].count;
  if (weights == count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("buffer ", buffer, " has ", count, " elements, but ", weights, " weights were given"));
}

// Elements [first, first + gradient.size()) of the buffer: `weights` are those.
void Optimizer::Update(Slot& slot, int64_t first, std::span<float> weights, std::span<const float> gradient) {
  const auto part = [&](std::vector<float>& state) { return std::span(state).subspan(first, gradient.size()); };
  if (const auto* sgd = std::get_if<Sgd>(&config_)) UpdateSgd(*sgd, weights, gradient);
  if (const auto* rule = std::get_if<Momentum>(&config_)) UpdateMomentum(*rule, weights, gradient, part(slot.first));
  if (const auto* adam = std::get_if<Adam>(&config_)) {
    UpdateAdam(*adam, slot.steps, weights, gradient, part(slot.first), part(slot.second));
  }
  if (const auto* rule = std::get_if<Adagrad>(&config_)) UpdateAdagrad(*rule, weights, gradient, part(slot.first));
}

absl::Status Optimizer::Step(int buffer, std::span<float> weights, std::span<const float> gradient) {
  RETURN_IF_ERROR(CheckBuffer(buffer, std::ssize(weights)));
  Slot& slot = slots_[buffer];
  if (std::ssize(gradient) != slot.count) {
    return absl::InvalidArgumentError(absl::StrCat("buffer ", buffer, " has ", slot.count, " elements, but ",
                                                   gradient.size(), " gradient elements were given"));
  }
  ++slot.steps;
  Update(slot, 0, weights, gradient);
  return absl::OkStatus();
}

absl::Status Optimizer::StepRows(int buffer, std::span<float> weights, int64_t rows, const RowsView& gradient) {
  RETURN_IF_ERROR(CheckBuffer(buffer, std::ssize(weights)));
  Slot& slot = slots_[buffer];
  const int64_t width = rows > 0 ? slot.count / rows : 0;
  if (rows < 0 || width * rows != slot.count || gradient.values.dtype != DType::kF32 ||
      gradient.values.count != std::ssize(gradient.rows) * width) {
    return absl::InvalidArgumentError(absl::StrCat("buffer ", buffer, " has ", slot.count, " elements in ", rows,
                                                   " rows, but ", gradient.rows.size(), " rows of ",
                                                   gradient.values.count, " gradient elements were given"));
  }
  int64_t before = -1;
  for (const int64_t row : gradient.rows) {
    if (row <= before || row >= rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("buffer ", buffer, " of ", rows, " rows was given row ", row, " after row ", before));
    }
    before = row;
  }
  ++slot.steps;
  const auto* values = static_cast<const float*>(gradient.values.data);
  for (size_t i = 0; i < gradient.rows.size() && width > 0; ++i) {
    const int64_t first = gradient.rows[i] * width;
    Update(slot, first, weights.subspan(first, width),
           {values + static_cast<int64_t>(i) * width, static_cast<size_t>(width)});
  }
  return absl::OkStatus();
}

absl::Status Optimizer::SetLearningRate(float learning_rate) {
  RETURN_IF_ERROR(CheckLearningRate(learning_rate));
  config_ = WithLearningRate(config_, learning_rate);
  return absl::OkStatus();
}

float Optimizer::learning_rate() const {
  return LearningRateOf(config_);
}

int64_t Optimizer::state_bytes() const {
  int64_t floats = 0;
  for (const Slot& slot : slots_) floats += std::ssize(slot.first) + std::ssize(slot.second);
  return floats * static_cast<int64_t>(sizeof(float));
}

std::vector<std::byte> Optimizer::Save() const {
  StateWriter writer(config_.index(), slots_.size());
  for (const Slot& slot : slots_) writer.Add(slot.count, slot.steps, slot.first, slot.second);
  return std::move(writer).Finish();
}

absl::Status Optimizer::Restore(std::span<const std::byte> state) {
  ASSIGN_OR_RETURN(StateReader reader, StateReader::Open(state, config_.index(), slots_.size()));
  std::vector<Slot> restored = slots_;
  for (Slot& slot : restored) RETURN_IF_ERROR(reader.Next(slot.count, slot.steps, slot.first, slot.second));
  RETURN_IF_ERROR(reader.CheckEnd());
  slots_ = std::move(restored);
  return absl::OkStatus();
}

}  // namespace gyre
