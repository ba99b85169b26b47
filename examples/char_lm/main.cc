// char_lm: trains a character-level language model on any text, data-parallel with Gyre. README.md shows how to start
// it; what it computes is in model.h, how the ranks work together in trainer.cc.
#include <signal.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "blas.h"
#include "exit_code.h"
#include "gyre/gyre.h"
#include "gyre/status_macros.h"
#include "options.h"
#include "stop_signal.h"
#include "text.h"
#include "trainer.h"

namespace char_lm {

namespace {

void PrintStart(const Options& options, const Corpus& corpus, int ranks) {
  const ModelShape shape = {static_cast<int>(corpus.alphabet.size()), options.context, options.hidden};
  std::printf("char_lm: %d rank%s, %ld parameters, text of %zu characters (%zu different), %ld held out, batch %ld\n",
              ranks, ranks == 1 ? "" : "s", static_cast<long>(shape.parameters()), corpus.symbols.size(),
              corpus.alphabet.size(), static_cast<long>(corpus.heldout()), static_cast<long>(options.batch));
  std::fflush(stdout);
}

void PrintEnd(const Options& options, const Outcome& outcome) {
  if (outcome.stopped_by != 0) {
    std::printf("char_lm: stopped by %s%s\n", outcome.stopped_by == SIGINT ? "SIGINT" : "SIGTERM",
                options.checkpoint.empty() ? "" : "; --resume goes on from the checkpoint");
    return;
  }
  std::printf(
      "held-out text: %.4f bits per character; %.1f steps/s, %.0f%% of the time in communication; replicas %s\n",
      outcome.heldout_bits_per_char, outcome.times.steps_per_second(), 100 * outcome.times.communication_fraction(),
      outcome.by_servers     ? "not compared"
      : outcome.odd_rank < 0 ? "identical"
                             : "DIFFER");
}

void PrintJson(const Options& options, const Outcome& outcome, int ranks) {
  const double speed = outcome.times.steps_per_second();
  using Json = nlohmann::ordered_json;
  const Json json = {{"ranks", ranks},
                     {"steps", outcome.step},
                     {"heldout_bits_per_char", outcome.heldout_bits_per_char},
                     {"params_hash", absl::StrFormat("%016x", outcome.weights_hash)},
                     {"replicas_identical", outcome.by_servers ? Json() : Json(outcome.odd_rank < 0)},
                     {"chars_per_s", speed * static_cast<double>(options.batch)},
                     {"steps_per_s", speed},
                     {"comm_fraction", outcome.times.communication_fraction()}};
  std::printf("%s\n", json.dump().c_str());
}

absl::StatusOr<Outcome> TrainAndReport(gyre::Runtime& runtime, const Options& options, StopSignal& stop_signal) {
  const bool leader = runtime.world().rank() == 0;
  const int ranks = runtime.world().size();
  RETURN_IF_ERROR(runtime.Report({.phase = gyre::JobPhase::kDownloading, .activity = "loading"}));
  ASSIGN_OR_RETURN(const std::string text, ReadText(options.text));
  ASSIGN_OR_RETURN(const Corpus corpus, MakeCorpus(text, options.heldout_fraction, options.context));
  if (leader && !options.quiet) PrintStart(options, corpus, ranks);
  stop_signal.Arm();
  ASSIGN_OR_RETURN(const Outcome outcome, Train(runtime, options, corpus, stop_signal));
  if (leader && !options.quiet) PrintEnd(options, outcome);
  if (leader && options.json && outcome.stopped_by == 0) PrintJson(options, outcome, ranks);
  std::fflush(stdout);
  if (outcome.odd_rank >= 0) {
    return absl::DataLossError(absl::StrCat("rank ", outcome.odd_rank, " ended with another model than rank 0"));
  }
  return outcome;
}

int Fail(const std::string& who, const absl::Status& status) {
  const std::string line = absl::StrCat("char_lm: ", who, status.ToString(), "\n");
  std::fflush(stdout);
  std::fputs(line.c_str(), stderr);
  return kExitFailure;
}

int Run(const Options& options) {
  StopSignal stop_signal;
  UseOneThread();
  auto runtime = gyre::Runtime::Create();
  if (!runtime.ok()) return Fail("", runtime.status());
  const std::string who = absl::StrCat("rank ", (*runtime)->world().rank(), ": ");
  const auto outcome = TrainAndReport(**runtime, options, stop_signal);
  if (!outcome.ok()) return Fail(who, outcome.status());
  if (outcome->stopped_by == SIGTERM && !options.checkpoint.empty()) return kExitHalted;
  return outcome->stopped_by == 0 ? kExitSuccess : 128 + outcome->stopped_by;
}

}  // namespace

}  // namespace char_lm

int main(int argc, char** argv) {
  char_lm::Options options;
  if (const auto exit_code = char_lm::ParseOptions(argc, argv, options)) return *exit_code;
  return char_lm::Run(options);
}
