// Layout: which server holds which part of the model. Tensors are cut into partitions, which are placed over the
// servers by rendezvous hashing (Thaler and Ravishankar, IEEE/ACM ToN 6, 1998) with bounded loads (after Mirrokni,
// Thorup and Zadimoghaddam, SODA 2018): each goes to the server that its name ranks highest among those with room,
// where all have room for the mean and one partition more. So no server holds more than that, and another server takes
// little more than its share from the others.
//
// A table (ps/table.h) has a partition at every server, for the rows that are there by hash.
//
// Everybody works out the same layout from the same tensors and tables. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ps/table.h"

namespace gyre::ps {

inline constexpr int64_t kPartitionBytes = 4 << 20;  // the most of one

struct Tensor {
  std::string name;   // not empty, not twice
  int64_t count = 0;  // elements, float32
};

// Consecutive elements of one tensor. Offsets count elements of the model: all tensors, one after the other.
struct Partition {
  int tensor = 0;
  int64_t offset = 0;
  int64_t count = 0;  // at least 1; of a table's: 0
  int server = 0;
  int slot = 0;    // the how many-th of its server's: tables come last
  int table = -1;  // of which it is; -1: of a tensor
};

// kPartitionBytes, or less where a server would have few of them: it has up to one partition more than its share, and
// the last one's values can only follow its last gradient, while the link's other direction has nothing to do.
// REQUIRES: elements >= 0, servers >= 1
int64_t DefaultPartitionBytes(int64_t elements, int servers);

class Layout {
 public:
  // `partition_bytes`: the most of one partition; where none is given, DefaultPartitionBytes. kInvalidArgument: no
  // server, an unnamed or twice named tensor, a negative count, less than an element a partition, or more than 2^31 - 1
  // partitions; a table that Check refuses.
  static absl::StatusOr<Layout> Create(std::span<const Tensor> tensors, int servers,
                                       std::optional<int64_t> partition_bytes = std::nullopt,
                                       std::span<const Table> tables = {});

  int servers() const { return static_cast<int>(by_server_.size()); }
  int64_t elements() const { return elements_; }
  const std::vector<Partition>& partitions() const { return partitions_; }  // in the model's order

  const std::vector<Table>& tables() const { return tables_; }
  int SlotOf(int table, int server) const { return static_cast<int>(OfServer(server).size() - tables_.size()) + table; }

  // Places in partitions(), by slot. REQUIRES: 0 <= server < servers()
  const std::vector<int>& OfServer(int server) const { return by_server_[static_cast<size_t>(server)]; }
  int64_t BytesOf(int server) const;

  // Differs where the layouts do: in tensors, their order, cuts or servers.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  Layout() = default;
  absl::Status Add(std::span<const Tensor> tensors, std::span<const Table> tables, WireWriter& description);

  int64_t elements_ = 0;
  uint64_t fingerprint_ = 0;
  std::vector<Table> tables_;
  std::vector<Partition> partitions_;
  std::vector<std::vector<int>> by_server_;
};

}  // namespace gyre::ps
