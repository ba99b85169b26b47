#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "commands.h"
#include "contender.h"
#include "gyre/status_macros.h"
#include "step/compute.h"
#include "step/contender.h"
#include "step/gradients.h"
#include "step/report.h"
#include "timing.h"

namespace gyre::bench {

namespace {

constexpr int kWarmup = 5;  // more than a reducer needs to settle on a plan

// One model on this rank.
class StepRun {
 public:
  StepRun(const StepOptions& options, ComputeKind kind, Communicator& world, const Model& model)
      : options_(options),
        world_(world),
        model_(model),
        order_(BackwardOrder(model)),
        computing_(kind != ComputeKind::kNone),
        compute_(kind, options.rate * 1e9 / options.batch) {}

  // Elements that came out wrong. `contenders`: the first is the computation alone.
  absl::StatusOr<int64_t> Run(StepContenders& contenders, StepReport* report);

 private:
  absl::Status Step(StepContender& contender);
  absl::Status NextForward(StepContender& contender, bool by_layer);
  absl::StatusOr<double> TimeStep(StepContender& contender);
  absl::StatusOr<int64_t> CountWrong(StepContender& contender);
  absl::StatusOr<std::vector<Times>> Measure(StepContenders& contenders);
  StepMeasurement Describe(const StepContender& contender) const;

  const StepOptions& options_;
  Communicator& world_;
  const Model& model_;
  const std::vector<int> order_;
  const bool computing_;
  Compute compute_;  // of one sample, slowed down to the batch
};

absl::Status StepRun::Step(StepContender& contender) {
  compute_.Begin();
  if (!options_.early_forward) compute_.Advance(model_.forward_flops());
  for (const int i : order_) {
    compute_.Advance(kBackwardFactor * model_.parameters[static_cast<size_t>(i)].forward_flops);
    if (i == order_.back()) compute_.Finish();
    RETURN_IF_ERROR(contender.Ready(i));
  }
  const bool by_layer = options_.early_forward && contender.waits_for_each();
  if (!by_layer) RETURN_IF_ERROR(contender.Wait());
  if (options_.early_forward) RETURN_IF_ERROR(NextForward(contender, by_layer));
  return by_layer ? contender.Wait() : absl::OkStatus();
}

// A layer's pass begins when its gradients are there, with which its weights would be updated.
absl::Status StepRun::NextForward(StepContender& contender, bool by_layer) {
  compute_.Resume();
  for (int i = 0; i < std::ssize(model_.parameters); ++i) {
    if (by_layer) {
      RETURN_IF_ERROR(contender.WaitFor(i));
      compute_.Resume();
    }
    compute_.Advance(model_.parameters[static_cast<size_t>(i)].forward_flops);
  }
  compute_.Finish();
  return absl::OkStatus();
}

absl::StatusOr<double> StepRun::TimeStep(StepContender& contender) {
  contender.Prepare();
  RETURN_IF_ERROR(world_.Barrier());
  const auto start = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(Step(contender));
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// Leaves zeros, which stay zeros however often they are summed.
absl::StatusOr<int64_t> StepRun::CountWrong(StepContender& contender) {
  for (const int i : order_) FillGradient(contender.gradient(i), i, world_.rank());
  RETURN_IF_ERROR(Step(contender));
  int64_t wrong = 0;
  for (const int i : order_) {
    const std::span<float> sums = contender.gradient(i);
    wrong += CountWrongSums(sums, i, world_.size());
    std::memset(sums.data(), 0, sums.size_bytes());
  }
  RETURN_IF_ERROR(world_.AllReduce(std::span(&wrong, 1)));
  return wrong;
}

// The contenders take turns, step by step, so that what the machine does meanwhile hits them alike.
absl::StatusOr<std::vector<Times>> StepRun::Measure(StepContenders& contenders) {
  std::vector<std::vector<double>> samples(contenders.size());
  for (auto& contender : contenders) {
    while (!contender->settled()) RETURN_IF_ERROR(TimeStep(*contender).status());
  }
  for (int step = -kWarmup; step < options_.steps; ++step) {
    for (size_t c = 0; c < contenders.size(); ++c) {
      ASSIGN_OR_RETURN(const double time, TimeStep(*contenders[c]));
      if (step >= 0) samples[c].push_back(time);
    }
  }
  std::vector<Times> times;
  for (std::vector<double>& each : samples) {
    RETURN_IF_ERROR(world_.AllReduce(each, {.op = ReduceOp::kMax}));
    times.push_back(Summarize(std::move(each)));
  }
  return times;
}

StepMeasurement StepRun::Describe(const StepContender& contender) const {
  StepMeasurement measurement;
  measurement.lib = contender.lib();
  measurement.model = model_.name;
  measurement.buffers = contender.buffers();
  measurement.compression = contender.compression();
  measurement.ranks = world_.size();
  measurement.hosts = world_.node_count();
  measurement.bytes = model_.count() * static_cast<int64_t>(sizeof(float));
  measurement.tensors = static_cast<int>(model_.parameters.size());
  measurement.compute = options_.compute;
  measurement.copied_bytes = contender.copied_bytes();
  return measurement;
}

absl::StatusOr<int64_t> StepRun::Run(StepContenders& contenders, StepReport* report) {
  std::vector<int64_t> wrong(contenders.size(), 0);
  const auto check = [&]() -> absl::Status {
    for (size_t c = 1; options_.check && c < contenders.size(); ++c) {
      if (contenders[c]->lossy()) continue;
      ASSIGN_OR_RETURN(const int64_t more, CountWrong(*contenders[c]));
      wrong[c] += more;
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(check());
  ASSIGN_OR_RETURN(const std::vector<Times> times, Measure(contenders));
  RETURN_IF_ERROR(check());  // once more: a plan may have changed meanwhile
  int64_t sum = 0;
  for (size_t c = 1; c < contenders.size(); ++c) {
    StepMeasurement measurement = Describe(*contenders[c]);
    measurement.times = times[c];
    if (computing_) measurement.compute_us = times[0].median;
    if (options_.check && !contenders[c]->lossy()) measurement.wrong = wrong[c];
    if (c > 1) measurement.ratio = times[c].median / times[1].median;
    sum += wrong[c];
    if (report != nullptr) report->Row(measurement);
  }
  return sum;
}

bool Has(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

// What all models are measured with.
struct StepSetting {
  Runtime& runtime;
  SumInPlace mpi = nullptr, gloo = nullptr;  // null: not asked for
};

// Of Gyre itself, beside "gyre".
constexpr std::array kVariants = {GyreVariant{.lib = "gyre-by-size", .bytes = kBySizeBytes},
                                  GyreVariant{.lib = "gyre-by-readiness", .priorities = false},
                                  GyreVariant{.lib = "gyre-wait-for-all", .waits_for_each = false}};

absl::StatusOr<StepContenders> MakeContenders(const StepOptions& options, const StepSetting& setting,
                                              const Model& model, PlainGradients& plain) {
  StepContenders contenders;
  contenders.push_back(MakeComputeAlone(plain));
  for (const std::string& buffers : options.buffers) {
    PlainGradients* const own = buffers == "plain" ? &plain : nullptr;
    ASSIGN_OR_RETURN(auto reducer, MakeGyreReducer(setting.runtime, model, own));
    contenders.push_back(std::move(reducer));
    if (options.tune) {
      ASSIGN_OR_RETURN(auto tuned, MakeGyreReducer(setting.runtime, model, own, {.lib = "gyre-tuned", .tune = true}));
      contenders.push_back(std::move(tuned));
    }
    for (const std::string& compression : options.compression) {
      ASSIGN_OR_RETURN(auto compressed, MakeGyreCompressed(setting.runtime, model, own, compression));
      contenders.push_back(std::move(compressed));
    }
    for (const GyreVariant& variant : kVariants) {
      if (!Has(options.against, variant.lib)) continue;
      ASSIGN_OR_RETURN(auto another, MakeGyreReducer(setting.runtime, model, own, variant));
      contenders.push_back(std::move(another));
    }
    if (Has(options.against, "gyre-timeline")) {
      ASSIGN_OR_RETURN(auto timeline, MakeGyreTimeline(setting.runtime.world(), model, own));
      contenders.push_back(std::move(timeline));
    }
    if (!Has(options.against, "gyre-per-tensor")) continue;
    ASSIGN_OR_RETURN(auto per_tensor, MakeGyrePerTensor(setting.runtime, model, own));
    contenders.push_back(std::move(per_tensor));
  }
  for (const std::string& peer : options.against) {
    if (peer.starts_with("gyre")) continue;
    const SumInPlace& sum = peer.starts_with("mpi") ? setting.mpi : setting.gloo;
    contenders.push_back(peer.ends_with("bucketed") ? MakeBucketed(peer, sum, plain, model, kBucketBytes)
                                                    : MakePerTensor(peer, sum, plain));
  }
  return contenders;
}

}  // namespace

absl::Status RunStep(const StepOptions& options, const std::string& command) {
  ASSIGN_OR_RETURN(const ComputeKind kind, ParseComputeKind(options.compute));
  std::unique_ptr<MpiSession> mpi;  // before the runtime, and ended after it
  if (Has(options.against, "mpi-per-tensor") || Has(options.against, "mpi-bucketed")) {
    ASSIGN_OR_RETURN(mpi, MpiSession::Start());
  }
  ASSIGN_OR_RETURN(const auto runtime, Runtime::Create());
  StepSetting setting{*runtime};
  if (mpi != nullptr) setting.mpi = mpi->MakeSum();
  if (Has(options.against, "gloo-bucketed")) {
    ASSIGN_OR_RETURN(setting.gloo, MakeGlooSum(runtime->world()));
  }
  ASSIGN_OR_RETURN(const auto report, StepReport::OpenOnRankZero(options.json, command, runtime->world()));
  int64_t wrong = 0;
  for (const std::string& name : options.models) {
    ASSIGN_OR_RETURN(const Model model, MakeModel(name));
    PlainGradients plain = MakePlainGradients(model);
    ASSIGN_OR_RETURN(StepContenders contenders, MakeContenders(options, setting, model, plain));
    if (report != nullptr) report->Head(model);
    ASSIGN_OR_RETURN(const int64_t more, StepRun(options, kind, runtime->world(), model).Run(contenders, report.get()));
    wrong += more;
  }
  if (wrong == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(wrong, " elements came out wrong"));
}

}  // namespace gyre::bench
