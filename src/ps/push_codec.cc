#include "ps/push_codec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compression/accumulate.h"
#include "compression/payload.h"

namespace gyre::ps {

namespace {

// The same draws at every worker and in every partition would not average out.
Compression Scattered(Compression compression, int worker, size_t partition) {
  if (auto* const ternary = std::get_if<Ternary>(&compression)) {
    ternary->seed ^= (static_cast<uint64_t>(worker + 1) * 0x9e3779b97f4a7c15) ^ (partition * 0xd6e8feb86659fd93);
  }
  return compression;
}

}  // namespace

absl::StatusOr<PushCodec> PushCodec::Create(const PushCompression& options, const Layout& layout, int worker) {
  const auto* const dgc = std::get_if<Dgc>(&options.compression);
  const bool none = std::holds_alternative<NoCompression>(options.compression);
  PushCodec made(dgc != nullptr ? std::optional(*dgc) : std::nullopt, options.workers);
  if (made.dgc_) made.dgc_->non_finite = Dgc::NonFinite::kDrop;  // BeginStep refuses, before anything has changed
  RETURN_IF_ERROR(compression::MakeCodec(options.compression, 0).status());
  for (const Partition& partition : layout.partitions()) {
    const auto tensor = static_cast<size_t>(partition.tensor);
    Entry& entry = made.entries_.emplace_back();
    entry.dense = tensor < options.dense.size() && options.dense[tensor];
    if (partition.table >= 0) entry.dense = true;  // its rows are pushed as they are, past this
    if (made.dgc_) {
      auto codec = std::make_unique<compression::DgcTensor>(*made.dgc_, partition.count,
                                                            compression::CodecOptions().link_bytes_per_second);
      entry.dgc = codec.get();
      entry.codec = std::move(codec);
    } else if (!none && !entry.dense) {
      const Compression own = Scattered(options.compression, worker, made.entries_.size());
      ASSIGN_OR_RETURN(entry.codec, compression::MakeCodec(own, partition.count));
    }
  }
  if (dgc != nullptr) made.dgc_->non_finite = dgc->non_finite;
  return made;
}

absl::Status PushCodec::BeginStep(uint64_t step, std::span<const float> gradient) {
  step_ = static_cast<int64_t>(step);
  if (!dgc_) return absl::OkStatus();
  const bool refuses = dgc_->non_finite == Dgc::NonFinite::kRefuse;
  const auto squares = refuses || dgc_->clip > 0 ? compression::SumOfSquares(gradient) : compression::Squares{};
  if (refuses && squares.non_finite > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(squares.non_finite, " elements of the gradient are NaN or infinite"));
  }
  const double sparsity = compression::SparsityAt(*dgc_, step_);
  const float scale = compression::ClipScale(*dgc_, std::sqrt(squares.sum), workers_);
  for (Entry& entry : entries_) entry.dgc->Set(entry.dense ? 0 : sparsity, scale);
  return absl::OkStatus();
}

PushCodec::Encoded PushCodec::Encode(size_t partition, std::span<const float> gradient) {
  const Entry& entry = entries_[partition];
  const Encoded plain{.bytes = std::as_bytes(gradient), .steady = true};
  if (entry.codec == nullptr) return plain;
  // Its size is the codec's, and what is not finite is not refused here: it cannot fail.
  if (!entry.codec->Encode(gradient, step_, payload_).ok()) return plain;
  if (WordsOf(payload_.size()) < gradient.size()) {
    const auto header = compression::LoadHeader(payload_);
    return {.bytes = payload_, .payload = true, .steady = header->kind < compression::PayloadKind::kSparse};
  }
  floats_.assign(gradient.size(), 0.0f);
  decoder_.DecodeAdd(payload_, 1, floats_).IgnoreError();  // it was encoded just now
  return {.bytes = std::as_bytes(std::span(floats_)), .steady = true};
}

Floats PushDecoder::Decode(Bytes payload, size_t count) {
  Floats gradient = Make(count);
  std::ranges::fill(gradient.writable(), 0.0f);
  return decoder_.DecodeAdd(payload, 1, gradient.writable()).ok() ? gradient : Floats();
}

Floats PushDecoder::Make(size_t count) {
  constexpr size_t kMostKept = 64;  // of 4 MiB at most
  const auto free =
      std::ranges::find_if(made_, [count](const Floats& each) { return each.unshared() && each.size() == count; });
  if (free != made_.end()) return *free;
  Floats gradient(count);
  if (made_.size() < kMostKept) made_.emplace_back();
  made_[next_++ % kMostKept] = gradient;
  return gradient;
}

}  // namespace gyre::ps
