#include "runtime/compressor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "runtime/compression_state.h"
#include "runtime/compression_vote.h"
#include "runtime/reducer_agreement.h"

namespace gyre {

std::string_view CompressionUseText(CompressionUse use) {
  switch (use) {
    case CompressionUse::kNotAsked: break;
    case CompressionUse::kOneHost: return "dense: all ranks share the memory of one host";
    case CompressionUse::kNoneFits: return "dense: no gradient is large enough, or all are excluded";
    case CompressionUse::kByCost: return "each bucket as the network's measured speed suggests";
    case CompressionUse::kAsForced: return "compressed, as asked for";
  }
  return "no compression was asked for";
}

namespace internal {

namespace {

// What follows the name in Describe.
struct Options {
  std::string operator()(const Fp8& fp8) const { return fp8.format == Fp8::Format::kE4M3 ? "e4m3" : "e5m2"; }
  std::string operator()(const Ternary& /*its seed may differ*/) const { return ""; }
  std::string operator()(const TopK& top) const {
    return absl::StrFormat("%.17g sampled %d values %d global %d", top.sparsity, top.sampled,
                           static_cast<int>(top.values), top.global);
  }
  std::string operator()(const RandomK& random) const {
    return absl::StrFormat("%.17g seed %d", random.sparsity, random.seed);
  }
  std::string operator()(const PowerSgd& power) const { return absl::StrCat(power.rank); }
  std::string operator()(const Dgc& dgc) const {
    return absl::StrFormat(
        "%.17g momentum %.9g nesterov %d masking %d values %d global %d clip %.9g warmup %s by %d dense below %d "
        "dimensions, %d elements, %s; not finite %d",
        dgc.sparsity, dgc.momentum, dgc.nesterov, dgc.factor_masking, static_cast<int>(dgc.values), dgc.global,
        dgc.clip, absl::StrJoin(dgc.warmup, " "), dgc.warmup_steps, dgc.min_dimensions, dgc.min_elements,
        absl::CHexEscape(absl::StrJoin(dgc.dense_names, " ")), static_cast<int>(dgc.non_finite));
  }
  template <typename Other>
  std::string operator()(const Other& /*has none*/) const {
    return "";
  }
};

constexpr std::string_view kAlways = ":always";

bool Refuses(const Compression& compression) {
  const auto* const dgc = std::get_if<Dgc>(&compression);
  return dgc != nullptr && dgc->non_finite == Dgc::NonFinite::kRefuse;
}

// All ranks take the slowest's.
absl::StatusOr<CodecSpeed> AgreeOnSpeed(Communicator& communicator, const CodecSpeed& own, const CallOptions& options) {
  std::array<double, 2> slowest = {own.encode, own.decode};
  RETURN_IF_ERROR(communicator.AllReduce(slowest, {.op = ReduceOp::kMax, .timeout = options.timeout}));
  return CodecSpeed{slowest[0], slowest[1]};
}

NetworkShape ShapeOf(const CommunicatorState& ranks) {
  NetworkShape shape;
  const auto& team = ranks.team();
  if (team == nullptr) {
    shape.ranks = shape.most_local = ranks.group()->size();
    shape.bytes_per_second = std::numeric_limits<double>::infinity();
    return shape;
  }
  shape.hosts = team->hosts();
  shape.ranks = team->size();
  shape.most_local = team->most_local();
  if (const PathModel* const model = ranks.runtime().network_model(); model != nullptr) {
    shape.latency = model->latency;
    shape.bytes_per_second = model->bytes_per_second;
  }
  return shape;
}

int SizeOf(const CommunicatorState& ranks) {
  return ranks.team() != nullptr ? ranks.team()->size() : ranks.group()->size();
}

// By rank. Empty: all are on one.
std::vector<int> HostsOf(const CommunicatorState& ranks) {
  std::vector<int> hosts;
  if (ranks.team() == nullptr) return hosts;
  for (int rank = 0; rank < ranks.team()->size(); ++rank) hosts.push_back(ranks.team()->place(rank).host);
  return hosts;
}

// Where hosts reduce first, each counts as one rank with several processors.
NetworkShape OneRankAHost(NetworkShape shape, int rails) {
  shape.ranks = shape.hosts;
  shape.most_local = 1;
  shape.encoders = rails;
  return shape;
}

double DenseSeconds(const CommunicatorState& ranks, int64_t elements) {
  const auto& team = ranks.team();
  return team->SelectAtStart(Collective::kAllReduce, elements * int64_t{sizeof(float)}, team->rails()).seconds;
}

// Whether a bucket of what is covered, as large as they are by default, is sooner there if hosts reduce first and
// then send what the codec chooses.
bool PaysInHosts(const CompressionRequest& request, const std::vector<ExchangeTensor>& tensors, const CodecSpeed& speed,
                 const NetworkShape& network, const CommunicatorState& ranks) {
  int64_t elements = 0;
  for (const ExchangeTensor& tensor : tensors) elements += tensor.covered ? tensor.count : 0;
  elements = std::min(elements, DefaultBucketBytes(request, network.hosts) / int64_t{sizeof(float)});
  const double share = PayloadShare(request.compression, 1, 1);  // of sparse codecs that of any shape
  return CompressedSeconds(request.compression, elements, 0, share, speed,
                           OneRankAHost(network, ranks.team()->rails())) < DenseSeconds(ranks, elements);
}

}  // namespace

absl::StatusOr<CompressionRequest> RequestOf(const ReducerOptions& options, const std::string& variable) {
  CompressionRequest request{.always = options.always_compress};
  if (options.compression) {
    request.compression = *options.compression;
  } else if (!variable.empty()) {
    std::string_view text = variable;
    if (text.ends_with(kAlways)) {
      request.always = true;
      text.remove_suffix(kAlways.size());
    }
    auto parsed = ParseCompression(text);
    if (!parsed.ok()) return Annotate(parsed.status(), "GYRE_COMPRESSION");
    request.compression = *std::move(parsed);
  }
  RETURN_IF_ERROR(Validate(request.compression));
  if (std::holds_alternative<Dgc>(request.compression) && options.max_norm) {
    return absl::InvalidArgumentError(
        "max_norm is of gradients, and what a dgc gives are velocities: clip with Dgc::clip");
  }
  return request;
}

std::string Describe(const CompressionRequest& request) {
  if (!request.asked()) return "none";
  const std::string options = std::visit(Options(), request.compression);
  return absl::StrCat(ToAbsl(CompressionName(request.compression)), options.empty() ? "" : " ", options,
                      request.always ? " always" : "");
}

int64_t DefaultBucketBytes(const CompressionRequest& request, int hosts) {
  constexpr int64_t kDense = 8 << 20, kSparse = 64 << 20;
  return hosts > 1 && IsSparse(request.compression) ? kSparse : kDense;
}

absl::StatusOr<std::unique_ptr<Compressor>> Compressor::Create(
    Communicator& communicator, const CommunicatorState& ranks, const CompressionRequest& request,
    const ReducerOptions& options, const std::vector<fusion::TensorInfo>& tensors,
    const std::vector<std::vector<int64_t>>& shapes, double postscale, std::shared_ptr<CodecDevice> device,
    CompressionUse& use) {
  if (!request.asked()) return nullptr;
  use = CompressionUse::kOneHost;
  if (ranks.team() == nullptr && !request.always) return nullptr;
  NetworkShape network = ShapeOf(ranks);
  if (!device->on_host()) network.most_gathered = std::numeric_limits<int>::max();
  ExchangeSettings settings{.tensors = {},
                            .rank = communicator.rank(),
                            .ranks = communicator.size(),
                            .hosts = device->on_host() ? HostsOf(ranks) : std::vector<int>(),
                            .op = options.op,
                            .prescale = options.prescale,
                            .postscale = postscale,
                            .link_bytes_per_second = network.bytes_per_second,
                            .most_gathered = network.most_gathered};
  for (size_t i = 0; i < tensors.size(); ++i) {
    ExchangeTensor tensor{.name = tensors[i].name, .shape = shapes[i], .count = tensors[i].count};
    tensor.covered = IsCovered(request.compression, tensor);
    if (tensor.covered && tensors[i].dtype != DType::kF32) {
      if (std::holds_alternative<Dgc>(request.compression)) {
        return absl::InvalidArgumentError(absl::StrCat("dgc takes gradients of f32; \"", absl::CHexEscape(tensor.name),
                                                       "\" is of ", ToAbsl(DTypeName(tensors[i].dtype)),
                                                       ": exclude it by Dgc::dense_names"));
      }
      tensor.covered = false;
    }
    if (tensors[i].dtype != DType::kF32) tensor.count = 0;  // never in a part that is exchanged
    settings.tensors.push_back(std::move(tensor));
  }
  use = CompressionUse::kNoneFits;
  if (std::ranges::none_of(settings.tensors, [](const ExchangeTensor& tensor) { return tensor.covered; }))
    return nullptr;
  use = request.always ? CompressionUse::kAsForced : CompressionUse::kByCost;
  const CallOptions agreement{.timeout = options.timeout};
  CodecSpeed speed;
  if (!request.always) {
    ASSIGN_OR_RETURN(speed, AgreeOnSpeed(communicator, device->Speed(request.compression), agreement));
    // Where hosts reduce first, what goes dense is exchanged as well, which an allreduce does sooner: not if all does.
    if (IsSparse(request.compression) && !PaysInHosts(request, settings.tensors, speed, network, ranks)) {
      settings.hosts.clear();
    }
  }
  std::vector<ExchangeTensor> described = settings.tensors;
  auto exchange = MakeCompressedExchange(request.compression, std::move(settings), device);
  RETURN_IF_ERROR(AgreeOnSuccess(communicator, exchange.status(), agreement));
  std::unique_ptr<Compressor> made(
      new Compressor(ranks, request, std::move(described), std::move(device), *std::move(exchange), network));
  made->gradient_scale_ = std::abs(options.prescale) / (options.op == ReduceOp::kAverage ? options.accumulate : 1);
  made->speed_ = speed;
  return made;
}

Compressor::Compressor(const CommunicatorState& ranks, CompressionRequest request, std::vector<ExchangeTensor> tensors,
                       std::shared_ptr<CodecDevice> device, std::unique_ptr<CompressedExchange> exchange,
                       const NetworkShape& network)
    : ranks_(ranks),
      request_(std::move(request)),
      tensors_(std::move(tensors)),
      device_(std::move(device)),
      exchange_(std::move(exchange)),
      network_(network),
      momentum_(std::holds_alternative<Dgc>(request_.compression)),
      refuses_(Refuses(request_.compression)),
      looks_(exchange_->WantsNorm() || (refuses_ && !device_->on_host())) {
  if (exchange_->reduces_in_host()) network_ = OneRankAHost(network_, ranks_.team()->rails());
}

void Compressor::Follow(const std::vector<fusion::Part>& parts) {
  compressed_.clear();
  prepared_.assign(parts.size(), false);
  for (const fusion::Part& part : parts) {
    const bool pays = request_.always || (covers_any(part) && SecondsOf(part) < DenseSeconds(ranks_, part.count));
    compressed_.push_back(covers_any(part) && pays);
  }
}

absl::Status Compressor::ChooseAgain(Communicator& communicator, const std::vector<fusion::Part>& parts,
                                     const CallOptions& options) {
  const auto& team = ranks_.team();
  const PathModel& model = team->refiner().selector().model();
  speed_ = device_->Speed(request_.compression);
  if (ranks_.runtime().network_model() != nullptr) {
    network_.latency = model.latency;
    network_.bytes_per_second = model.bytes_per_second;
  }
  std::vector<std::optional<PartCosts>> costs(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!covers_any(parts[i])) continue;
    const int64_t bytes = parts[i].count * int64_t{sizeof(float)};
    const double dense = team->Select(Collective::kAllReduce, bytes, team->rails()).seconds;
    costs[i] = {compressed_[i], SecondsOf(parts[i]), dense};
  }
  std::vector<double> ballot = FillBallot({speed_, network_.latency, network_.bytes_per_second}, costs);
  RETURN_IF_ERROR(communicator.AllReduce(ballot, {.op = ReduceOp::kMax, .timeout = options.timeout}));
  const VoteOutcome outcome = ReadVote(ballot);
  speed_ = outcome.terms.speed;
  network_.latency = outcome.terms.latency;
  network_.bytes_per_second = outcome.terms.bytes_per_second;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (outcome.changes[i]) compressed_[i] = !compressed_[i];
  }
  return absl::OkStatus();
}

bool Compressor::covers_any(const fusion::Part& part) const {
  return std::ranges::any_of(part.tensors, [this](int tensor) { return covers(tensor); });
}

// By the model, compressed. REQUIRES: covers_any
double Compressor::SecondsOf(const fusion::Part& part) const {
  int64_t covered = 0, plain = 0;
  double left = 0;  // elements' worth of bytes
  for (const int each : part.tensors) {
    const ExchangeTensor& tensor = tensors_[static_cast<size_t>(each)];
    (tensor.covered ? covered : plain) += tensor.count;
    if (!tensor.covered) continue;
    const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
    left += static_cast<double>(tensor.count) * PayloadShare(request_.compression, rows, tensor.count / rows);
  }
  const double share = left / static_cast<double>(covered);
  return CompressedSeconds(request_.compression, covered, plain, share, speed_, network_);
}

void Compressor::Restart(int64_t number) {
  step_ = number + steps_before_;
  begun_ = false;
  looked_at_.clear();
  prepared_.assign(prepared_.size(), false);
  calls_ = 0;
  sent_bytes_ = 0;
}

ExchangePart Compressor::PartOf(const fusion::Part& part, const fusion::Gradients& gradients) const {
  const TensorView buffer = gradients.BufferOf(part);
  ExchangePart result;
  for (const int tensor : part.tensors) {
    const int64_t begin = gradients.layout().begins[static_cast<size_t>(tensor)] - part.begin;
    auto* const values = reinterpret_cast<float*>(static_cast<std::byte*>(buffer.data) + begin);
    result.tensors.push_back(tensor);
    result.values.emplace_back(values, static_cast<size_t>(tensors_[static_cast<size_t>(tensor)].count));
  }
  return result;
}

absl::StatusOr<bool> Compressor::LookAtAll(const std::vector<fusion::Part>& parts, const fusion::Gradients& gradients) {
  if (begun_) return true;
  if (looked_at_.empty()) RETURN_IF_ERROR(Look(parts, gradients));
  ASSIGN_OR_RETURN(const bool done, device_->Done());
  if (!done) return false;
  const CodecDevice::Facts facts = device_->Looked();
  if (refuses_) RETURN_IF_ERROR(CheckFinite(facts));
  BeginStep(gradient_scale_ * std::sqrt(facts.squares));
  return true;
}

absl::Status Compressor::Look(const std::vector<fusion::Part>& parts, const fusion::Gradients& gradients) {
  std::vector<std::span<const float>> values;
  for (const fusion::Part& part : parts) {
    if (part.dtype != DType::kF32) continue;
    const ExchangePart all = PartOf(part, gradients);
    for (size_t i = 0; i < all.tensors.size(); ++i) {
      if (!covers(all.tensors[i])) continue;
      looked_at_.push_back(all.tensors[i]);
      values.emplace_back(all.values[i]);
    }
  }
  return device_->Look(values);
}

// As compression::DgcTensor, which refuses them one by one.
absl::Status Compressor::CheckFinite(const CodecDevice::Facts& facts) const {
  const int rank = ranks_.team() != nullptr ? ranks_.team()->rank() : ranks_.group()->rank();
  for (size_t i = 0; i < looked_at_.size(); ++i) {
    if (facts.non_finite[i] == 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(tensors_[static_cast<size_t>(looked_at_[i])].name, ": ",
                                                      facts.non_finite[i],
                                                      " elements of the gradient are NaN or infinite on rank ", rank));
  }
  return absl::OkStatus();
}

void Compressor::BeginStep(double norm) {
  exchange_->BeginStep(step_, norm);
  begun_ = true;
}

absl::StatusOr<SequenceCall*> Compressor::Launch(size_t part, const std::vector<fusion::Part>& parts,
                                                 const fusion::Gradients& gradients,
                                                 std::chrono::milliseconds timeout) {
  if (!begun_) BeginStep(0);
  if (parts[part].dtype != DType::kF32) return nullptr;
  ExchangePart what = PartOf(parts[part], gradients);
  dense_ = !compressed_[part] || exchange_->dense_step();
  if (dense_) {
    const bool any = std::ranges::any_of(what.tensors, [this](int tensor) { return covers(tensor); });
    what.dense = any && exchange_->reduces_in_host();
    if (what.dense) return Begin(std::move(what), timeout);
    RETURN_IF_ERROR(exchange_->Flush(what));
    return nullptr;
  }
  return Begin(std::move(what), timeout);
}

absl::StatusOr<SequenceCall*> Compressor::Begin(ExchangePart part, std::chrono::milliseconds timeout) {
  RETURN_IF_ERROR(exchange_->Begin(std::move(part)));
  return &call_.emplace(ranks_, *exchange_, timeout);
}

bool Compressor::Prepare(size_t part, const std::vector<fusion::Part>& parts, const fusion::Gradients& gradients) {
  if (prepared_[part] || !begun_) return false;
  const bool dense = !compressed_[part] || exchange_->dense_step() || parts[part].dtype != DType::kF32;
  prepared_[part] = dense || !exchange_->Prepare(PartOf(parts[part], gradients));
  return !prepared_[part];
}

void Compressor::Finish() {
  if (!dense_) {
    ++calls_;
    sent_bytes_ += exchange_->sent_bytes();
  }
  call_.reset();
}

absl::StatusOr<std::vector<std::byte>> Compressor::Save() {
  ASSIGN_OR_RETURN(std::vector<std::byte> saved, device_->Save(exchange_->state()));
  AppendCommon({.ranks = SizeOf(ranks_), .step = step_, .words = exchange_->common()}, saved);
  return saved;
}

// Of another number of ranks some ranks have nothing to take, and none takes what must be the same on all.
absl::Status Compressor::Restore(std::span<const std::span<const std::byte>> saved) {
  std::vector<std::span<const std::byte>> kept;
  std::optional<CommonState> common;
  for (const auto bytes : saved) {
    ASSIGN_OR_RETURN(OpenedState opened, OpenState(bytes));
    kept.push_back(opened.kept);
    if (saved.size() == 1 && opened.common.ranks == SizeOf(ranks_)) common = std::move(opened.common);
  }
  const std::vector<uint32_t> before = exchange_->common();
  if (common && !exchange_->TakeCommon(common->words)) {
    return absl::InvalidArgumentError("compression state: of other gradients, or another compression");
  }
  if (absl::Status status = device_->Restore(kept, exchange_->state()); !status.ok()) {
    exchange_->TakeCommon(before);
    return status;
  }
  if (common) steps_before_ += common->step - std::exchange(step_, common->step);
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace gyre
