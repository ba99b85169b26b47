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
// The same among any number of ranks where the choice is global; then there is also, after the second, an allgather of
// how large each region's sums are, by which the largest are chosen; and before the last, where one region has many
// more of them than others, an alltoall that evens them out.
//
// Where hosts have several ranks, they first add up their gradients in the host's memory (runtime/host_reduction.h);
// what is kept, chosen and sent is then of a rank's own piece of each gradient (runtime/host_pieces.h).
//
// A rank's chosen elements are, for each covered gradient of the part that it has a piece of, u32 bytes and a payload
// of compression/sparse.h.
#include <algorithm>
#include <deque>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compression/payload.h"
#include "runtime/codec_device.h"
#include "runtime/compressed_exchange.h"
#include "runtime/host_gradients.h"
#include "runtime/host_pieces.h"
#include "runtime/plain_part.h"
#include "runtime/sparse_encoder.h"
#include "runtime/sparse_split.h"

namespace gyre::internal {

namespace {

using compression::Load;
using compression::Store;

class SparseExchange final : public CompressedExchange {
 public:
  // `device` outlives `encoder`, which is its own.
  SparseExchange(const Compression& compression, ExchangeSettings settings, const HostPieces& pieces,
                 std::shared_ptr<CodecDevice> device, std::unique_ptr<SparseEncoder> encoder)
      : settings_(std::move(settings)),
        pieces_(pieces),
        in_host_(pieces_.reduces()),
        may_split_(SplitsSums(compression, pieces_.hosts(), settings_.most_gathered)),
        global_(IsGlobal(compression)),
        device_(std::move(device)),
        encoder_(std::move(encoder)),
        host_(settings_, pieces_, *encoder_),
        plain_(pieces_, settings_.rank, settings_.scale()),
        split_(settings_.rank, settings_.ranks, settings_.scale(),
               {ValuesOf(compression), settings_.link_bytes_per_second}, !in_host_, IsGlobal(compression)),
        sizes_(static_cast<size_t>(settings_.ranks)),
        cuts_(sizes_.size()) {}

  bool WantsNorm() const override { return encoder_->WantsNorm(); }

  void BeginStep(int64_t step, double norm) override {
    prepared_.clear();
    encoder_->BeginStep(step, norm);
    host_.BeginStep();
  }

  bool dense_step() const override { return encoder_->dense_step(); }
  bool reduces_in_host() const override { return in_host_; }
  bool within_host() const override { return within_host_; }

  absl::Status Flush(const ExchangePart& part) override { return encoder_->Flush(part); }

  bool Prepare(const ExchangePart& part) override {
    if (!encoder_->prepares()) return false;
    const auto known =
        std::ranges::find_if(prepared_, [&](const SparseEncoding& each) { return each.part.tensors == part.tensors; });
    SparseEncoding& encoding = known != prepared_.end() ? *known : prepared_.emplace_back(SparseEncoding{.part = part});
    return encoder_->EncodeNext(encoding);
  }

  absl::Status Begin(ExchangePart part) override {
    if (!prepared_.empty() && prepared_.front().part.tensors == part.tensors) {
      own_ = std::move(prepared_.front());
      prepared_.pop_front();
    } else {
      own_ = {.part = std::move(part)};
    }
    if (in_host_) host_.Begin(own_.part);
    round_ = in_host_ ? Round::kInHost : Round::kAnnounce;
    sent_bytes_ = 0;
    return encoder_->Begin(own_);
  }

  absl::StatusOr<bool> Ready() override { return encoder_->Ready(); }
  std::string Awaited() const override { return encoder_->Awaited(); }

  absl::StatusOr<std::optional<Call>> Next() override {
    within_host_ = false;
    switch (round_) {
      case Round::kInHost:
        if (auto call = host_.Next()) {
          within_host_ = true;
          return call;
        }
        own_.plain = host_.TakePlain();
        [[fallthrough]];
      case Round::kAnnounce:
        while (encoder_->EncodeNext(own_)) {
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
        RETURN_IF_ERROR(split_.Sum(received_, sizes_));
        round_ = global_ ? Round::kChoice : Round::kRegions;
        return global_ ? DescribeSums() : AnnounceSums();
      case Round::kChoice:
        split_.ChooseSums(received_);
        round_ = Round::kRegions;
        return AnnounceSums();
      case Round::kRegions:
        RETURN_IF_ERROR(ReadSums());
        round_ = global_ && compression::IsUneven(sizes_) ? Round::kEvened : Round::kEnd;
        return round_ == Round::kEvened ? EvenOut() : Gather(split_.sum(), sizes_);
      case Round::kEvened: round_ = Round::kEnd; return Gather(sent_, evened_.held);
      case Round::kEnd: break;
    }
    RETURN_IF_ERROR(splits_ ? DeliverSums() : AddAll());
    RETURN_IF_ERROR(encoder_->DeliverPlain(own_.part, plain_));
    return std::nullopt;
  }

  int64_t sent_bytes() const override { return sent_bytes_; }

  std::vector<compression::StateArrays> state() override { return in_host_ ? host_.HandOver() : encoder_->state(); }
  std::vector<uint32_t> common() const override { return split_.SaveCuts(); }
  bool TakeCommon(std::span<const uint32_t> words) override { return split_.RestoreCuts(words); }

 private:
  enum class Round { kInHost, kAnnounce, kPayloads, kSlices, kSums, kChoice, kRegions, kEvened, kEnd };
  using Length = SparseEncoding::Length;

  // Of `bytes`, which `rank` has sent, each covered gradient's payload.
  absl::Status FindPayloads(int rank, std::span<const std::byte> bytes, std::vector<SparseAddend>& found) {
    for (size_t i = 0; i < own_.part.tensors.size(); ++i) {
      const std::span<float> values = own_.part.values[i];
      const auto piece = pieces_.Of(std::ssize(values), pieces_.local(rank));
      if (encoder_->goes_plain(own_.part, i) || piece.count == 0) continue;
      if (bytes.size() < sizeof(Length)) return absl::DataLossError("compressed gradients are cut short");
      const auto length = size_t{Load<Length>(bytes.data())};
      bytes = bytes.subspan(sizeof(Length));
      if (bytes.size() < length) return absl::DataLossError("compressed gradients are cut short");
      found.push_back({rank, own_.part.tensors[i], piece.of(values), bytes.first(length)});
      bytes = bytes.subspan(length);
    }
    return bytes.empty() ? absl::OkStatus() : absl::DataLossError("compressed gradients have bytes left over");
  }

  absl::Status BeginSplit() {
    std::vector<std::span<float>> covered;
    std::vector<int64_t> wanted;
    int64_t elements = 0;
    for (size_t i = 0; i < own_.part.tensors.size(); ++i) {
      if (encoder_->goes_plain(own_.part, i)) continue;
      covered.push_back(own_.part.values[i]);
      wanted.push_back(encoder_->Wanted(own_.part.tensors[i]));
      elements += std::ssize(covered.back());
    }
    splits_ = may_split_ && !covered.empty() && SparseSplit::Fits(elements);
    if (!splits_) return absl::OkStatus();
    split_.Begin(own_.part.tensors, std::move(covered), std::move(wanted));
    addends_.clear();
    RETURN_IF_ERROR(FindPayloads(settings_.rank, own_.payloads, addends_));
    for (const SparseAddend& each : addends_) {
      RETURN_IF_ERROR(Annotate(split_.Add(each.values, each.payload), encoder_->NameOf(each.tensor)));
    }
    split_.Cut();
    return absl::OkStatus();
  }

  // --- The first call ---

  // u64 bytes of what follows later; where sums are split also i64 where the receiver's region should begin.
  size_t announcement_bytes() const { return splits_ ? 16 : 8; }

  Call Announce() {
    plain_.Begin(encoder_->KindOf(own_.part), std::move(own_.plain), std::move(own_.kept),
                 encoder_->PlainTotals(own_.part));
    sent_.clear();
    counts_.clear();
    for (int rank = 0; rank < settings_.ranks; ++rank) {
      const size_t at = sent_.size();
      const auto bytes = splits_ ? static_cast<uint64_t>(split_.slice_bytes()[static_cast<size_t>(rank)])
                                 : uint64_t{own_.payloads.size()};
      sent_.resize(at + announcement_bytes() + static_cast<size_t>(plain_.bytes_to(rank)));
      Store(&sent_[at], bytes);
      if (splits_) Store(&sent_[at + 8], split_.ProposedCut(rank));
      plain_.Encode(rank, sent_.data() + at + announcement_bytes());
      counts_.push_back(static_cast<int64_t>(sent_.size() - at));
    }
    receive_counts_.clear();
    for (int rank = 0; rank < settings_.ranks; ++rank) {
      receive_counts_.push_back(static_cast<int64_t>(announcement_bytes()) + plain_.bytes_from(rank));
    }
    received_.resize(Sum(receive_counts_));
    return Counted({.kind = CallKind::kAllToAll,
                    .in = BytesView(sent_),
                    .out = BytesView(received_),
                    .counts = counts_,
                    .receive_counts = receive_counts_});
  }

  absl::Status ReadAnnouncements() {
    const std::byte* from = received_.data();
    int64_t cut = 0;
    for (size_t rank = 0; rank < sizes_.size(); from += receive_counts_[rank++]) {
      RETURN_IF_ERROR(ReadSize(rank, from));
      if (splits_) cut += std::clamp<int64_t>(Load<int64_t>(from + 8), 0, UINT32_MAX);
      plain_.Add(static_cast<int>(rank), from + announcement_bytes());
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

  static size_t Sum(const std::vector<int64_t>& counts) {
    return static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  }

  Call Counted(const Call& call) {
    sent_bytes_ += call.in.count;
    return call;
  }

  // `bytes`: from each rank.
  Call Gather(std::vector<std::byte>& own, const std::vector<int64_t>& bytes) {
    received_.resize(Sum(bytes));
    return Counted({.kind = CallKind::kAllGather, .in = BytesView(own), .out = BytesView(received_), .counts = bytes});
  }

  // --- Few ranks ---

  Call GatherPayloads() {
    sent_.resize(static_cast<size_t>(plain_.sum_bytes(settings_.rank)));
    plain_.EncodeSum(sent_.data());
    sent_.insert(sent_.end(), own_.payloads.begin(), own_.payloads.end());
    for (size_t rank = 0; rank < sizes_.size(); ++rank) sizes_[rank] += plain_.sum_bytes(static_cast<int>(rank));
    return Gather(sent_, sizes_);
  }

  absl::Status AddAll() {
    std::span<const std::byte> rest = received_;
    addends_.clear();
    for (int rank = 0; rank < settings_.ranks; ++rank) {
      const auto size = static_cast<size_t>(sizes_[static_cast<size_t>(rank)]);
      const auto plain = static_cast<size_t>(plain_.sum_bytes(rank));
      plain_.DecodeSum(rank, rest.data());
      RETURN_IF_ERROR(
          Annotate(FindPayloads(rank, rest.subspan(plain, size - plain), addends_), absl::StrCat("from rank ", rank)));
      rest = rest.subspan(size);
    }
    return encoder_->Add(addends_);
  }

  // --- Many ranks ---

  Call SendSlices() {
    counts_.assign(split_.slice_bytes().begin(), split_.slice_bytes().end());
    received_.resize(Sum(sizes_));
    return Counted({.kind = CallKind::kAllToAll,
                    .in = BytesView(split_.slices()),
                    .out = BytesView(received_),
                    .counts = counts_,
                    .receive_counts = sizes_});
  }

  Call DescribeSums() {
    sent_ = split_.DescribeSums();
    counts_ = split_.DescriptionBytes();
    return Gather(sent_, counts_);
  }

  Call AnnounceSums() {
    split_.EncodeSums();
    counts_.clear();
    for (int rank = 0; rank < settings_.ranks; ++rank) counts_.push_back(16 + plain_.sum_bytes(rank));
    sent_.resize(static_cast<size_t>(counts_[static_cast<size_t>(settings_.rank)]));
    Store(sent_.data(), uint64_t{split_.sum().size()});
    Store(&sent_[8], cut_);
    plain_.EncodeSum(sent_.data() + 16);
    return Gather(sent_, counts_);
  }

  absl::Status ReadSums() {
    const std::byte* from = received_.data();
    for (size_t rank = 0; rank < sizes_.size(); from += counts_[rank++]) {
      RETURN_IF_ERROR(ReadSize(rank, from));
      cuts_[rank] = Load<int64_t>(from + 8);
      plain_.DecodeSum(static_cast<int>(rank), from + 16);
    }
    return absl::OkStatus();
  }

  absl::Status DeliverSums() {
    RETURN_IF_ERROR(split_.Deliver(received_, sizes_, cuts_,
                                   [this](const SparseSplit::Results& results) { encoder_->Place(results); }));
    return encoder_->TakeBack(own_, split_);
  }

  // From now on sent_ is this rank's share of all.
  Call EvenOut() {
    evened_ = compression::EvenOut(sizes_, settings_.rank);
    sent_.resize(static_cast<size_t>(evened_.held[static_cast<size_t>(settings_.rank)]));
    return Counted({.kind = CallKind::kAllToAll,
                    .in = BytesView(split_.sum()),
                    .out = BytesView(sent_),
                    .counts = evened_.given,
                    .receive_counts = evened_.taken});
  }

  const ExchangeSettings settings_;
  const HostPieces pieces_;  // each rank a host of its own where none reduce in theirs
  const bool in_host_;
  const bool may_split_, global_;
  const std::shared_ptr<CodecDevice> device_;
  const std::unique_ptr<SparseEncoder> encoder_;
  HostGradients host_;
  std::deque<SparseEncoding> prepared_;  // parts to come
  SparseEncoding own_;                   // the part that was begun
  bool splits_ = false;                  // likewise
  bool within_host_ = false;             // the call that Next gave last
  Round round_ = Round::kAnnounce;
  PlainPart plain_;
  SparseSplit split_;
  compression::Evened evened_;
  int64_t sent_bytes_ = 0;
  std::vector<std::byte> sent_, received_;
  std::vector<int64_t> counts_, receive_counts_;
  std::vector<int64_t> sizes_;  // of what each rank sends next
  std::vector<int64_t> cuts_;   // where regions begin in the next step
  int64_t cut_ = 0;             // this rank's
  std::vector<SparseAddend> addends_;
};

// A rank's clipping is by the norm of its own gradient: then each counts as a host of its own.
std::vector<int> HostsOfCall(const Compression& compression, const ExchangeSettings& settings) {
  const auto* const dgc = std::get_if<Dgc>(&compression);
  const bool apart =
      settings.hosts.empty() || std::ranges::max(settings.hosts) == 0 || (dgc != nullptr && dgc->clip > 0);
  if (!apart) return settings.hosts;
  std::vector<int> hosts(static_cast<size_t>(settings.ranks));
  std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CompressedExchange>> MakeSparseExchange(const Compression& compression,
                                                                       ExchangeSettings settings,
                                                                       std::shared_ptr<CodecDevice> device) {
  const HostPieces pieces(HostsOfCall(compression, settings));
  ASSIGN_OR_RETURN(auto encoder, device->MakeSparseEncoder(compression, settings, pieces));
  return std::make_unique<SparseExchange>(compression, std::move(settings), pieces, std::move(device),
                                          std::move(encoder));
}

}  // namespace gyre::internal
