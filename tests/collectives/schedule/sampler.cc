#include "collectives/schedule/sampler.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

Sampler::Sampler(std::function<Schedule(int rank)> make, int ranks, const std::vector<int>& blocks)
    : make_(std::move(make)),
      loaded_(static_cast<size_t>(ranks)),
      sends_(static_cast<size_t>(ranks)),
      receives_(static_cast<size_t>(ranks)) {
  for (const int block : blocks) {
    if (static_cast<size_t>(block) >= is_looked_at_.size()) is_looked_at_.resize(static_cast<size_t>(make_(0).blocks));
    is_looked_at_[static_cast<size_t>(block)] = true;
  }
}

// The mixing of splitmix64.
uint64_t Sampler::Input(int rank, int block) {
  uint64_t x = (static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(block)) + 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

const Sampler::Range& Sampler::Load(int rank) {
  Range& range = loaded_[static_cast<size_t>(rank)];
  if (range.first != kNone) return range;
  range.first = static_cast<int>(records_.size());
  std::unordered_map<int, int> last_on_block;
  const Schedule schedule = make_(rank);
  for (const Step& step : schedule.steps) {
    auto& counts = step.kind == Step::Kind::kSend ? sends_ : receives_;
    const int in_stream = counts[static_cast<size_t>(step.peer)]++;
    if (!is_looked_at_.empty() && !is_looked_at_[static_cast<size_t>(step.block)]) continue;
    const auto [last, is_first] = last_on_block.try_emplace(step.block, kNone);
    const int previous = std::exchange(last->second, static_cast<int>(records_.size()));
    records_.push_back({.step = step, .rank = rank, .in_stream = in_stream, .previous = previous});
  }
  std::ranges::fill(sends_, 0);
  std::ranges::fill(receives_, 0);
  range.last = static_cast<int>(records_.size());
  return range;
}

int Sampler::LastOn(int rank, int block) {
  const Range range = Load(rank);
  for (int record = range.last - 1; record >= range.first; --record) {
    if (At(record).step.block == block) return record;
  }
  return kNone;
}

absl::StatusOr<int> Sampler::SendOf(const Record& receive) {
  const Step step = receive.step;
  const int rank = receive.rank, in_stream = receive.in_stream;  // loading moves the records
  const Range range = Load(step.peer);
  for (int record = range.first; record < range.last; ++record) {
    const Record& sent = At(record);
    if (sent.step.kind != Step::Kind::kSend || sent.step.peer != rank || sent.in_stream != in_stream) continue;
    if (is_looked_at_.empty() || sent.step.block == step.block) return record;
  }
  return absl::InternalError(absl::StrCat("message ", in_stream, " from rank ", step.peer, " to rank ", rank,
                                          " is not of block ", step.block, ", which that receives"));
}

// What must be known before it.
absl::StatusOr<std::vector<int>> Sampler::Needed(const Record& record) {
  std::vector<int> needed;
  if (record.step.kind != Step::Kind::kReceive && record.previous != kNone) needed.push_back(record.previous);
  if (record.step.kind != Step::Kind::kSend) {
    ASSIGN_OR_RETURN(const int send, SendOf(record));
    needed.push_back(send);
  }
  return needed;
}

uint64_t Sampler::Before(const Record& record) const {
  return record.previous == kNone ? Input(record.rank, record.step.block)
                                  : records_[static_cast<size_t>(record.previous)].value;
}

// Not by recursion: in a ring there are as many steps behind each other as ranks.
absl::Status Sampler::Evaluate(int last) {
  for (std::vector<int> open = {last}; !open.empty();) {
    const int number = open.back();
    const Record record = At(number);
    if (record.state == Record::State::kKnown) {
      open.pop_back();
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<int> needed, Needed(record));
    if (record.state == Record::State::kUnknown) {
      At(number).state = Record::State::kOpen;
      for (const int before : needed) {
        if (At(before).state == Record::State::kOpen) {
          return absl::InternalError(
              absl::StrCat("rank ", record.rank, " needs what comes of its own block ", record.step.block));
        }
        if (At(before).state == Record::State::kUnknown) open.push_back(before);
      }
      continue;
    }
    uint64_t value = record.step.kind == Step::Kind::kReceive ? 0 : Before(record);
    if (record.step.kind != Step::Kind::kSend) value += At(needed.back()).value;
    At(number).value = value;
    At(number).state = Record::State::kKnown;
    open.pop_back();
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Sampler::ValueAt(int rank, int block) {
  const int last = LastOn(rank, block);
  if (last == kNone) return Input(rank, block);
  RETURN_IF_ERROR(Evaluate(last));
  return At(last).value;
}

}  // namespace gyre::internal
