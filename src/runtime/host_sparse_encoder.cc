#include "runtime/host_sparse_encoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compression/dgc.h"
#include "compression/payload.h"

namespace gyre::internal {

using compression::DgcTensor;
using compression::PayloadKind;

absl::StatusOr<std::unique_ptr<SparseEncoder>> HostSparseEncoder::Create(const Compression& compression,
                                                                         const ExchangeSettings& settings,
                                                                         const HostPieces& pieces) {
  Codecs codecs;
  for (const ExchangeTensor& tensor : settings.tensors) {
    codecs.emplace_back();
    if (!tensor.covered) continue;
    ASSIGN_OR_RETURN(codecs.back(),
                     compression::MakeCodec(compression, pieces.Of(tensor.count, pieces.local(settings.rank)).count,
                                            {.link_bytes_per_second = settings.link_bytes_per_second}));
  }
  return std::unique_ptr<SparseEncoder>(new HostSparseEncoder(compression, settings, pieces, std::move(codecs)));
}

HostSparseEncoder::HostSparseEncoder(const Compression& compression, const ExchangeSettings& settings,
                                     const HostPieces& pieces, Codecs codecs)
    : SparseEncoder(compression, settings, pieces), codecs_(std::move(codecs)) {
  for (size_t i = 0; i < settings.tensors.size(); ++i) {
    kept_.emplace_back(keeps_plain(static_cast<int>(i)) ? pieces.Of(settings.tensors[i].count, local()).count : 0);
  }
}

absl::Status HostSparseEncoder::Flush(const ExchangePart& part) {
  for (size_t i = 0; i < part.tensors.size(); ++i) {
    if (covers(part.tensors[i])) RETURN_IF_ERROR(FlushPiece(part.tensors[i], part.values[i]));
  }
  return absl::OkStatus();
}

absl::Status HostSparseEncoder::FlushPiece(int tensor, std::span<float> values) {
  compression::Codec& codec = *codecs_[static_cast<size_t>(tensor)];
  if (!dgc()) {
    const std::span<float> kept = codec.state()[0];
    for (size_t i = 0; i < kept.size(); ++i) {
      values[i] += kept[i];
      kept[i] = 0;
    }
    return absl::OkStatus();
  }
  auto& accumulator = static_cast<DgcTensor&>(codec);
  accumulator.Set(0, clip_scale());
  RETURN_IF_ERROR(Annotate(accumulator.EncodeAndClear(values, step(), payload_), NameOf(tensor)));
  return decoder_.DecodeAdd(payload_, 1, values);
}

bool HostSparseEncoder::EncodeNext(SparseEncoding& to) {
  if (!to.status.ok() || to.done == to.part.tensors.size()) return false;
  const int tensor = to.part.tensors[to.done];
  const std::span<float> values = to.part.values[to.done];
  const std::span<float> own = pieces().Of(std::ssize(values), local()).of(values);
  if (goes_plain(to.part, to.done)) {
    if (!pieces().reduces()) to.plain.insert(to.plain.end(), values.begin(), values.end());
    const auto piece = std::span(to.plain).subspan(to.flushed, own.size());
    if (covers(tensor)) to.status = FlushPiece(tensor, piece);
    to.flushed += own.size();
    if (KindOf(to.part) != PayloadKind::kF32) {
      const auto kept = kept_[static_cast<size_t>(tensor)].span();
      to.kept.insert(to.kept.end(), kept.begin(), kept.end());
    }
  } else {
    if (!own.empty()) to.status = EncodePayload(tensor, own, to);
    std::fill(values.data(), own.data(), 0.0f);  // what others answer for
    std::fill(own.data() + own.size(), values.data() + values.size(), 0.0f);
  }
  ++to.done;
  return to.status.ok();
}

absl::Status HostSparseEncoder::EncodePayload(int tensor, std::span<float> values, SparseEncoding& to) {
  compression::Codec& codec = *codecs_[static_cast<size_t>(tensor)];
  auto* const accumulator = dgc() ? static_cast<DgcTensor*>(&codec) : nullptr;
  if (accumulator != nullptr) accumulator->Set(sparsity(), clip_scale());
  RETURN_IF_ERROR(Annotate(codec.EncodeAndClear(values, step(), payload_), NameOf(tensor)));
  const size_t at = to.payloads.size();
  to.payloads.resize(at + sizeof(SparseEncoding::Length) + payload_.size());
  compression::Store(&to.payloads[at], static_cast<SparseEncoding::Length>(payload_.size()));
  std::memcpy(&to.payloads[at + sizeof(SparseEncoding::Length)], payload_.data(), payload_.size());
  if (accumulator != nullptr && dgc()->global) {
    const auto momenta = accumulator->momenta();
    to.momenta.insert(to.momenta.end(), momenta.begin(), momenta.end());
  }
  return absl::OkStatus();
}

absl::Status HostSparseEncoder::Add(std::span<const SparseAddend> all) {
  for (const SparseAddend& each : all) {
    if (absl::Status added = decoder_.DecodeAdd(each.payload, settings().scale(), each.values); !added.ok()) {
      return Annotate(added, absl::StrCat("from rank ", each.rank, ": ", NameOf(each.tensor)));
    }
  }
  return absl::OkStatus();
}

absl::Status HostSparseEncoder::DeliverPlain(const ExchangePart& part, const PlainPart& plain) {
  for (int piece = 0; piece < pieces().pieces(); ++piece) {
    auto from = plain.elements(piece).begin();
    ForEachPlain(part, piece, [&](size_t, std::span<float> values) {
      std::copy_n(from, values.size(), values.begin());
      from += std::ssize(values);
    });
  }
  if (plain.kept().empty()) return absl::OkStatus();
  auto kept = plain.kept().begin();
  ForEachPlain(part, local(), [&](size_t i, std::span<float> values) {
    std::copy_n(kept, values.size(), ArraysOf(part.tensors[i])[0].data());
    kept += std::ssize(values);
  });
  return absl::OkStatus();
}

void HostSparseEncoder::Place(const SparseSplit::Results& results) {
  for (size_t i = 0; i < results.positions.size(); ++i) {
    results.to[static_cast<size_t>(int64_t{results.positions[i]} - results.begin)] = results.values[i];
  }
}

absl::Status HostSparseEncoder::TakeBack(const SparseEncoding& from, const SparseSplit& split) {
  std::vector<compression::StateArrays> kept;  // by covered gradient
  for (size_t i = 0; i < from.part.tensors.size(); ++i) {
    if (!goes_plain(from.part, i)) kept.push_back(ArraysOf(from.part.tensors[i]));
  }
  for (const SparseSplit::Returned& each : split.returned()) {
    const auto& arrays = kept[each.tensor];
    arrays.back()[each.element] += each.value;
    if (each.entry < from.momenta.size()) arrays.front()[each.element] = from.momenta[each.entry];
  }
  return absl::OkStatus();
}

compression::StateArrays HostSparseEncoder::ArraysOf(int tensor) {
  const auto i = static_cast<size_t>(tensor);
  if (codecs_[i] != nullptr) return codecs_[i]->state();
  if (plain_kind() == PayloadKind::kF32) return {};
  return {kept_[i].span()};
}

}  // namespace gyre::internal
