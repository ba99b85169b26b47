#include "ps/layout.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/bytes.h"
#include "xxhash.h"

namespace gyre::ps {

namespace {

constexpr int64_t kElementBytes = 4;
constexpr int64_t kFewBytes = 256 << 10;   // what is smaller costs more for its message than for its bytes
constexpr int64_t kEnoughPartitions = 64;  // a server
constexpr int64_t kRounding = 16 << 10;    // elements: sums are over aligned memory

// Returns how many elements all tensors have.
absl::StatusOr<int64_t> Check(std::span<const Tensor> tensors, int servers) {
  if (servers < 1) return absl::InvalidArgumentError(absl::StrCat("a layout over ", servers, " servers"));
  std::set<std::string_view> names;
  int64_t elements = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.name.empty() || !names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("tensor name '", tensor.name, "' is empty or there twice"));
    }
    if (tensor.count < 0 || tensor.count > std::numeric_limits<int64_t>::max() / kElementBytes - elements) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " has ", tensor.count, " elements"));
    }
    elements += tensor.count;
  }
  return elements;
}

absl::Status CheckPartitions(std::span<const Tensor> tensors, int64_t partition_bytes) {
  if (partition_bytes < kElementBytes) {
    return absl::InvalidArgumentError(absl::StrCat("partitions of ", partition_bytes, " bytes hold no element"));
  }
  int64_t partitions = 0;
  for (const Tensor& tensor : tensors) {
    partitions += tensor.count / (partition_bytes / kElementBytes) + 1;
    if (partitions > std::numeric_limits<int32_t>::max()) return absl::InvalidArgumentError("too many partitions");
  }
  return absl::OkStatus();
}

uint64_t Rank(std::string_view tensor, int64_t begin, int server) {
  const std::string name = Written([&](WireWriter& writer) {
    writer.Text(tensor);
    writer.U64(static_cast<uint64_t>(begin));
    writer.I32(server);
  });
  return XXH3_64bits(name.data(), name.size());
}

}  // namespace

int64_t DefaultPartitionBytes(int64_t elements, int servers) {
  const int64_t unit = kRounding * kEnoughPartitions * servers;
  const int64_t piece = (elements + unit - 1) / unit * kRounding * kElementBytes;
  return std::clamp(piece, kFewBytes, kPartitionBytes);
}

absl::StatusOr<Layout> Layout::Create(std::span<const Tensor> tensors, int servers,
                                      std::optional<int64_t> partition_bytes, std::span<const Table> tables) {
  ASSIGN_OR_RETURN(const int64_t elements, Check(tensors, servers));
  const int64_t most_bytes = partition_bytes.value_or(DefaultPartitionBytes(elements, servers));
  RETURN_IF_ERROR(CheckPartitions(tensors, most_bytes));
  Layout layout;
  layout.by_server_.resize(static_cast<size_t>(servers));
  layout.elements_ = elements;
  const int64_t most = most_bytes / kElementBytes;
  int64_t largest = 0;
  for (const Tensor& tensor : tensors) {
    largest = std::max(largest, std::min(tensor.count, most));
  }
  // Rounded up, so that some server always has room.
  const int64_t room = (layout.elements_ + servers - 1) / servers + largest;
  std::vector<int64_t> load(static_cast<size_t>(servers));
  std::string description = Written([&](WireWriter& writer) { writer.I32(servers); });
  WireWriter writer(description);
  int64_t offset = 0;
  for (size_t t = 0; t < tensors.size(); ++t) {
    writer.Text(tensors[t].name);
    for (int64_t begin = 0; begin < tensors[t].count; begin += most) {
      const int64_t count = std::min(most, tensors[t].count - begin);
      std::optional<std::pair<uint64_t, int>> best;
      for (int server = 0; server < servers; ++server) {
        if (load[static_cast<size_t>(server)] + count > room) continue;
        const std::pair candidate(Rank(tensors[t].name, begin, server), server);
        if (!best || candidate > *best) best = candidate;
      }
      const int server = best->second;
      std::vector<int>& own = layout.by_server_[static_cast<size_t>(server)];
      load[static_cast<size_t>(server)] += count;
      own.push_back(static_cast<int>(layout.partitions_.size()));
      layout.partitions_.push_back(
          {static_cast<int>(t), offset + begin, count, server, static_cast<int>(own.size()) - 1});
      writer.U64(static_cast<uint64_t>(count));
      writer.I32(server);
    }
    offset += tensors[t].count;
  }
  const int64_t places = std::numeric_limits<int32_t>::max() - std::ssize(layout.partitions_);
  if (std::ssize(tables) > places / servers) return absl::InvalidArgumentError("too many partitions");
  RETURN_IF_ERROR(layout.Add(tensors, tables, writer));
  layout.fingerprint_ = XXH3_64bits(description.data(), description.size());
  return layout;
}

absl::Status Layout::Add(std::span<const Tensor> tensors, std::span<const Table> tables, WireWriter& description) {
  std::set<std::string_view> names;
  for (const Tensor& tensor : tensors) names.insert(tensor.name);
  for (const Table& table : tables) {
    RETURN_IF_ERROR(gyre::ps::Check(table));
    if (!names.insert(table.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("table ", table.name, " has a name that is there twice"));
    }
    for (int server = 0; server < servers(); ++server) {
      std::vector<int>& own = by_server_[static_cast<size_t>(server)];
      own.push_back(static_cast<int>(partitions_.size()));
      partitions_.push_back({.tensor = -1,
                             .offset = elements_,
                             .count = 0,
                             .server = server,
                             .slot = static_cast<int>(own.size()) - 1,
                             .table = static_cast<int>(tables_.size())});
    }
    tables_.push_back(table);
    Write(description, table);
  }
  return absl::OkStatus();
}

int64_t Layout::BytesOf(int server) const {
  int64_t elements = 0;
  for (const int partition : OfServer(server)) elements += partitions_[static_cast<size_t>(partition)].count;
  return elements * kElementBytes;
}

}  // namespace gyre::ps
