#include "options.h"

#include <CLI/CLI.hpp>
#include <limits>
#include <map>

#include "exit_code.h"

namespace char_lm {

namespace {

struct Preset {
  int context;
  int hidden;
  int64_t batch;
  float learning_rate;
};

constexpr char kFooter[] =
    "The same seed, text and --batch train the same model on any number of ranks, of one kind of processor, or, with\n"
    "--portable-arithmetic, of any.\n"
    "Exit codes: 0 done; 1 failed, with one line on standard error; 64 wrong usage; 130 or 143 stopped by SIGINT or\n"
    "SIGTERM at the end of a step, all ranks at the same (a second signal ends the rank at once).";

void AddOptions(CLI::App& app, Options& options, std::string& preset) {
  constexpr auto kMost = std::numeric_limits<int32_t>::max();
  app.add_option("--text", options.text, "Text to learn, any file (default: this machine's licence texts)");
  app.add_option("--steps", options.steps, "Steps to have trained at the end")->check(CLI::Range(0, kMost));
  app.add_option("--batch", options.batch, "Characters a step, over all ranks (default: the preset's)")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--preset", preset, "Size of the model: small or medium")
      ->check(CLI::IsMember({"small", "medium"}))
      ->capture_default_str();
  app.add_option("--lr", options.learning_rate, "Learning rate at the start (default: the preset's; of momentum, 0.3)")
      ->check(CLI::PositiveNumber);
  app.add_flag("--momentum", options.momentum,
               "Momentum 0.9 in place of Adam, with a rate that falls to 0 as a cosine does");
  app.add_option("--seed", options.seed, "Seed of the weights and of the choice of samples")->capture_default_str();
  app.add_flag("--portable-arithmetic", options.portable,
               "Compute the same bits on every kind of processor, without BLAS: somewhat slower");
  app.add_option("--heldout-fraction", options.heldout_fraction,
                 "Share of the text, from its end, that is not trained on (200,000 characters at most)")
      ->check(CLI::Range(0.0001, 0.9))
      ->capture_default_str();
  auto* compression = app.add_option("--compression", options.compression,
                                     "Compress the gradients, within a host too: fp16, int8, powersgd:4, dgc, ... "
                                     "(include/gyre/compression.h); dgc takes --momentum");
  app.add_option("--sparsity", options.sparsity, "Of --compression topk, randomk or dgc (0.999)")
      ->check(CLI::Range(0.0, 0.999999))
      ->needs(compression);
  app.add_flag("!--no-masking", options.masking, "Of --compression dgc: leave the momentum of what was sent in place")
      ->needs(compression);
  const std::map<std::string, Wrong> wrongs = {{"no-residual", Wrong::kNoResidual},
                                               {"double-momentum", Wrong::kDoubleMomentum}};
  auto* experiment =
      app.add_option(
             "--experiment", options.wrong,
             "Of --compression, to see what it costs: forget after each step what was not sent (no-residual), or "
             "apply momentum to what has it (double-momentum)")
          ->transform(CLI::CheckedTransformer(wrongs))
          ->needs(compression);
  app.add_option("--eval-every", options.eval_every, "Evaluate on the held-out text every so many steps")
      ->check(CLI::Range(1, kMost));
  auto* checkpoint = app.add_option("--checkpoint", options.checkpoint, "Write the state of training to this file")
                         ->excludes(experiment);  // whose state is not in it
  app.add_option("--checkpoint-every", options.checkpoint_every, "Every so many steps (default: at the end only)")
      ->check(CLI::Range(1, kMost))
      ->needs(checkpoint);
  app.add_option(
         "--stop-at", options.stop_at,
         "Stop after so many steps for now: --resume goes on. (With --momentum the rate depends on --steps, which "
         "must stay as it is.)")
      ->check(CLI::Range(1, kMost))
      ->needs(checkpoint);
  app.add_flag(
         "--resume", options.resume,
         "Go on from --checkpoint, to the bit as if never stopped. Refused where that cannot be: other options, or "
         "with compression another number of ranks")
      ->needs(checkpoint);
  app.add_option(
         "--strategy", options.strategy,
         "allreduce, or ps: through parameter servers (gyrerun --servers), where ranks do not wait for a step's "
         "end together, nor stop together, and need no checkpoint")
      ->check(CLI::IsMember({"allreduce", "ps"}));
  app.add_option("--consistency", options.consistency, "Of ps: bsp, ssp or async")
      ->check(CLI::IsMember({"bsp", "ssp", "async"}));
  app.add_option("--staleness", options.staleness, "Of ssp: steps that the fastest rank may be ahead")
      ->check(CLI::Range(0, kMost));
  app.add_option("--values", options.values,
                 "Of ps: how weights come back, rounded: f32 (not at all), f16, bf16 or int8")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8"}));
  app.add_option("--loss-file", options.loss_file,
                 "Write a line \"step,loss\" a step (with --resume: from the checkpoint on)");
  app.add_flag("--json", options.json, "End with one line of JSON");
  app.add_flag("--quiet", options.quiet, "No progress");
}

}  // namespace

std::optional<int> ParseOptions(int argc, char** argv, Options& options) {
  CLI::App app("Trains a character-level language model, data-parallel over the ranks it is started on.", "char_lm");
  app.footer(kFooter);
  std::string preset = "small";
  AddOptions(app, options, preset);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitSuccess : kExitUsage;
  }
  const Preset chosen = preset == "small"
                            ? Preset{.context = 8, .hidden = 288, .batch = 1536, .learning_rate = 0.006f}
                            : Preset{.context = 12, .hidden = 512, .batch = 4096, .learning_rate = 0.004f};
  options.context = chosen.context;
  options.hidden = chosen.hidden;
  if (options.batch == 0) options.batch = chosen.batch;
  if (options.learning_rate == 0) options.learning_rate = options.momentum ? 0.3f : chosen.learning_rate;
  return std::nullopt;
}

}  // namespace char_lm
