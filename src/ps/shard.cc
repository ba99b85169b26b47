#include "ps/shard.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/status.h"
#include "base/strategy.h"
#include "device/reduce.h"

namespace gyre::ps {

namespace {

// Steps of one worker that may wait for others: those that it may make alone, and one. Bounds what a server holds. With
// fewer, what comes after an outage would be refused for ever, and stand in the way of what is awaited.
constexpr auto kMostHeld = static_cast<uint64_t>(kMostLocalSteps) + 1;

Floats Keep(const Gradient& gradient) {
  return gradient.keeper ? gradient.keeper : Floats::CopyOf(gradient.bytes);
}

}  // namespace

absl::StatusOr<Shard> Shard::Create(int64_t count, const Consistency& consistency, const Rule& rule,
                                    const Guards& guards, MakeFloats make) {
  std::optional<Optimizer> optimizer;
  if (rule) {
    ASSIGN_OR_RETURN(optimizer, Optimizer::Create(*rule, std::span(&count, 1)));
  }
  return Shard(count, consistency, guards, std::move(optimizer), std::move(make));
}

Shard::Shard(int64_t count, const Consistency& consistency, const Guards& guards, std::optional<Optimizer> optimizer,
             MakeFloats make)
    : consistency_(consistency),
      guards_(guards),
      optimizer_(std::move(optimizer)),
      make_(std::move(make)),
      values_(make_(static_cast<size_t>(count))) {
  std::ranges::fill(values_.writable(), 0.0f);
}

absl::StatusOr<Shard> Shard::OfTable(const Table& table, const Consistency& consistency, const Rule& rule,
                                     const Guards& guards, MakeFloats make) {
  ASSIGN_OR_RETURN(RowTable rows, RowTable::Create(table, rule));
  Shard shard(1, consistency, guards, std::nullopt, std::move(make));
  shard.rows_.emplace(std::move(rows));
  shard.has_values_ = true;
  return shard;
}

bool Shard::Fits(Bytes gradient) const {
  return rows_ ? rows_->Fits(gradient) : gradient.size() == values_.size() * sizeof(float);
}

bool Shard::Initialize(Bytes values) {
  if (has_values_ || values.size() != values_.size() * sizeof(float)) return false;
  values_ = Floats::CopyOf(values, make_(values_.size()));
  return has_values_ = true;
}

Shard::Outcome Shard::Push(int worker, uint64_t from, uint64_t sequence, const Gradient& gradient,
                           const Applied& applied) {
  if (!has_values_ || !Fits(gradient.bytes)) return Outcome::kGap;
  Stream& stream = streams_[worker];
  if (sequence < stream.next && guards_.duplicates) return Outcome::kKnown;
  if (from > stream.next) return Outcome::kGap;
  if (consistency_.mode == Mode::kSynchronous) {
    if (sequence >= version_ + kMostHeld) return Outcome::kGap;
    const uint64_t before = std::exchange(stream.next, std::max(stream.next, sequence + 1));
    if (sequence < version_) return Outcome::kKnown;  // the others have gone on without it
    held_[sequence][worker] = {before, gradient.rate, Keep(gradient)};
    return Outcome::kTaken;
  }
  stream.next = std::max(stream.next, sequence + 1);
  Apply(Keep(gradient).span(), gradient.rate);
  ++version_;
  applied(worker, sequence);
  return Outcome::kTaken;
}

void Shard::Forget(int worker, uint64_t oldest) {
  Stream& stream = streams_[worker];
  stream.next = std::max(stream.next, oldest);
}

void Shard::Raise(int worker, uint64_t floor) {
  Stream& stream = streams_[worker];
  stream.floor = std::max(stream.floor, floor);
}

uint64_t Shard::FloorFor(int worker, std::span<const int> members) const {
  const uint64_t own = ClockOf(worker);
  if (consistency_.mode == Mode::kSynchronous) return std::max(own, version_);
  uint64_t others = 0;
  if (const auto least = Clock(members)) {
    others = *least;
  } else {
    for (const auto& [_, stream] : streams_) others = std::max({others, stream.next, stream.floor});
  }
  return std::max(own, others);
}

void Shard::Advance(std::span<const int> members, const Applied& applied) {
  if (consistency_.mode != Mode::kSynchronous || !has_values_) return;
  const auto least = Clock(members);
  if (least && *least > version_) AdvanceTo(*least, applied);
}

void Shard::AdvanceTo(uint64_t step, const Applied& applied) {
  // Where nobody who belongs is awaited, steps may have no pushes at all.
  while (!held_.empty() && held_.begin()->first < step) ApplyStep(held_.begin()->first, applied);
  version_ = step;
}

void Shard::ApplyStep(uint64_t step, const Applied& applied) {
  const std::map<int, Held> pushes = std::move(held_.extract(step).mapped());
  if (rows_) {
    std::vector<std::span<const float>> rows;
    for (const auto& [_, push] : pushes) rows.push_back(push.gradient.span());
    rows_->Apply(rows, pushes.begin()->second.rate);
    for (const auto& [worker, _] : pushes) applied(worker, step);
    return;
  }
  std::vector<const void*> gradients;
  for (const auto& [_, push] : pushes) gradients.push_back(push.gradient.span().data());
  Floats mean(values_.size());
  void* const out = mean.writable().data();
  const int workers = static_cast<int>(pushes.size());
  device::Reduce(device::MakeReduction(DType::kF32, ReduceOp::kAverage, 1, 1, workers), gradients, std::span(&out, 1),
                 static_cast<int64_t>(mean.size()));
  Apply(mean.span(), pushes.begin()->second.rate);
  for (const auto& [worker, _] : pushes) applied(worker, step);
}

void Shard::Apply(std::span<const float> gradient, std::optional<float> rate) {
  if (rows_) return rows_->Apply(std::span(&gradient, 1), rate);
  values_.Unshare(make_);
  const std::span<float> values = values_.writable();
  if (optimizer_) {
    // Its one buffer has as many elements, and rates are checked where they come in: it cannot fail.
    if (rate) optimizer_->SetLearningRate(*rate).IgnoreError();
    optimizer_->Step(0, values, gradient).IgnoreError();
    return;
  }
  for (size_t i = 0; i < values.size(); ++i) values[i] += gradient[i];
}

std::optional<uint64_t> Shard::Clock(std::span<const int> members) const {
  std::optional<uint64_t> least;
  for (const int worker : members) {
    const uint64_t clock = ClockOf(worker);
    if (!least || clock < *least) least = clock;
  }
  return least;
}

const Shard::Stream& Shard::StreamOf(int worker) const {
  static constexpr Stream kNone;
  const auto found = streams_.find(worker);
  return found == streams_.end() ? kNone : found->second;
}

uint64_t Shard::ClockOf(int worker) const {
  const Stream& stream = StreamOf(worker);
  return std::max(stream.next, stream.floor);
}

uint64_t Shard::Next(int worker) const {
  return StreamOf(worker).next;
}

uint64_t Shard::Durable(int worker) const {
  return StreamOf(worker).durable;
}

bool Shard::Serves(int worker, uint64_t clock, std::optional<uint64_t> least) const {
  if (!has_values_ || ClockOf(worker) < clock) return false;
  switch (consistency_.mode) {
    case Mode::kSynchronous: return version_ >= clock;
    case Mode::kStale: return least && *least >= clock - std::min(clock, consistency_.bound);
    case Mode::kAsynchronous: return true;
  }
  return false;
}

// Below this, all is in the values: what is held is not saved, and has to come again.
uint64_t Shard::Settled(int worker, const Stream& stream) const {
  for (const auto& [_, pushes] : held_) {
    const auto held = pushes.find(worker);
    if (held != pushes.end()) return held->second.before;
  }
  return stream.next;
}

std::string Shard::Save() const {
  return Written([this](WireWriter& writer) {
    writer.U8(has_values_ ? 1 : 0);
    writer.U64(version_);
    writer.U32(static_cast<uint32_t>(streams_.size()));
    for (const auto& [worker, stream] : streams_) {
      writer.I32(worker);
      writer.U64(Settled(worker, stream));
      writer.U64(stream.floor);
    }
    writer.Raw(AsText(values_.bytes()));
    if (optimizer_) writer.Raw(AsText(optimizer_->Save()));
    if (rows_) writer.Raw(rows_->Save());
  });
}

absl::Status Shard::Restore(std::string_view bytes) {
  WireReader reader(bytes);
  has_values_ = reader.U8() != 0;
  version_ = reader.U64();
  const uint32_t streams = reader.U32();
  size_t left = bytes.size() - std::min<size_t>(bytes.size(), 13);
  for (uint32_t i = 0; i < streams && reader.ok(); ++i) {
    const int worker = reader.I32();
    const uint64_t next = reader.U64();
    const uint64_t floor = reader.U64();
    streams_[worker] = {.next = next, .floor = floor, .durable = next};
    left -= std::min<size_t>(left, 20);
  }
  const std::string_view values = reader.Raw(values_.size() * sizeof(float));
  if (!reader.ok()) return absl::DataLossError("a partition in the snapshot is cut short");
  values_ = Floats::CopyOf(AsBytes(values), make_(values_.size()));
  const std::string_view rest = reader.Raw(left - values.size());
  if (!reader.AtEnd()) return absl::DataLossError("a partition in the snapshot does not fit");
  if (optimizer_) return optimizer_->Restore(AsBytes(rest));
  if (rows_) return rows_->Restore(AsBytes(rest));
  return rest.empty() ? absl::OkStatus() : absl::DataLossError("a partition in the snapshot has an optimizer's state");
}

void Shard::Unsaved() {
  for (auto& [_, stream] : streams_) stream.durable = 0;
}

std::string Shard::SaveHeld() const {
  return Written([this](WireWriter& writer) {
    for (const auto& [step, pushes] : held_) {
      for (const auto& [worker, push] : pushes) {
        writer.U64(step);
        writer.I32(worker);
        writer.U64(push.before);
        writer.U8(push.rate ? 1 : 0);
        writer.U32(std::bit_cast<uint32_t>(push.rate.value_or(0)));
        writer.U64(push.gradient.bytes().size());  // rows are as many as there are
        writer.Raw(AsText(push.gradient.bytes()));
      }
    }
  });
}

absl::Status Shard::RestoreHeld(std::string_view bytes) {
  WireReader reader(bytes);
  while (!reader.AtEnd()) {
    const uint64_t step = reader.U64();
    const int worker = reader.I32();
    Held push{.before = reader.U64(), .rate = {}, .gradient = {}};
    const bool has_rate = reader.U8() != 0;
    const auto rate = std::bit_cast<float>(reader.U32());
    if (has_rate) push.rate = rate;
    const Bytes gradient = AsBytes(reader.Raw(reader.U64()));
    if (!reader.ok() || !Fits(gradient)) return absl::DataLossError("held pushes do not fit a partition");
    push.gradient = Floats::CopyOf(gradient);
    held_[step][worker] = std::move(push);
    Forget(worker, step + 1);
  }
  return absl::OkStatus();
}

std::map<int, uint64_t> Shard::Nexts() const {
  std::map<int, uint64_t> nexts;
  for (const auto& [worker, stream] : streams_) nexts[worker] = stream.next;
  return nexts;
}

void Shard::Saved() {
  for (auto& [worker, stream] : streams_) stream.durable = Settled(worker, stream);
}

}  // namespace gyre::ps
