#include "ps/process/setup.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <variant>

#include "net/bytes.h"
#include "ps/pull_codec.h"
#include "ps/wire.h"

namespace gyre::ps {

namespace {

// A rule's number and its hyperparameters, in the order of gyre/optimizer.h.
using Parameters = std::array<float, 5>;

Parameters ParametersOf(const OptimizerConfig& rule) {
  struct Visitor {
    Parameters operator()(const Sgd& r) const { return {r.learning_rate, r.weight_decay}; }
    Parameters operator()(const Momentum& r) const {
      return {r.learning_rate, r.momentum, r.nesterov ? 1.0f : 0.0f, r.weight_decay};
    }
    Parameters operator()(const Adam& r) const {
      return {r.learning_rate, r.beta1, r.beta2, r.epsilon, r.weight_decay};
    }
    Parameters operator()(const Adagrad& r) const {
      return {r.learning_rate, r.epsilon, r.initial_accumulator, r.weight_decay};
    }
  };
  return std::visit(Visitor(), rule);
}

std::optional<OptimizerConfig> RuleOf(size_t kind, const Parameters& p) {
  switch (kind) {
    case 1: return Sgd{p[0], p[1]};
    case 2: return Momentum{p[0], p[1], p[2] != 0, p[3]};
    case 3: return Adam{p[0], p[1], p[2], p[3], p[4]};
    case 4: return Adagrad{p[0], p[1], p[2], p[3]};
    default: return std::nullopt;
  }
}

constexpr size_t kRules = std::variant_size_v<OptimizerConfig>;
constexpr uint32_t kMostProcesses = 1 << 20;
constexpr std::chrono::milliseconds kLongestInterval{int64_t{1} << 40};  // between snapshots: 35 years, never

}  // namespace

std::string Encode(const Setup& setup) {
  return Written([&](WireWriter& writer) {
    writer.U32(static_cast<uint32_t>(setup.servers));
    writer.U32(static_cast<uint32_t>(setup.workers));
    writer.U8(static_cast<uint8_t>(setup.consistency.mode));
    writer.U64(setup.consistency.bound);
    writer.U64(static_cast<uint64_t>(std::min(setup.snapshot_interval, kLongestInterval).count()));
    writer.U8(static_cast<uint8_t>(setup.values_as));
    writer.U8(setup.rule ? static_cast<uint8_t>(setup.rule->index() + 1) : 0);
    for (const float value : setup.rule ? ParametersOf(*setup.rule) : Parameters{}) {
      writer.U32(std::bit_cast<uint32_t>(value));
    }
    writer.U8(static_cast<uint8_t>(setup.replicas));
    writer.U32(static_cast<uint32_t>(setup.tensors.size()));
    for (const Tensor& tensor : setup.tensors) {
      writer.Text(tensor.name);
      writer.U64(static_cast<uint64_t>(tensor.count));
    }
    writer.U32(static_cast<uint32_t>(setup.tables.size()));
    for (const Table& table : setup.tables) Write(writer, table);
  });
}

absl::StatusOr<Setup> DecodeSetup(std::string_view payload) {
  WireReader reader(payload);
  const uint32_t servers = reader.U32(), workers = reader.U32();
  const uint8_t mode = reader.U8();
  const uint64_t bound = reader.U64(), interval = reader.U64();
  const uint8_t values_as = reader.U8();
  const size_t rule = reader.U8();
  Parameters parameters{};
  for (float& value : parameters) value = std::bit_cast<float>(reader.U32());
  const uint8_t replicas = reader.U8();
  const uint32_t tensors = reader.U32();
  Setup setup;
  for (uint32_t i = 0; i < tensors && reader.ok(); ++i) {
    const std::string_view name = reader.Text();
    setup.tensors.push_back({std::string(name), static_cast<int64_t>(reader.U64())});
  }
  const uint32_t tables = reader.U32();
  for (uint32_t i = 0; i < tables && reader.ok(); ++i) {
    setup.tables.push_back(ReadTable(reader));
    if (const absl::Status status = Check(setup.tables.back()); reader.ok() && !status.ok()) return status;
  }
  if (!reader.AtEnd() || servers - 1 >= kMostProcesses || workers - 1 >= kMostProcesses || rule > kRules ||
      mode > static_cast<uint8_t>(Mode::kAsynchronous) || bound >= kMostSteps || interval == 0 ||
      interval > static_cast<uint64_t>(kLongestInterval.count()) || values_as >= compression::kPayloadKindCount ||
      !IsForValues(static_cast<compression::PayloadKind>(values_as)) || replicas > 1) {
    return absl::InvalidArgumentError("malformed setup of a parameter server");
  }
  setup.servers = static_cast<int>(servers);
  setup.workers = static_cast<int>(workers);
  setup.consistency = {static_cast<Mode>(mode), bound};
  setup.snapshot_interval = std::chrono::milliseconds(interval);
  setup.values_as = static_cast<compression::PayloadKind>(values_as);
  setup.rule = RuleOf(rule, parameters);
  setup.replicas = replicas;
  return setup;
}

}  // namespace gyre::ps
