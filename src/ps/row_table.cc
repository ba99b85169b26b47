#include "ps/row_table.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "optimizer/rules.h"

namespace gyre::ps {

namespace {

// Accumulators of each weight.
size_t StatesOf(const std::optional<OptimizerConfig>& rule) {
  if (!rule || std::holds_alternative<Sgd>(*rule)) return 0;
  return std::holds_alternative<Adam>(*rule) ? 2 : 1;
}

}  // namespace

absl::StatusOr<RowTable> RowTable::Create(const Table& table, const std::optional<OptimizerConfig>& rule) {
  RETURN_IF_ERROR(Check(table));
  if (rule) RETURN_IF_ERROR(Optimizer::Create(*rule, {}).status());
  return RowTable(table, rule);
}

RowTable::RowTable(const Table& table, const std::optional<OptimizerConfig>& rule)
    : table_(table), key_(KeyOf(table)), rule_(rule), store_(columns() * (1 + StatesOf(rule))) {}

void RowTable::Apply(std::span<const std::span<const float>> pushes, std::optional<float> rate) {
  if (rate && rule_) std::visit([&](auto& rule) { rule.learning_rate = *rate; }, *rule_);
  ++updates_;
  // By id, and for one id by push: sums have one order.
  struct Next {
    int64_t id;
    size_t push, index;
    bool operator>(const Next& other) const { return std::pair(id, push) > std::pair(other.id, other.push); }
  };
  std::vector<RowsReader> readers;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  const auto add = [&](size_t push, size_t index) {
    if (index < readers[push].size()) next.push({readers[push].id(index), push, index});
  };
  for (const std::span<const float> push : pushes) {
    readers.emplace_back(push, table_.columns);
    add(readers.size() - 1, 0);
  }
  const float scale = 1.0f / static_cast<float>(pushes.size());
  std::vector<float> mean(columns());
  while (!next.empty()) {
    const int64_t id = next.top().id;
    bool first = true;
    for (; !next.empty() && next.top().id == id; first = false) {
      const Next from = next.top();
      next.pop();
      const std::span<const float> row = readers[from.push].row(from.index);
      for (size_t c = 0; c < mean.size(); ++c) mean[c] = first ? row[c] : mean[c] + row[c];
      add(from.push, from.index + 1);
    }
    if (pushes.size() > 1) {
      for (float& value : mean) value *= scale;
    }
    Update(Touch(id), mean);
  }
}

std::span<float> RowTable::Touch(int64_t id) {
  const auto [row, made] = store_.FindOrMake(id);
  if (!made) return row;
  MakeRow(table_, key_, id, row.first(columns()));
  const auto* adagrad = rule_ ? std::get_if<Adagrad>(&*rule_) : nullptr;
  std::ranges::fill(row.subspan(columns()), adagrad != nullptr ? adagrad->initial_accumulator : 0.0f);
  return row;
}

void RowTable::Update(std::span<float> row, std::span<const float> gradient) const {
  const std::span<float> weights = row.first(columns());
  if (!rule_) {
    for (size_t c = 0; c < weights.size(); ++c) weights[c] += gradient[c];
    return;
  }
  const auto state = [&](size_t which) { return row.subspan(which * columns(), columns()); };
  if (const auto* sgd = std::get_if<Sgd>(&*rule_)) UpdateSgd(*sgd, weights, gradient);
  if (const auto* momentum = std::get_if<Momentum>(&*rule_)) UpdateMomentum(*momentum, weights, gradient, state(1));
  if (const auto* adam = std::get_if<Adam>(&*rule_)) {
    UpdateAdam(*adam, updates_, weights, gradient, state(1), state(2));
  }
  if (const auto* adagrad = std::get_if<Adagrad>(&*rule_)) UpdateAdagrad(*adagrad, weights, gradient, state(1));
}

std::optional<size_t> RowTable::FloatsFor(Bytes ids) const {
  const std::optional<size_t> count = CountIds(ids, table_);
  // What it asks for is to fit into a message.
  if (!count || *count > static_cast<size_t>(kMostRowWords) / columns()) return std::nullopt;
  return *count * columns();
}

void RowTable::Read(Bytes ids, std::span<float> values) const {
  for (size_t i = 0; i < values.size() / columns(); ++i) {
    const int64_t id = IdAt(ids, i);
    const std::span<float> out = values.subspan(i * columns(), columns());
    if (const float* const row = store_.Find(id)) {
      std::memcpy(out.data(), row, out.size_bytes());
    } else {
      MakeRow(table_, key_, id, out);
    }
  }
}

std::string RowTable::Save() const {
  std::string bytes;
  const size_t row = columns() * (1 + StatesOf(rule_)) * sizeof(float);
  bytes.reserve(2 * sizeof(uint64_t) + store_.size() * (sizeof(uint64_t) + row));
  WireWriter writer(bytes);
  writer.U64(static_cast<uint64_t>(updates_));
  writer.U64(store_.size());
  for (size_t place = 0; place < store_.size(); ++place) {
    writer.U64(static_cast<uint64_t>(store_.id(place)));
    writer.Raw(AsText(std::as_bytes(store_.row(place))));
  }
  return bytes;
}

absl::Status RowTable::Restore(Bytes bytes) {
  WireReader reader(bytes);
  updates_ = static_cast<int64_t>(reader.U64());
  const uint64_t rows = reader.U64();
  for (uint64_t i = 0; i < rows && reader.ok(); ++i) {
    const auto id = static_cast<int64_t>(reader.U64());
    const std::string_view values = reader.Raw(columns() * (1 + StatesOf(rule_)) * sizeof(float));
    if (!reader.ok() || id < 0 || id >= table_.rows) break;
    const auto [row, made] = store_.FindOrMake(id);
    if (!made) break;
    std::memcpy(row.data(), values.data(), values.size());
  }
  if (updates_ >= 0 && store_.size() == rows && reader.AtEnd()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("table ", table_.name, " in the snapshot does not fit"));
}

}  // namespace gyre::ps
