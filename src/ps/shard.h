// Shard: one partition at its server: values, the optimizer that updates them, and how far each worker's pushes have
// come. Pure; one thread.
//
// A worker's pushes of a partition are numbered by its steps, and taken in order. A step without a push (the worker
// went on from a later step) is named by the push that follows it, which says from where on it speaks: so `next`, below
// which everything is settled, is all that is kept of a worker's past, and each step is applied at most once.
//
// A worker's clock here is the step whose push is awaited from it: `next`, or its floor, which is where it joined.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "gyre/optimizer.h"
#include "net/bytes.h"
#include "ps/floats.h"
#include "ps/options.h"
#include "ps/row_table.h"

namespace gyre::ps {

// What updates the values with a gradient; none: they are summed.
using Rule = std::optional<OptimizerConfig>;

// A pushed gradient, as bytes at any alignment.
struct Gradient {
  Bytes bytes{};
  std::optional<float> rate{};  // for the rule; none: as it was
  Floats keeper{};              // holds the bytes, where they need no copy to be kept
};

class Shard {
 public:
  // `make`: memory for values. kInvalidArgument: see Optimizer::Create.
  static absl::StatusOr<Shard> Create(int64_t count, const Consistency& consistency, const Rule& rule,
                                      const Guards& guards, MakeFloats make = MakePrivate);

  // For a server's part of a table: pushes are rows (ps/rows.h), and values() is a single 0, by which workers learn how
  // far it has come. It has values from the beginning. kInvalidArgument: see RowTable::Create.
  static absl::StatusOr<Shard> OfTable(const Table& table, const Consistency& consistency, const Rule& rule,
                                       const Guards& guards, MakeFloats make = MakePrivate);
  const RowTable* rows() const { return rows_ ? &*rows_ : nullptr; }

  bool has_values() const { return has_values_; }
  std::span<const float> values() const { return values_.span(); }
  const Floats& held_values() const { return values_; }  // does not change while others hold it

  // The first values. False, and nothing changes, if there are some, or their number is wrong.
  bool Initialize(Bytes values);

  enum class Outcome : uint8_t {
    kTaken,  // applied, or held until its step's others are in
    kKnown,  // was taken before, or its step is over
    kGap,    // others have to come first; or it does not fit; or too many wait. Nothing changed
  };
  // Called with (worker, step) for each push that changes the values.
  using Applied = std::function<void(int worker, uint64_t sequence)>;
  Outcome Push(int worker, uint64_t from, uint64_t sequence, const Gradient& gradient, const Applied& applied);

  // The worker has nothing from before `oldest` any more.
  void Forget(int worker, uint64_t oldest);

  // The worker is not awaited for steps before `floor`.
  void Raise(int worker, uint64_t floor);

  // From where on a worker that joins is awaited: not before the others are.
  uint64_t FloorFor(int worker, std::span<const int> members) const;

  // Applies the steps whose pushes are all in: to be called after what changes members, floors or pushes.
  void Advance(std::span<const int> members, const Applied& applied);

  // Applies the steps before `step`, which is what the values are for now.
  void AdvanceTo(uint64_t step, const Applied& applied);

  // The least clock of the members; nothing where there are none.
  std::optional<uint64_t> Clock(std::span<const int> members) const;
  uint64_t ClockOf(int worker) const;
  uint64_t Next(int worker) const;
  uint64_t Durable(int worker) const;

  // Whether the worker may have values for step `clock`. `least`: Clock(members).
  bool Serves(int worker, uint64_t clock, std::optional<uint64_t> least) const;

  // Of kSynchronous: the step that the values are for. Otherwise how many pushes they have had.
  uint64_t version() const { return version_; }

  // All but the pushes that are held, as bytes; Restore takes it back into a new shard. kDataLoss: it does not fit.
  std::string Save() const;
  absl::Status Restore(std::string_view bytes);
  void Saved();    // what Save gave is in the snapshot
  void Unsaved();  // nothing is in a snapshot

  // The pushes that are held, likewise; to be restored after the rest.
  std::string SaveHeld() const;
  absl::Status RestoreHeld(std::string_view bytes);

  // By worker: what is awaited next.
  std::map<int, uint64_t> Nexts() const;

 private:
  struct Stream {
    uint64_t next = 0, floor = 0;
    uint64_t durable = 0;
  };
  struct Held {
    uint64_t before = 0;  // what `next` was: what is lost with this push has to come again from here on
    std::optional<float> rate;
    Floats gradient;
  };
  Shard(int64_t count, const Consistency& consistency, const Guards& guards, std::optional<Optimizer> optimizer,
        MakeFloats make);

  bool Fits(Bytes gradient) const;
  void Apply(std::span<const float> gradient, std::optional<float> rate);
  void ApplyStep(uint64_t step, const Applied& applied);
  uint64_t Settled(int worker, const Stream& stream) const;
  const Stream& StreamOf(int worker) const;

  Consistency consistency_;
  Guards guards_;
  std::optional<Optimizer> optimizer_;
  std::optional<RowTable> rows_;
  MakeFloats make_;
  bool has_values_ = false;
  uint64_t version_ = 0;
  Floats values_;
  std::map<int, Stream> streams_;
  std::map<uint64_t, std::map<int, Held>> held_;  // by step, by worker: sums have one order
};

}  // namespace gyre::ps
