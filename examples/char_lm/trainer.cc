#include "trainer.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numbers>
#include <numeric>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint.h"
#include "exact_sum.h"
#include "experiment.h"
#include "gyre/communicator.h"
#include "gyre/distributed_optimizer.h"
#include "gyre/job_report.h"
#include "gyre/status_macros.h"
#include "loss_file.h"
#include "model.h"
#include "portable.h"
#include "xxhash.h"

namespace char_lm {

namespace {

using Clock = std::chrono::steady_clock;

// What is reduced along with the gradient.
enum Extra : size_t { kLoss, kInterrupts, kTerminations, kExtras };

constexpr float kMomentum = 0.9f;
constexpr double kRateStep = 400;  // Adam's rate falls as 1 / sqrt(1 + step / this), whatever --steps is
constexpr int64_t kEvaluationSlice = 4096;

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// A compression with those of its options that this program sets, or GYRE_COMPRESSION can.
std::string Describe(const gyre::Compression& compression) {
  std::string text(gyre::CompressionName(compression));
  std::visit(
      [&]<typename T>(const T& codec) {
        if constexpr (requires { codec.sparsity; }) absl::StrAppend(&text, " of sparsity ", codec.sparsity);
        if constexpr (requires { codec.rank; }) absl::StrAppend(&text, " of rank ", codec.rank);
        if constexpr (requires { codec.format; }) absl::StrAppend(&text, " format ", static_cast<int>(codec.format));
        if constexpr (requires { codec.sampled; }) absl::StrAppend(&text, codec.sampled ? " sampled" : "");
        if constexpr (requires { codec.global; }) absl::StrAppend(&text, codec.global ? " global" : "");
        if constexpr (requires { codec.factor_masking; }) {
          absl::StrAppend(&text, codec.factor_masking ? "" : " without masking");
        }
      },
      compression);
  return text;
}

// Any number of ranks trains the same model, unless gradients are compressed: of each rank's something else is lost.
Identity IdentityOf(const Options& options, const Corpus& corpus, const gyre::Compression& compression, int ranks) {
  Identity identity;
  const auto add = [&](const char* name, const auto& value) { AddFact(identity, name, absl::StrCat(value)); };
  add("text's hash", absl::Hex(corpus.hash));
  add("seed", options.seed);
  add("batch", options.batch);
  add("alphabet", corpus.alphabet.size());
  add("context", options.context);
  add("hidden", options.hidden);
  std::array<char, 32> rate = {};
  std::to_chars(rate.data(), rate.data() + rate.size() - 1, options.learning_rate);  // all digits that tell it apart
  add("learning rate", rate.data());
  add("optimizer", options.momentum ? "momentum" : "adam");
  add("steps", options.momentum ? absl::StrCat(options.steps) : "any");  // the rate depends on them
  add("arithmetic", options.portable ? "portable" : "that of BLAS");
  const bool compresses = !std::holds_alternative<gyre::NoCompression>(compression);
  add("compression", Describe(compression));
  add("ranks", compresses ? absl::StrCat(ranks) : "any");
  return identity;
}

// What --compression and its like ask for.
absl::StatusOr<gyre::ReducerOptions> ReductionOf(const Options& options) {
  gyre::ReducerOptions reduction{.op = gyre::ReduceOp::kSum};
  if (options.compression.empty()) return reduction;
  ASSIGN_OR_RETURN(gyre::Compression compression, gyre::ParseCompression(options.compression));
  const bool sparse = std::visit(
      []<typename T>(const T&) {
        return requires(T t) {
          t.sparsity;
        };
      },
      compression);
  if (options.sparsity != 0 && !sparse) {
    return absl::InvalidArgumentError(absl::StrCat("--compression ", options.compression, " has no sparsity"));
  }
  std::visit(
      [&]<typename T>(T& codec) {
        if constexpr (requires { codec.sparsity; }) {
          if (options.sparsity != 0) codec.sparsity = options.sparsity;
        }
      },
      compression);
  if (auto* const dgc = std::get_if<gyre::Dgc>(&compression)) {
    dgc->factor_masking = options.masking;
    dgc->momentum = kMomentum;
  }
  reduction.compression = compression;
  reduction.always_compress = true;
  return reduction;
}

class Trainer {
 public:
  Trainer(gyre::Runtime& runtime, const Options& options, const Corpus& corpus, const StopSignal& stop_signal)
      : runtime_(runtime),
        world_(runtime.world()),
        options_(options),
        corpus_(corpus),
        stop_signal_(stop_signal),
        model_({.alphabet = static_cast<int>(corpus.alphabet.size()),
                .context = options.context,
                .hidden = options.hidden},
               options.portable),
        weights_(static_cast<size_t>(model_.shape().parameters())),
        slice_gradient_(weights_.size()),
        experiment_(options.wrong, kMomentum),
        progress_(leader() && !options.quiet, options.steps, options.batch) {}

  absl::StatusOr<Outcome> Run() {
    RETURN_IF_ERROR(MakeOptimizer());
    if (!by_servers()) RETURN_IF_ERROR(CheckRanksAgree());
    RETURN_IF_ERROR(Prepare());
    ASSIGN_OR_RETURN(const int signal_number, Loop());
    progress_.EndLine();
    RETURN_IF_ERROR(SaveCheckpoint());
    Outcome outcome{.stopped_by = signal_number, .step = step_, .times = times_, .by_servers = by_servers()};
    if (signal_number != 0) return outcome;
    ASSIGN_OR_RETURN(outcome.heldout_bits_per_char, Evaluate());
    outcome.weights_hash = XXH3_64bits(weights_.data(), weights_.size() * sizeof(float));
    if (by_servers()) return outcome;
    ASSIGN_OR_RETURN(outcome.odd_rank, FindOddRank(outcome.weights_hash));
    return outcome;
  }

 private:
  bool leader() const { return world_.rank() == 0; }
  bool by_servers() const { return optimizer_->strategy() == gyre::Strategy::kParameterServer; }

  // What this rank does from now on, for gyrerun.
  absl::Status Enter(gyre::JobPhase phase, std::string_view activity) {
    return runtime_.Report({.phase = phase, .activity = activity});
  }

  // The lowest rank whose value is not rank 0's; -1 if all are equal.
  absl::StatusOr<int> FindOddRank(uint64_t value) {
    std::array<int64_t, 1> mine = {static_cast<int64_t>(value)};
    std::vector<int64_t> all(static_cast<size_t>(world_.size()));
    RETURN_IF_ERROR(world_.AllGather(mine, all));
    for (int rank = 1; rank < world_.size(); ++rank) {
      if (all[rank] != all[0]) return rank;
    }
    return -1;
  }

  absl::Status CheckRanksAgree() {
    const std::string plan = absl::StrJoin(
        {options_.steps, options_.stop_at, options_.eval_every, options_.checkpoint_every,
         int64_t{!options_.checkpoint.empty()}, int64_t{options_.resume}, static_cast<int64_t>(options_.wrong)},
        " ");
    const std::string all = identity_ + plan;
    ASSIGN_OR_RETURN(const int odd, FindOddRank(XXH3_64bits(all.data(), all.size())));
    if (odd < 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("rank ", odd, " has another text or other options than rank 0"));
  }

  absl::Status MakeOptimizer() {
    gyre::DistributedOptions distributed;
    ASSIGN_OR_RETURN(distributed.reducer, ReductionOf(options_));
    if (options_.strategy == "allreduce") distributed.strategy = gyre::Strategy::kAllreduce;
    if (options_.strategy == "ps") distributed.strategy = gyre::Strategy::kParameterServer;
    if (options_.consistency == "bsp") distributed.servers.consistency = gyre::Consistency::kBsp;
    if (options_.consistency == "ssp") distributed.servers.consistency = gyre::Consistency::kSsp;
    if (options_.consistency == "async") distributed.servers.consistency = gyre::Consistency::kAsync;
    if (options_.values == "f32") distributed.servers.values = gyre::ValueFormat::kF32;
    if (options_.values == "f16") distributed.servers.values = gyre::ValueFormat::kF16;
    if (options_.values == "bf16") distributed.servers.values = gyre::ValueFormat::kBF16;
    if (options_.values == "int8") distributed.servers.values = gyre::ValueFormat::kInt8;
    if (options_.staleness >= 0) distributed.servers.staleness = options_.staleness;
    // beta2 below Adam's usual 0.999: trainings here are short.
    gyre::OptimizerConfig config = gyre::Adam{.learning_rate = options_.learning_rate, .beta2 = 0.99f};
    if (options_.momentum) config = gyre::Momentum{.learning_rate = options_.learning_rate, .momentum = kMomentum};
    ASSIGN_OR_RETURN(optimizer_, gyre::DistributedOptimizer::Create(world_, config, distributed));
    if (by_servers() && options_.wrong != Wrong::kNothing) {
      return absl::InvalidArgumentError("with parameter servers there is no --experiment");
    }
    if (!by_servers()) {
      identity_ = IdentityOf(options_, corpus_, optimizer_->reducer().compression(), world_.size());
      return absl::OkStatus();
    }
    if (options_.checkpoint.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("with parameter servers there is no --checkpoint: they keep the model");
  }

  // Memory for gradients, and weights: rank 0's new ones or those of the checkpoint, or what the servers have.
  absl::Status Prepare() {
    // The reversed order is the one in which gradients are ready: the first plan of buckets is the one that stays, so
    // that a resumed training rounds alike.
    const std::array<int64_t, 1> extras = {kExtras};
    if (!by_servers()) {
      ASSIGN_OR_RETURN(extras_index_, optimizer_->reducer().Register("extras", extras));
    }
    RETURN_IF_ERROR(RegisterWeights());
    Resumed resumed;
    if (options_.resume) {
      ASSIGN_OR_RETURN(resumed, Resume());
    } else if (leader()) {
      model_.Initialise(options_.seed, weights_);
    }
    RETURN_IF_ERROR(optimizer_->Start());  // from here on all ranks have rank 0's weights
    if (by_servers()) step_ = optimizer_->step();
    if (options_.resume) RETURN_IF_ERROR(optimizer_->Restore(resumed.optimizer));
    if (!resumed.compression.empty()) {
      const std::array<std::span<const std::byte>, 1> own = {resumed.compression};
      RETURN_IF_ERROR(optimizer_->reducer().RestoreCompression(own));
    }
    experiment_.Start(weights_);
    // Now rather than when all is trained.
    if (leader() && !options_.checkpoint.empty()) RETURN_IF_ERROR(CheckWritable(options_.checkpoint));
    if (leader() && !options_.loss_file.empty()) RETURN_IF_ERROR(loss_file_.Open(options_.loss_file, step_));
    return absl::OkStatus();
  }

  // By layers, each of which travels while those before it are still being computed; to servers in one piece.
  absl::Status RegisterWeights() {
    std::vector<ModelShape::Layer> layers = {{"model", {std::ssize(weights_)}}};
    if (!by_servers() || !options_.compression.empty()) layers = model_.shape().layers();
    int64_t begin = 0;
    for (const ModelShape::Layer& layer : layers) {
      const Range range = {begin, begin + layer.count()};
      const auto weights = std::span(weights_).subspan(static_cast<size_t>(begin), static_cast<size_t>(layer.count()));
      ASSIGN_OR_RETURN(const int index, optimizer_->Register(layer.name, weights, layer.shape));
      pieces_.push_back({index, range});
      begin = range.last;
    }
    return absl::OkStatus();
  }

  // The state that a rank resumes from, beside weights and step: its optimizer's, and its compression's residuals.
  struct Resumed {
    std::vector<std::byte> optimizer, compression;
  };

  // Rank 0 reads; the others get from it the step and what is returned, or that it failed. The weights are rank 0's
  // alone as yet.
  absl::StatusOr<Resumed> Resume() {
    Checkpoint checkpoint;
    absl::Status status;
    if (leader()) {
      auto read = ReadCheckpoint(options_.checkpoint);
      status = read.status();
      if (read.ok()) checkpoint = *std::move(read);
      if (status.ok()) status = CheckSame(checkpoint.identity, identity_);
      if (status.ok() && checkpoint.weights.size() != weights_.size()) {
        status = absl::DataLossError("the checkpoint has another number of weights than its own shape says");
      }
      if (status.ok() && checkpoint.step > options_.steps) {
        status = absl::FailedPreconditionError(absl::StrCat("the checkpoint has been trained for ", checkpoint.step,
                                                            " steps already, more than --steps ", options_.steps));
      }
    }
    checkpoint.compression.resize(static_cast<size_t>(world_.size()));  // of as many ranks, or of none
    std::array<int64_t, 3> header = {status.ok(), checkpoint.step, std::ssize(checkpoint.optimizer)};
    RETURN_IF_ERROR(world_.Broadcast(header, 0));
    if (header[0] == 0) {
      return leader() ? status : absl::FailedPreconditionError("rank 0 could not resume from the checkpoint");
    }
    step_ = header[1];
    if (leader()) std::ranges::copy(checkpoint.weights, weights_.begin());
    checkpoint.optimizer.resize(static_cast<size_t>(header[2]));
    RETURN_IF_ERROR(world_.Broadcast({checkpoint.optimizer.data(), header[2], gyre::DType::kU8}, 0));
    Resumed resumed = {.optimizer = std::move(checkpoint.optimizer), .compression = {}};
    for (int rank = 0; rank < world_.size(); ++rank) {
      std::vector<std::byte>& kept = checkpoint.compression[static_cast<size_t>(rank)];
      std::array<int64_t, 1> size = {std::ssize(kept)};
      RETURN_IF_ERROR(world_.Broadcast(size, 0));
      kept.resize(static_cast<size_t>(size[0]));
      RETURN_IF_ERROR(world_.Broadcast({kept.data(), size[0], gyre::DType::kU8}, 0));
      if (rank == world_.rank()) resumed.compression = std::move(kept);
    }
    return resumed;
  }

  // Trains up to the last step. Returns the signal that stopped it, or 0.
  absl::StatusOr<int> Loop() {
    RETURN_IF_ERROR(Enter(gyre::JobPhase::kProcessing, "training"));
    const int64_t last = options_.stop_at > 0 ? std::min(options_.stop_at, options_.steps) : options_.steps;
    while (step_ < last) {
      ASSIGN_OR_RETURN(const double loss, Step());
      if (!std::isfinite(loss)) {
        return absl::FailedPreconditionError(absl::StrCat("the loss is not finite at step ", step_, "; lower --lr"));
      }
      RETURN_IF_ERROR(runtime_.Report({.step = step_, .steps = options_.steps, .loss = loss}));
      if (leader()) {
        RETURN_IF_ERROR(loss_file_.Add(step_, loss));
        progress_.Step(step_, loss, times_);
      }
      if (const int signal_number = AgreedSignal(); signal_number != 0) return signal_number;
      if (step_ == last) break;
      if (options_.checkpoint_every > 0 && step_ % options_.checkpoint_every == 0) RETURN_IF_ERROR(SaveCheckpoint());
      if (options_.eval_every > 0 && step_ % options_.eval_every == 0) RETURN_IF_ERROR(ReportEvaluation());
    }
    return 0;
  }

  // One step; returns the batch's loss before it, in nats a character.
  absl::StatusOr<double> Step() {
    const auto started = Clock::now();
    ++step_;
    ASSIGN_OR_RETURN(float loss, ComputeShard());
    if (!by_servers()) RETURN_IF_ERROR(ShareExtras(loss));
    RETURN_IF_ERROR(optimizer_->SetLearningRate(Rate()));
    ASSIGN_OR_RETURN(const gyre::StepSummary summary, optimizer_->Step());
    RETURN_IF_ERROR(experiment_.AfterStep(*optimizer_, weights_));
    ++times_.steps;
    times_.communication_seconds += summary.exposed_seconds;
    times_.seconds += Seconds(Clock::now() - started);
    // Of a step's whole batch, or as if the other ranks' parts were like this one's.
    if (!by_servers()) return optimizer_->gradient(extras_index_)[kLoss];
    step_ = optimizer_->step();
    loss *= static_cast<float>(world_.size());
    return loss;
  }

  absl::Status ShareExtras(float loss) {
    const std::span<float> extra = optimizer_->gradient(extras_index_);
    extra[kLoss] = loss;
    extra[kInterrupts] = stop_signal_.received() == SIGINT ? 1.0f : 0.0f;
    extra[kTerminations] = stop_signal_.received() == SIGTERM ? 1.0f : 0.0f;
    return optimizer_->Ready(extras_index_);
  }

  float Rate() const {
    const auto done = static_cast<double>(step_ - 1);
    const auto steps = static_cast<double>(options_.steps);
    const double cosine = options_.portable ? PortableCosPi(done / steps) : std::cos(std::numbers::pi * done / steps);
    const double share = options_.momentum ? 0.5 + 0.5 * cosine : 1 / std::sqrt(1.0 + done / kRateStep);
    return static_cast<float>(options_.learning_rate * share);
  }

  // The sum over this rank's slices of the step's batch: fills in the gradient and says what of it is ready, returns
  // the loss. Both are shares of the mean over the whole batch. A slice's is computed alike on whichever rank, and the
  // sum over slices is exact.
  absl::StatusOr<float> ComputeShard() {
    const float scale = 1.0f / static_cast<float>(options_.batch);
    const int64_t width = SliceSize(options_.batch);
    const Range slices = Shard((options_.batch + width - 1) / width, world_.rank(), world_.size());
    float loss = 0;
    absl::Status ready;
    const auto add = [this](const Piece& piece) {
      const auto terms = std::span(slice_gradient_).subspan(static_cast<size_t>(piece.range.first));
      AddRounded(terms, optimizer_->gradient(piece.index));
    };
    const auto finish = [&](int layer) {
      add(pieces_[static_cast<size_t>(layer)]);
      ready.Update(optimizer_->Ready(pieces_[static_cast<size_t>(layer)].index));
    };
    for (const Piece& piece : pieces_) std::ranges::fill(optimizer_->gradient(piece.index), 0.0f);
    for (int64_t slice = slices.first; slice < slices.last; ++slice) {
      const Range range = {slice * width, std::min((slice + 1) * width, options_.batch)};
      DrawSamples(corpus_, options_.context, options_.seed, step_, range, samples_);
      std::fill(slice_gradient_.begin(), slice_gradient_.end(), 0.0f);
      const bool last = !by_servers() && slice + 1 == slices.last;
      const double sum = last ? model_.LossAndGradient(weights_, samples_, scale, slice_gradient_, finish)
                              : model_.LossAndGradient(weights_, samples_, scale, slice_gradient_);
      loss += RoundTo(kLossQuantum, static_cast<float>(sum * scale));
      if (!last) std::ranges::for_each(pieces_, add);
    }
    if (by_servers() || slices.first == slices.last) {
      for (const Piece& piece : pieces_ | std::views::reverse) ready.Update(optimizer_->Ready(piece.index));
    }
    RETURN_IF_ERROR(ready);
    return loss;
  }

  // What the ranks' signals came to in the step's reduction: the same on all of them.
  int AgreedSignal() const {
    if (by_servers()) return stop_signal_.received();
    const std::span<const float> extra = optimizer_->gradient(extras_index_);
    if (extra[kInterrupts] > 0) return SIGINT;
    return extra[kTerminations] > 0 ? SIGTERM : 0;
  }

  // Bits a held-out character; each rank computes its part of them, or rank 0 all.
  absl::StatusOr<double> Evaluate() {
    RETURN_IF_ERROR(Enter(gyre::JobPhase::kProcessing, "evaluating"));
    if (by_servers() && !leader()) return 0.0;
    const Range mine =
        by_servers() ? Range{0, corpus_.heldout()} : Shard(corpus_.heldout(), world_.rank(), world_.size());
    std::array<double, 1> loss = {0};
    for (int64_t first = mine.first; first < mine.last; first += kEvaluationSlice) {
      const int64_t last = std::min(first + kEvaluationSlice, mine.last);
      TakeSamples(corpus_, options_.context, {corpus_.training + first, corpus_.training + last}, samples_);
      loss[0] += model_.Loss(weights_, samples_);
    }
    if (!by_servers()) RETURN_IF_ERROR(world_.AllReduce(loss));
    return loss[0] / static_cast<double>(corpus_.heldout()) / std::numbers::ln2;
  }

  absl::Status ReportEvaluation() {
    ASSIGN_OR_RETURN(const double bits, Evaluate());
    RETURN_IF_ERROR(Enter(gyre::JobPhase::kProcessing, "training"));
    if (!leader() || options_.quiet) return absl::OkStatus();
    progress_.EndLine();
    std::printf("step %ld/%ld  held-out text: %.4f bits per character\n", static_cast<long>(step_),
                static_cast<long>(options_.steps), bits);
    std::fflush(stdout);
    return absl::OkStatus();
  }

  // Collective.
  absl::Status SaveCheckpoint() {
    if (options_.checkpoint.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(std::vector<std::vector<std::byte>> kept, GatherCompression());
    if (!leader()) return absl::OkStatus();
    RETURN_IF_ERROR(Enter(gyre::JobPhase::kStoring, "saving"));
    RETURN_IF_ERROR(WriteCheckpoint(options_.checkpoint, {.identity = identity_,
                                                          .step = step_,
                                                          .weights = weights_,
                                                          .optimizer = optimizer_->Save(),
                                                          .compression = std::move(kept)}));
    return Enter(gyre::JobPhase::kProcessing, "training");
  }

  // What compression keeps on each rank; empty where it keeps nothing.
  absl::StatusOr<std::vector<std::vector<std::byte>>> GatherCompression() {
    const std::vector<std::byte> own = optimizer_->reducer().SaveCompression();
    std::array<int64_t, 1> size = {std::ssize(own)};
    std::vector<int64_t> sizes(static_cast<size_t>(world_.size()));
    RETURN_IF_ERROR(world_.AllGather(size, sizes));
    const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    std::vector<std::vector<std::byte>> kept;
    if (total == 0) return kept;
    std::vector<std::byte> all(static_cast<size_t>(total));
    RETURN_IF_ERROR(
        world_.AllGatherV({own.data(), size[0], gyre::DType::kU8}, sizes, {all.data(), total, gyre::DType::kU8}));
    auto from = all.cbegin();
    for (const int64_t bytes : sizes) {
      kept.emplace_back(from, from + bytes);
      from += bytes;
    }
    return kept;
  }

  gyre::Runtime& runtime_;
  gyre::Communicator& world_;
  const Options& options_;
  const Corpus& corpus_;
  const StopSignal& stop_signal_;
  Identity identity_;
  Model<float> model_;
  std::vector<float> weights_;
  std::vector<float> slice_gradient_;
  std::unique_ptr<gyre::DistributedOptimizer> optimizer_;
  struct Piece {
    int index;    // the optimizer's
    Range range;  // of the weights
  };
  std::vector<Piece> pieces_;
  int extras_index_ = 0;
  Samples samples_;
  int64_t step_ = 0;  // how many are done
  StepTimes times_;
  Experiment experiment_;
  Progress progress_;
  LossFile loss_file_;
};

}  // namespace

absl::StatusOr<Outcome> Train(gyre::Runtime& runtime, const Options& options, const Corpus& corpus,
                              const StopSignal& stop_signal) {
  return Trainer(runtime, options, corpus, stop_signal).Run();
}

}  // namespace char_lm
