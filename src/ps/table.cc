#include "ps/table.h"

#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "xxhash.h"

namespace gyre::ps {

namespace {

constexpr int64_t kMostRows = int64_t{1} << 48;
constexpr int64_t kMostColumns = int64_t{1} << 20;

// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every bit of the result depends on all of `bits`.
uint64_t Mix(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;  // of SplitMix64: successive states differ by it

absl::Status Wrong(const Table& table, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("table ", table.name, " ", ToAbsl(what)));
}

}  // namespace

absl::Status Check(const Table& table) {
  if (table.name.empty()) return absl::InvalidArgumentError("a table has no name");
  if (table.rows < 0 || table.rows > kMostRows) return Wrong(table, absl::StrCat("has ", table.rows, " rows"));
  if (table.columns < 1 || table.columns > kMostColumns) {
    return Wrong(table, absl::StrCat("has ", table.columns, " columns"));
  }
  if (const auto* constant = std::get_if<ConstantRows>(&table.first); constant && !std::isfinite(constant->value)) {
    return Wrong(table, "is to begin with a value that is not finite");
  }
  if (const auto* uniform = std::get_if<UniformRows>(&table.first);
      uniform && !(uniform->limit >= 0 && std::isfinite(uniform->limit))) {
    return Wrong(table, "is to begin with values up to a limit that is not 0 or more, or not finite");
  }
  return absl::OkStatus();
}

uint64_t KeyOf(const Table& table) {
  return XXH3_64bits(table.name.data(), table.name.size());
}

// The upper half of the product is uniform over the servers (Lemire, ACM TOMACS 29, 2019), without a division.
int ServerOf(uint64_t key, int64_t row, int servers) {
  const uint64_t hash = Mix(key ^ Mix(static_cast<uint64_t>(row) + kGamma)) >> 32;
  return static_cast<int>(hash * static_cast<uint64_t>(servers) >> 32);
}

void MakeRow(const Table& table, uint64_t key, int64_t row, std::span<float> values) {
  if (const auto* constant = std::get_if<ConstantRows>(&table.first)) {
    for (float& value : values) value = constant->value;
    return;
  }
  const auto& uniform = std::get<UniformRows>(table.first);
  uint64_t state = Mix(Mix(key ^ uniform.seed) + static_cast<uint64_t>(row) * kGamma);
  for (float& value : values) {
    // Of 24 bits, so that all but the product is exact, and every machine makes the same.
    const auto bits = static_cast<int32_t>(Mix(state += kGamma) >> 40) - (1 << 23);
    value = static_cast<float>(bits) * 0x1p-23f * uniform.limit;
  }
}

void Write(WireWriter& writer, const Table& table) {
  writer.Text(table.name);
  writer.U64(static_cast<uint64_t>(table.rows));
  writer.U32(static_cast<uint32_t>(table.columns));
  const auto* uniform = std::get_if<UniformRows>(&table.first);
  writer.U8(static_cast<uint8_t>(table.first.index()));
  writer.U32(std::bit_cast<uint32_t>(uniform ? uniform->limit : std::get<ConstantRows>(table.first).value));
  writer.U64(uniform ? uniform->seed : 0);
}

Table ReadTable(WireReader& reader) {
  Table table;
  table.name = std::string(reader.Text());
  table.rows = static_cast<int64_t>(reader.U64());
  table.columns = static_cast<int64_t>(reader.U32());
  const uint8_t kind = reader.U8();
  const auto value = std::bit_cast<float>(reader.U32());
  const uint64_t seed = reader.U64();
  if (kind == 1) table.first = UniformRows{value, seed};
  // A kind that is not known fails Check by its value.
  if (kind != 1) table.first = ConstantRows{kind == 0 ? value : std::numeric_limits<float>::quiet_NaN()};
  return table;
}

}  // namespace gyre::ps
