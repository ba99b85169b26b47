// Sparse codecs. Every call costs the network's latency, which is most of what a sparse exchange takes. Among few ranks
// there are two:
//   1. alltoall: how much this rank sends in the other, and its share of the gradients that are not covered, of which
//      each rank adds up a slice (compression/plain_slices.h)
//   2. allgather: those sums, and the elements that each rank has chosen, which all add up in the order of ranks
//
// Among more ranks than ExchangeSettings::most_gathered four, by runtime/sparse_split.h:
//   1. alltoall: as above, of what it sends to each; and where it would have regions begin
//   2. alltoall: the elements that it has chosen of each rank's region
//   3. allgather: how many bytes the region's sum is, where the region begins in the next step, and sums as above
//   4. allgather: the regions' sums
//
// A rank's chosen elements are, for each covered gradient of the part, u32 bytes and a payload of compression/sparse.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compression/codec.h"
#include "compression/dgc.h"
#include "compression/large_buffer.h"
#include "compression/payload.h"
#include "compression/plain_slices.h"
#include "runtime/compressed_exchange.h"
#include "runtime/sparse_split.h"

namespace gyre::internal {

namespace {

using compression::Codec;
using compression::DgcTensor;
using compression::LargeBuffer;
using compression::Load;
using compression::PayloadKind;
using compression::PlainSlices;
using compression::Store;

// Bytes that an entry of a sparse payload takes, and an element of a dense allreduce (twice over the wire).
constexpr double kEntryBytes = 6, kDenseBytes = 8;

ValueType ValuesOf(const Compression& compression) {
  if (const auto* const dgc = std::get_if<Dgc>(&compression)) return dgc->values;
  if (const auto* const top = std::get_if<TopK>(&compression)) return top->values;
  return ValueType::kF32;
}

PayloadKind PlainKind(ValueType values) {
  switch (values) {
    case ValueType::kF16: return PayloadKind::kF16;
    case ValueType::kBF16: return PayloadKind::kBF16;
    default: return PayloadKind::kF32;
  }
}

class SparseExchange final : public CompressedExchange {
 public:
  SparseExchange(const Compression& compression, ExchangeSettings settings, std::vector<std::unique_ptr<Codec>> codecs)
      : settings_(std::move(settings)),
        codecs_(std::move(codecs)),
        plain_kind_(PlainKind(ValuesOf(compression))),
        may_split_(settings_.ranks > settings_.most_gathered && !std::holds_alternative<RandomK>(compression)),
        plain_(settings_.rank, settings_.ranks, settings_.scale()),
        split_(settings_.rank, settings_.ranks, settings_.scale(),
               {ValuesOf(compression), settings_.link_bytes_per_second}),
        sizes_(static_cast<size_t>(settings_.ranks)),
        cuts_(sizes_.size()) {
    if (const auto* const dgc = std::get_if<Dgc>(&compression)) dgc_ = *dgc;
    for (const ExchangeTensor& tensor : settings_.tensors) {
      kept_.emplace_back(!tensor.covered && plain_kind_ != PayloadKind::kF32 ? tensor.count : 0);
    }
  }

  bool WantsNorm() const override { return dgc_ && dgc_->clip > 0; }

  void BeginStep(int64_t step, double norm) override {
    step_ = step;
    prepared_.clear();
    if (!dgc_) return;
    clip_scale_ = compression::ClipScale(*dgc_, norm, settings_.ranks);
    sparsity_ = compression::SparsityAt(*dgc_, step - 1);
    if (InWarmup() && Loses(1 - sparsity_)) sparsity_ = 0;
    SetAll();
  }

  bool dense_step() const override { return dgc_ && sparsity_ == 0; }

  absl::Status Flush(int tensor, std::span<float> values) override {
    Codec& codec = *codecs_[static_cast<size_t>(tensor)];
    if (!dgc_) {
      const std::span<float> kept = codec.state()[0];
      for (size_t i = 0; i < kept.size(); ++i) {
        values[i] += kept[i];
        kept[i] = 0;
      }
      return absl::OkStatus();
    }
    auto& accumulator = static_cast<DgcTensor&>(codec);
    accumulator.Set(0, clip_scale_);
    RETURN_IF_ERROR(Annotate(accumulator.EncodeAndClear(values, step_, payload_), NameOf(tensor)));
    accumulator.Set(sparsity_, clip_scale_);
    return decoder_.DecodeAdd(payload_, 1, values);
  }

  bool Prepare(const ExchangePart& part) override {
    const auto known =
        std::ranges::find_if(prepared_, [&](const Encoding& each) { return each.part.tensors == part.tensors; });
    Encoding& encoding = known != prepared_.end() ? *known : prepared_.emplace_back(Encoding{.part = part});
    return EncodeNext(encoding);
  }

  void Begin(ExchangePart part) override {
    if (!prepared_.empty() && prepared_.front().part.tensors == part.tensors) {
      own_ = std::move(prepared_.front());
      prepared_.pop_front();
    } else {
      own_ = {.part = std::move(part)};
    }
    round_ = Round::kAnnounce;
    sent_bytes_ = 0;
  }

  absl::StatusOr<std::optional<Call>> Next() override {
    switch (round_) {
      case Round::kAnnounce:
        while (EncodeNext(own_)) {
        }
        RETURN_IF_ERROR(own_.status);
        RETURN_IF_ERROR(BeginSplit());
        round_ = splits_ ? Round::kSlices : Round::kPayloads;
        return Announce();
      case Round::kPayloads:
        RETURN_IF_ERROR(ReadAnnouncements());
        round_ = Round::kEnd;
        return GatherPayloads();
      case Round::kSlices:
        RETURN_IF_ERROR(ReadAnnouncements());
        round_ = Round::kSums;
        return SendSlices();
      case Round::kSums:
        RETURN_IF_ERROR(SumSlices());
        round_ = Round::kRegions;
        return AnnounceSums();
      case Round::kRegions:
        RETURN_IF_ERROR(ReadSums());
        round_ = Round::kEnd;
        return Gather(split_.sum());
      case Round::kEnd: break;
    }
    RETURN_IF_ERROR(splits_ ? split_.Deliver(received_, sizes_, cuts_) : AddAll());
    DeliverPlain();
    return std::nullopt;
  }

  int64_t sent_bytes() const override { return sent_bytes_; }

  std::vector<compression::StateArrays> state() override {
    std::vector<compression::StateArrays> all;
    for (size_t i = 0; i < codecs_.size(); ++i) {
      if (codecs_[i] != nullptr) all.push_back(codecs_[i]->state());
      if (codecs_[i] == nullptr && plain_kind_ != PayloadKind::kF32) all.push_back({kept_[i].span()});
    }
    return all;
  }

 private:
  enum class Round { kAnnounce, kPayloads, kSlices, kSums, kRegions, kEnd };
  using Length = uint32_t;

  // What this rank sends of a part, as far as it is encoded.
  struct Encoding {
    ExchangePart part = {};
    size_t done = 0;                       // tensors
    std::vector<float> plain = {};         // gradients that go along, one after the other
    std::vector<float> kept = {};          // of these, what was rounded off before; empty where nothing is
    std::vector<std::byte> payloads = {};  // of the others
    absl::Status status = absl::OkStatus();
  };

  const std::string& NameOf(int tensor) const { return settings_.tensors[static_cast<size_t>(tensor)].name; }
  Codec* CodecOf(int tensor) const { return codecs_[static_cast<size_t>(tensor)].get(); }
  bool goes_plain(const ExchangePart& part, size_t i) const {
    return part.dense || CodecOf(part.tensors[i]) == nullptr;
  }
  PayloadKind KindOf(const ExchangePart& part) const { return part.dense ? PayloadKind::kF32 : plain_kind_; }

  bool InWarmup() const {
    return dgc_->warmup_steps > 0 && (step_ - 1) / dgc_->warmup_steps < std::ssize(dgc_->warmup);
  }
  bool Loses(double density) const {
    const double gathered =
        may_split_ ? density + compression::UnionDensity(density, settings_.ranks) : settings_.ranks * density;
    return gathered * kEntryBytes >= kDenseBytes;
  }

  void SetAll() {
    for (const auto& codec : codecs_) {
      if (codec != nullptr) static_cast<DgcTensor&>(*codec).Set(sparsity_, clip_scale_);
    }
  }

  // One tensor. False: all are done, or one has failed.
  bool EncodeNext(Encoding& to) {
    if (!to.status.ok() || to.done == to.part.tensors.size()) return false;
    const int tensor = to.part.tensors[to.done];
    const std::span<float> values = to.part.values[to.done];
    Codec* const codec = CodecOf(tensor);
    if (goes_plain(to.part, to.done)) {
      if (codec != nullptr) to.status = Flush(tensor, values);
      to.plain.insert(to.plain.end(), values.begin(), values.end());
      if (KindOf(to.part) != PayloadKind::kF32) {
        const auto kept = kept_[static_cast<size_t>(tensor)].span();
        to.kept.insert(to.kept.end(), kept.begin(), kept.end());
      }
    } else {
      to.status = Annotate(codec->EncodeAndClear(values, step_, payload_), NameOf(tensor));
      const size_t at = to.payloads.size();
      to.payloads.resize(at + sizeof(Length) + payload_.size());
      Store(&to.payloads[at], static_cast<Length>(payload_.size()));
      std::memcpy(&to.payloads[at + sizeof(Length)], payload_.data(), payload_.size());
    }
    ++to.done;
    return to.status.ok();
  }

  // Calls visit(place in the part, payload) for each that a rank has sent.
  template <typename Visit>
  absl::Status VisitPayloads(std::span<const std::byte> bytes, const Visit& visit) {
    for (size_t i = 0; i < own_.part.tensors.size(); ++i) {
      if (goes_plain(own_.part, i)) continue;
      if (bytes.size() < sizeof(Length)) return absl::DataLossError("compressed gradients are cut short");
      const auto length = size_t{Load<Length>(bytes.data())};
      bytes = bytes.subspan(sizeof(Length));
      if (bytes.size() < length) return absl::DataLossError("compressed gradients are cut short");
      RETURN_IF_ERROR(Annotate(visit(i, bytes.first(length)), NameOf(own_.part.tensors[i])));
      bytes = bytes.subspan(length);
    }
    return bytes.empty() ? absl::OkStatus() : absl::DataLossError("compressed gradients have bytes left over");
  }

  absl::Status BeginSplit() {
    std::vector<std::span<float>> covered;
    int64_t elements = 0;
    for (size_t i = 0; i < own_.part.tensors.size(); ++i) {
      if (goes_plain(own_.part, i)) continue;
      covered.push_back(own_.part.values[i]);
      elements += std::ssize(covered.back());
    }
    splits_ = may_split_ && !covered.empty() && SparseSplit::Fits(elements);
    if (!splits_) return absl::OkStatus();
    split_.Begin(own_.part.tensors, std::move(covered));
    size_t next = 0;
    RETURN_IF_ERROR(VisitPayloads(own_.payloads, [&](size_t, auto payload) { return split_.Add(next++, payload); }));
    split_.Cut();
    return absl::OkStatus();
  }

  // --- The first call ---

  // u64 bytes of what follows later; where sums are split also i64 where the receiver's region should begin.
  size_t announcement_bytes() const { return splits_ ? 16 : 8; }

  Call Announce() {
    plain_.Begin(KindOf(own_.part), std::move(own_.plain), std::move(own_.kept));
    sent_.clear();
    counts_.clear();
    for (int rank = 0; rank < settings_.ranks; ++rank) {
      const size_t at = sent_.size();
      const auto bytes = splits_ ? static_cast<uint64_t>(split_.slice_bytes()[static_cast<size_t>(rank)])
                                 : uint64_t{own_.payloads.size()};
      sent_.resize(at + announcement_bytes() + static_cast<size_t>(plain_.bytes(rank)));
      Store(&sent_[at], bytes);
      if (splits_) Store(&sent_[at + 8], split_.ProposedCut(rank));
      plain_.Encode(rank, sent_.data() + at + announcement_bytes());
      counts_.push_back(static_cast<int64_t>(sent_.size() - at));
    }
    receive_counts_.assign(counts_.size(), counts_[static_cast<size_t>(settings_.rank)]);
    received_.resize(counts_.size() * static_cast<size_t>(receive_counts_[0]));
    return Counted({.kind = CallKind::kAllToAll,
                    .in = BytesView(sent_),
                    .out = BytesView(received_),
                    .counts = counts_,
                    .receive_counts = receive_counts_});
  }

  absl::Status ReadAnnouncements() {
    const std::byte* from = received_.data();
    int64_t cut = 0;
    for (size_t rank = 0; rank < sizes_.size(); ++rank, from += receive_counts_[0]) {
      RETURN_IF_ERROR(ReadSize(rank, from));
      if (splits_) cut += std::clamp<int64_t>(Load<int64_t>(from + 8), 0, UINT32_MAX);
      plain_.Add(from + announcement_bytes());
    }
    cut_ = cut / settings_.ranks;
    return absl::OkStatus();
  }

  absl::Status ReadSize(size_t rank, const std::byte* from) {
    // A payload is never much larger than its gradient with a bit for each position.
    uint64_t most = 4096;
    for (const auto& values : own_.part.values) most += 4096 + 8 * values.size();
    const auto size = Load<uint64_t>(from);
    if (size > most) return absl::DataLossError(absl::StrCat("rank ", rank, " sends ", size, " bytes of a bucket"));
    sizes_[rank] = static_cast<int64_t>(size);
    return absl::OkStatus();
  }

  Call Counted(const Call& call) {
    sent_bytes_ += call.in.count;
    return call;
  }

  // Of sizes_ bytes from each rank.
  Call Gather(std::vector<std::byte>& own) {
    received_.resize(static_cast<size_t>(std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0})));
    return Counted({.kind = CallKind::kAllGather, .in = BytesView(own), .out = BytesView(received_), .counts = sizes_});
  }

  // --- Few ranks ---

  Call GatherPayloads() {
    const int64_t own = plain_.bytes(settings_.rank);
    sent_.resize(static_cast<size_t>(own));
    plain_.EncodeSum(sent_.data());
    sent_.insert(sent_.end(), own_.payloads.begin(), own_.payloads.end());
    for (size_t rank = 0; rank < sizes_.size(); ++rank) sizes_[rank] += plain_.bytes(static_cast<int>(rank));
    return Gather(sent_);
  }

  absl::Status AddAll() {
    std::span<const std::byte> rest = received_;
    const auto add = [this](size_t i, std::span<const std::byte> payload) {
      return decoder_.DecodeAdd(payload, settings_.scale(), own_.part.values[i]);
    };
    for (size_t rank = 0; rank < sizes_.size(); ++rank) {
      const auto size = static_cast<size_t>(sizes_[rank]);
      const auto plain = static_cast<size_t>(plain_.bytes(static_cast<int>(rank)));
      plain_.Decode(static_cast<int>(rank), rest.data());
      RETURN_IF_ERROR(
          Annotate(VisitPayloads(rest.subspan(plain, size - plain), add), absl::StrCat("from rank ", rank)));
      rest = rest.subspan(size);
    }
    return absl::OkStatus();
  }

  // --- Many ranks ---

  Call SendSlices() {
    counts_.assign(split_.slice_bytes().begin(), split_.slice_bytes().end());
    received_.resize(static_cast<size_t>(std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0})));
    return Counted({.kind = CallKind::kAllToAll,
                    .in = BytesView(split_.slices()),
                    .out = BytesView(received_),
                    .counts = counts_,
                    .receive_counts = sizes_});
  }

  absl::Status SumSlices() {
    std::vector<int> covered;
    for (size_t i = 0; i < own_.part.tensors.size(); ++i) {
      if (!goes_plain(own_.part, i)) covered.push_back(own_.part.tensors[i]);
    }
    return split_.Sum(received_, sizes_, [&](size_t tensor, size_t element, float value) {
      CodecOf(covered[tensor])->state().back()[element] += value;
    });
  }

  Call AnnounceSums() {
    counts_.clear();
    for (int rank = 0; rank < settings_.ranks; ++rank) counts_.push_back(16 + plain_.bytes(rank));
    sent_.resize(static_cast<size_t>(counts_[static_cast<size_t>(settings_.rank)]));
    Store(sent_.data(), uint64_t{split_.sum().size()});
    Store(&sent_[8], cut_);
    plain_.EncodeSum(sent_.data() + 16);
    received_.resize(static_cast<size_t>(std::accumulate(counts_.begin(), counts_.end(), int64_t{0})));
    return Counted(
        {.kind = CallKind::kAllGather, .in = BytesView(sent_), .out = BytesView(received_), .counts = counts_});
  }

  absl::Status ReadSums() {
    const std::byte* from = received_.data();
    for (size_t rank = 0; rank < sizes_.size(); from += counts_[rank++]) {
      RETURN_IF_ERROR(ReadSize(rank, from));
      cuts_[rank] = Load<int64_t>(from + 8);
      plain_.Decode(static_cast<int>(rank), from + 16);
    }
    return absl::OkStatus();
  }

  // --- The end ---

  void DeliverPlain() {
    auto from = plain_.elements().begin();
    auto kept = plain_.kept().begin();
    for (size_t i = 0; i < own_.part.tensors.size(); ++i) {
      if (!goes_plain(own_.part, i)) continue;
      const std::span<float> values = own_.part.values[i];
      std::copy_n(from, values.size(), values.begin());
      from += std::ssize(values);
      if (plain_.kept().empty()) continue;
      std::copy_n(kept, values.size(), kept_[static_cast<size_t>(own_.part.tensors[i])].data());
      kept += std::ssize(values);
    }
  }

  const ExchangeSettings settings_;
  const std::vector<std::unique_ptr<Codec>> codecs_;  // by place; null: not covered
  const PayloadKind plain_kind_;                      // of what is not covered
  const bool may_split_;
  std::optional<Dgc> dgc_;         // then codecs are DgcTensors
  std::vector<LargeBuffer> kept_;  // by place, of what is not covered: what was rounded off
  int64_t step_ = 0;
  double sparsity_ = 0;
  float clip_scale_ = 1;
  std::deque<Encoding> prepared_;  // parts to come
  Encoding own_;                   // the part that was begun
  bool splits_ = false;            // likewise
  Round round_ = Round::kAnnounce;
  PlainSlices plain_;
  SparseSplit split_;
  int64_t sent_bytes_ = 0;
  std::vector<std::byte> payload_, sent_, received_;
  std::vector<int64_t> counts_, receive_counts_;
  std::vector<int64_t> sizes_;  // of what each rank sends next
  std::vector<int64_t> cuts_;   // where regions begin in the next step
  int64_t cut_ = 0;             // this rank's
  compression::Decoder decoder_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CompressedExchange>> MakeSparseExchange(const Compression& compression,
                                                                       ExchangeSettings settings) {
  std::vector<std::unique_ptr<Codec>> codecs;
  for (const ExchangeTensor& tensor : settings.tensors) {
    codecs.emplace_back();
    if (!tensor.covered) continue;
    ASSIGN_OR_RETURN(codecs.back(), compression::MakeCodec(compression, tensor.count,
                                                           {.link_bytes_per_second = settings.link_bytes_per_second}));
  }
  return std::make_unique<SparseExchange>(compression, std::move(settings), std::move(codecs));
}

}  // namespace gyre::internal
