#include "runtime/gpu_sparse_encoder.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compression/codec.h"
#include "compression/payload.h"
#include "compression/sparse_codec.h"
#include "device/gpu_codecs.h"
#include "device/pack_table.h"

namespace gyre::internal {

namespace {

using device::kernels::SparseDecoding;
using device::kernels::SparseValues;

constexpr int64_t kValueBytes = sizeof(float);
constexpr auto kRandomHeader = int64_t{compression::kRandomHeaderBytes};
constexpr double kSomeSparsity = 0.999;  // of memory for steps that never come

static_assert(static_cast<int>(ValueType::kF16) == static_cast<int>(SparseValues::kF16));
static_assert(static_cast<int>(ValueType::kBF16) == static_cast<int>(SparseValues::kBF16));

constexpr int64_t Aligned(int64_t bytes) {
  return (bytes + 15) / 16 * 16;
}

bool IsSampled(const Compression& compression) {
  const auto* const top = std::get_if<TopK>(&compression);
  return top != nullptr && top->sampled;
}

template <typename Number>
Number* At(std::byte* base, int64_t offset) {
  return reinterpret_cast<Number*>(base + offset);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SparseEncoder>> GpuSparseEncoder::Create(GpuCodecDevice& device,
                                                                        const Compression& compression,
                                                                        const ExchangeSettings& settings,
                                                                        const HostPieces& pieces) {
  std::unique_ptr<GpuSparseEncoder> made(new GpuSparseEncoder(device, compression, settings, pieces));
  RETURN_IF_ERROR(made->Open());
  return std::unique_ptr<SparseEncoder>(std::move(made));
}

GpuSparseEncoder::GpuSparseEncoder(GpuCodecDevice& device, const Compression& compression,
                                   const ExchangeSettings& settings, const HostPieces& pieces)
    : SparseEncoder(compression, settings, pieces),
      device_(device),
      values_(static_cast<SparseValues>(ValuesOf(compression))),
      global_(IsGlobal(compression)),
      sampled_(IsSampled(compression)),
      sums_(device),
      outgoing_(device.MakeParcel()),
      incoming_(device.MakeParcel()),
      plain_results_(device.MakeParcel()),
      faults_(device.MakeParcel()) {
  if (const auto* const random = std::get_if<RandomK>(&compression)) random_ = *random;
}

// Of a covered gradient u, where there is momentum, and v.
absl::Status GpuSparseEncoder::Open() {
  for (size_t i = 0; i < settings().tensors.size(); ++i) {
    const ExchangeTensor& tensor = settings().tensors[i];
    size_t kept = tensor.covered || keeps_plain(static_cast<int>(i)) ? 1 : 0;
    if (tensor.covered && dgc()) kept = 2;
    auto& arrays = arrays_.emplace_back(kept);
    for (auto& array : arrays) {
      if (tensor.count == 0) continue;
      ASSIGN_OR_RETURN(array, device_.Keep(tensor.count));
    }
  }
  return absl::OkStatus();
}

GpuSparseEncoder::~GpuSparseEncoder() {
  if (device_.Rests()) return;
  for (auto& [tensors, known] : known_) {
    if (known.selector != nullptr) known.selector->Abandon();
  }
}

// --- What the GPU has of a part ---

absl::StatusOr<GpuSparseEncoder::Known*> GpuSparseEncoder::Know(const ExchangePart& part) {
  if (const auto found = known_.find(part.tensors); found != known_.end()) return &found->second;
  Known known;
  RETURN_IF_ERROR(MakeTables(part, known));
  RETURN_IF_ERROR(MakeSelector(part, known));  // last: to free it again would wait for the GPU
  return &(known_[part.tensors] = std::move(known));
}

absl::Status GpuSparseEncoder::MakeSelector(const ExchangePart& part, Known& known) {
  std::vector<device::GpuDgcTensor> tensors;
  for (size_t i = 0; i < part.tensors.size(); ++i) {
    if (goes_plain(part, i)) continue;
    const auto& arrays = arrays_[static_cast<size_t>(part.tensors[i])];
    known.covered.push_back(i);
    tensors.push_back({.momentum = dgc() ? arrays.front().data() : nullptr,
                       .velocity = arrays.back().data(),
                       .gradient = part.values[i].data(),
                       .count = std::ssize(part.values[i])});
  }
  if (tensors.empty()) return absl::OkStatus();
  const double least = random_ ? 1 : LeastSparsity();
  const device::GpuDgcOptions options{
      .least_sparsity = least < 1 ? least : kSomeSparsity, .gives_momenta = global_, .sampled = sampled_};
  auto made = device::GpuDgc::Create(device_.gpu(), tensors, options);
  if (!made.ok()) return device_.Named(Annotate(made.status(), "what gradients' elements are chosen by"));
  known.selector = *std::move(made);
  return absl::OkStatus();
}

absl::Status GpuSparseEncoder::MakeTables(const ExchangePart& part, Known& known) {
  std::vector<std::span<float>> plain, kept;
  for (size_t i = 0; i < part.tensors.size(); ++i) {
    if (!goes_plain(part, i) || part.values[i].empty()) continue;
    plain.push_back(part.values[i]);
    known.plain_count += std::ssize(part.values[i]);
    for (const auto array : arrays_[static_cast<size_t>(part.tensors[i])]) kept.push_back(array);
  }
  ASSIGN_OR_RETURN(known.plain, Upload(plain));
  ASSIGN_OR_RETURN(known.plain_kept, Upload(kept));
  return absl::OkStatus();
}

// By which tensors are copied to one place, one after the other, and back. Null: there are none.
absl::StatusOr<GpuSparseEncoder::Table> GpuSparseEncoder::Upload(const std::vector<std::span<float>>& tensors) {
  if (tensors.empty()) return nullptr;
  std::vector<device::Segment> segments;
  int64_t first = 0;
  for (const std::span<float> tensor : tensors) {
    segments.push_back({.data = tensor.data(), .count = std::ssize(tensor), .first = first});
    first += std::ssize(tensor);
  }
  ASSIGN_OR_RETURN(device::PackTable table, device::MakePackTable(segments, DType::kF32));
  auto uploaded = device_.gpu().Upload(std::move(table), device_.stream());
  if (!uploaded.ok()) return device_.Named(uploaded.status());
  return uploaded;
}

// --- Sending ---

GpuSparseEncoder::Places GpuSparseEncoder::PlacesOf(const ExchangePart& part, const Known& known) const {
  Places places;
  places.kept = Aligned(known.plain_count * kValueBytes);
  places.sizes = places.kept + (known.plain_kept != nullptr ? Aligned(known.plain_count * kValueBytes) : 0);
  places.end = places.sizes + Aligned(std::ssize(known.covered) * int64_t{sizeof(uint64_t)});
  for (const size_t i : known.covered) {
    places.payloads.push_back(places.end);
    places.end += Aligned(MostBytes(part.tensors[i]));
  }
  return places;
}

// Of its payload; exactly so many where elements are drawn by lot.
int64_t GpuSparseEncoder::MostBytes(int tensor) const {
  const int64_t wanted = Wanted(tensor);
  if (random_) return kRandomHeader + wanted * kValueBytes;
  const int64_t count = settings().tensors[static_cast<size_t>(tensor)].count;
  return device::MostSparseBytes(count, sampled_ ? std::min(2 * wanted, count) : wanted, values_);
}

device::kernels::DgcStep GpuSparseEncoder::StepOf(bool selects) const {
  device::kernels::DgcStep step{.sparsity = sparsity(), .scale = clip_scale(), .clear = selects, .select = selects};
  step.seed = static_cast<uint64_t>(this->step());
  if (!dgc()) return step;
  step.factor = dgc()->momentum;
  step.nesterov = dgc()->nesterov;
  step.masked = dgc()->factor_masking;
  return step;
}

absl::Status GpuSparseEncoder::Begin(const SparseEncoding& to) {
  ASSIGN_OR_RETURN(const Known* const known, Know(to.part));
  places_ = PlacesOf(to.part, *known);
  RETURN_IF_ERROR(outgoing_->Resize(places_.end));
  sums_.Begin();
  if (known->selector != nullptr) {
    RETURN_IF_ERROR(device_.Named(random_ ? EncodeRandom(to.part, *known) : Encode(*known)));
  }
  std::byte* const there = outgoing_->there();
  for (const auto& [table, place] :
       {std::pair(known->plain.get(), int64_t{0}), std::pair(known->plain_kept.get(), places_.kept)}) {
    if (table == nullptr) continue;
    RETURN_IF_ERROR(device_.Named(device_.gpu().Pack(*table, there + place, 1, device_.stream())));
  }
  return outgoing_->Bring();
}

// One pass over the gradients, which are cleared in it.
absl::Status GpuSparseEncoder::Encode(const Known& known) {
  RETURN_IF_ERROR(known.selector->Step(StepOf(true), device_.stream()));
  std::vector<device::kernels::SparseEncoding> tasks;
  for (size_t k = 0; k < known.covered.size(); ++k) {
    std::byte* const out = outgoing_->there() + places_.payloads[k];
    auto* const size = At<uint64_t>(outgoing_->there(), places_.sizes) + k;
    tasks.push_back(known.selector->encoding(static_cast<int>(k), out, size));
  }
  return device_.gpu().codecs().EncodeSparse(tasks, values_, device_.stream());
}

// Gradients are accumulated likewise; headers are the host's to write.
absl::Status GpuSparseEncoder::EncodeRandom(const ExchangePart& part, const Known& known) {
  RETURN_IF_ERROR(known.selector->Step({.clear = true, .select = false}, device_.stream()));
  for (size_t k = 0; k < known.covered.size(); ++k) {
    const int tensor = part.tensors[known.covered[k]];
    const std::span<float> kept = arrays_[static_cast<size_t>(tensor)].back();
    auto* const values = At<float>(outgoing_->there(), places_.payloads[k] + kRandomHeader);
    RETURN_IF_ERROR(
        device_.gpu().codecs().TakeRandom({compression::RandomSeed(*random_, step()), Wanted(tensor), std::ssize(kept)},
                                          kept.data(), values, device_.stream()));
  }
  return absl::OkStatus();
}

bool GpuSparseEncoder::EncodeNext(SparseEncoding& to) {
  to.status = Collect(to);
  return false;
}

// REQUIRES: Ready
absl::Status GpuSparseEncoder::Collect(SparseEncoding& to) const {
  const Known& known = known_.at(to.part.tensors);
  std::byte* const here = outgoing_->here();
  const auto floats = [&](int64_t place) {
    const auto* const begin = At<float>(here, place);
    return std::vector<float>(begin, begin + known.plain_count);
  };
  to.done = to.part.tensors.size();
  if (known.plain != nullptr) to.plain = floats(0);
  if (known.plain_kept != nullptr) to.kept = floats(places_.kept);
  for (size_t k = 0; k < known.covered.size(); ++k) {
    const int tensor = to.part.tensors[known.covered[k]];
    if (random_) {
      compression::StoreRandomHeader(here + places_.payloads[k], settings().tensors[static_cast<size_t>(tensor)].count,
                                     compression::RandomSeed(*random_, step()), Wanted(tensor));
    }
    const auto size = random_ ? static_cast<uint64_t>(MostBytes(tensor)) : At<uint64_t>(here, places_.sizes)[k];
    const int64_t next = k + 1 < known.covered.size() ? places_.payloads[k + 1] : places_.end;
    if (size > static_cast<uint64_t>(next - places_.payloads[k])) {
      return device_.Named(absl::InternalError(absl::StrCat(size, " bytes of a payload that is shorter")));
    }
    const auto length = static_cast<SparseEncoding::Length>(size);
    const size_t at = to.payloads.size();
    to.payloads.resize(at + sizeof length + length);
    compression::Store(&to.payloads[at], length);
    std::memcpy(&to.payloads[at + sizeof length], here + places_.payloads[k], length);
  }
  return absl::OkStatus();
}

// Without a choice: what the GPU has of a part for that is not needed but to accumulate.
absl::Status GpuSparseEncoder::Flush(const ExchangePart& part) {
  if (std::ranges::none_of(part.tensors, [this](int tensor) { return covers(tensor); })) return absl::OkStatus();
  if (dgc()) return FlushVelocities(part);
  for (size_t i = 0; i < part.tensors.size(); ++i) {
    if (!covers(part.tensors[i])) continue;
    RETURN_IF_ERROR(device_.Move(arrays_[static_cast<size_t>(part.tensors[i])].back(), part.values[i]));
  }
  return absl::OkStatus();
}

// All of what is accumulated; what rounding takes away stays.
absl::Status GpuSparseEncoder::FlushVelocities(const ExchangePart& part) {
  ASSIGN_OR_RETURN(const Known* const known, Know(part));
  if (known->selector == nullptr) return absl::InternalError("what is accumulated has no place in a dense bucket");
  RETURN_IF_ERROR(device_.Named(known->selector->Step(StepOf(false), device_.stream())));
  for (const size_t i : known->covered) {
    const std::span<float> values = part.values[i];
    const std::span<float> kept = arrays_[static_cast<size_t>(part.tensors[i])].back();
    ASSIGN_OR_RETURN(const std::span<float> scratch, device_.Scratch(std::ssize(values)));
    auto* const sent = reinterpret_cast<std::byte*>(scratch.data());
    RETURN_IF_ERROR(device_.Quantize(plain_kind(), nullptr, kept.data(), std::ssize(kept), 0, sent));
    RETURN_IF_ERROR(device_.Zero(values));
    RETURN_IF_ERROR(device_.DequantizeAdd(plain_kind(), sent, std::ssize(values), 1, values.data()));
  }
  return absl::OkStatus();
}

// --- Receiving ---

absl::Status GpuSparseEncoder::Add(std::span<const SparseAddend> all) {
  if (all.empty()) return absl::OkStatus();
  int64_t bytes = 0;
  for (const SparseAddend& each : all) bytes += std::ssize(each.payload);
  RETURN_IF_ERROR(incoming_->Resize(bytes));
  if (random_) return AddRandom(all);
  RETURN_IF_ERROR(faults_->Resize(std::ssize(all) * int64_t{sizeof(uint32_t)}));
  auto* const faults = At<uint32_t>(faults_->there(), 0);
  RETURN_IF_ERROR(device_.Named(device_.gpu().Zero(faults, faults_->size(), device_.stream())));
  std::vector<SparseDecoding> tasks;
  int64_t at = 0;
  for (const SparseAddend& each : all) {
    std::memcpy(incoming_->here() + at, each.payload.data(), each.payload.size());
    tasks.push_back({.from = incoming_->there() + at,
                     .bytes = each.payload.size(),
                     .count = std::ssize(each.values),
                     .sum = each.values.data(),
                     .fault = faults + tasks.size(),
                     .scale = settings().scale()});
    unchecked_.emplace_back(each.rank, each.tensor);
    at += std::ssize(each.payload);
  }
  RETURN_IF_ERROR(incoming_->Send());
  // Those of a rank are of different gradients; a gradient's are added up in the order of ranks.
  for (size_t begin = 0, end = 0; begin < tasks.size(); begin = end) {
    while (end < tasks.size() && all[end].rank == all[begin].rank) ++end;
    RETURN_IF_ERROR(device_.Named(
        device_.gpu().codecs().DecodeAddSparse(std::span(tasks).subspan(begin, end - begin), device_.stream())));
  }
  return faults_->Bring();
}

// The processor reads headers, so that nothing is wrong on the GPU. Payloads are of floats throughout: behind one
// another they stay aligned.
absl::Status GpuSparseEncoder::AddRandom(std::span<const SparseAddend> all) {
  std::vector<compression::RandomPayload> read;
  int64_t at = 0;
  for (const SparseAddend& each : all) {
    auto payload = compression::ReadRandom(each.payload, std::ssize(each.values));
    if (!payload.ok()) {
      return Annotate(payload.status(), absl::StrCat("from rank ", each.rank, ": ", NameOf(each.tensor)));
    }
    read.push_back(*payload);
    std::memcpy(incoming_->here() + at, each.payload.data(), each.payload.size());
    at += std::ssize(each.payload);
  }
  RETURN_IF_ERROR(incoming_->Send());
  at = 0;
  for (size_t i = 0; i < all.size(); at += std::ssize(all[i++].payload)) {
    const std::span<float> sum = all[i].values;
    RETURN_IF_ERROR(device_.Named(device_.gpu().codecs().AddRandom({read[i].seed, read[i].sent, std::ssize(sum)},
                                                                   At<float>(incoming_->there(), at + kRandomHeader),
                                                                   settings().scale(), sum.data(), device_.stream())));
  }
  return absl::OkStatus();
}

absl::Status GpuSparseEncoder::TakeBack(const SparseEncoding& from, const SparseSplit& split) {
  const Known& known = known_.at(from.part.tensors);
  std::vector<GpuSumLists::Kept> kept;
  for (size_t k = 0; k < known.covered.size(); ++k) {
    const auto& arrays = arrays_[static_cast<size_t>(from.part.tensors[known.covered[k]])];
    kept.push_back({.momentum = dgc() ? arrays.front().data() : nullptr,
                    .velocity = arrays.back().data(),
                    .momenta = known.selector->chosen(static_cast<int>(k)).momenta});
  }
  return sums_.Send(split, kept, *incoming_);
}

absl::StatusOr<bool> GpuSparseEncoder::Ready() {
  ASSIGN_OR_RETURN(const bool done, device_.Done());
  if (done) RETURN_IF_ERROR(CheckFaults());
  return done;
}

absl::Status GpuSparseEncoder::CheckFaults() {
  const auto unchecked = std::exchange(unchecked_, {});
  for (size_t i = 0; i < unchecked.size(); ++i) {
    const uint32_t fault = At<uint32_t>(faults_->here(), 0)[i];
    if (fault == device::kernels::kNoFault) continue;
    const auto [rank, tensor] = unchecked[i];
    const char* const what =
        fault == device::kernels::kUnread ? "positions in a code that GPUs do not read" : "damaged";
    return absl::DataLossError(absl::StrCat("from rank ", rank, ": ", NameOf(tensor), ": sparse payload: ", what));
  }
  return absl::OkStatus();
}

absl::Status GpuSparseEncoder::DeliverPlain(const ExchangePart& part, const PlainPart& plain) {
  const Known& known = known_.at(part.tensors);
  if (known.plain == nullptr) return absl::OkStatus();
  const int64_t bytes = known.plain_count * kValueBytes, kept = Aligned(bytes);
  const bool keeps = known.plain_kept != nullptr;
  RETURN_IF_ERROR(plain_results_->Resize(keeps ? 2 * kept : kept));
  std::memcpy(plain_results_->here(), plain.elements(0).data(), static_cast<size_t>(bytes));
  if (keeps) std::memcpy(plain_results_->here() + kept, plain.kept().data(), static_cast<size_t>(bytes));
  RETURN_IF_ERROR(plain_results_->Send());
  std::byte* const there = plain_results_->there();
  RETURN_IF_ERROR(device_.Named(device_.gpu().Unpack(*known.plain, there, 1, device_.stream())));
  if (!keeps) return absl::OkStatus();
  return device_.Named(device_.gpu().Unpack(*known.plain_kept, there + kept, 1, device_.stream()));
}

}  // namespace gyre::internal
