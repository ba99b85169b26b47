#include "options.h"

#include <CLI/CLI.hpp>
#include <map>

#include "exit_code.h"

namespace cudnn_cnn {

namespace {

constexpr char kFooter[] =
    "Start it under gyrerun: gyrerun -np 2 cudnn_cnn. Each rank takes the GPU whose number is its own on its host, "
    "modulo\n"
    "how many there are, and trains on its share of each batch. Convolutions in f32 may use TF32, as cuDNN does "
    "unasked.\n"
    "Exit codes: 0 done; 1 failed, or replicas differ at the end; 64 wrong usage; 77 there is no GPU that CUDA can "
    "use.";

void AddTraining(CLI::App& app, Options& options) {
  app.add_option("--steps", options.steps, "Steps of training")->check(CLI::Range(1, 1 << 24))->capture_default_str();
  app.add_option("--batch", options.batch, "Images a step, over all ranks: a multiple of their number")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--lr", options.learning_rate, "Highest learning rate; it rises to it and falls as a cosine does")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--momentum", options.momentum, "Momentum of SGD")
      ->check(CLI::Range(0.0, 0.9999))
      ->capture_default_str();
  app.add_option("--decay", options.decay, "Weight decay of what is multiplied with")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of weights, generated images and their order")->capture_default_str();
}

void AddModel(CLI::App& app, Options& options) {
  app.add_option("--width", options.width, "Channels of the first of three stages, a multiple of 8; the others double")
      ->check(CLI::Range(8, 1024))
      ->capture_default_str();
  app.add_option("--blocks", options.blocks, "Residual blocks of each stage")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  const std::map<std::string, Precision> precisions = {{"f32", Precision::kF32}, {"bf16", Precision::kBf16}};
  app.add_option("--precision", options.precision, "Of activations and of convolutions' gradients: f32 or bf16")
      ->transform(CLI::CheckedTransformer(precisions).description(""))
      ->default_str("f32");
}

}  // namespace

std::optional<int> ParseOptions(int argc, const char* const* argv, Options& options) {
  CLI::App app("Trains a residual convolutional network with cuDNN and cuBLAS, data-parallel over its ranks' GPUs.",
               "cudnn_cnn");
  app.footer(kFooter);
  AddTraining(app, options);
  AddModel(app, options);
  CLI::Option* images = app.add_option("--idx-images", options.image_file, "Images to learn, an IDX file (as MNIST's)");
  CLI::Option* labels = app.add_option("--idx-labels", options.label_file, "Their classes, an IDX file");
  images->needs(labels);
  labels->needs(images);
  app.add_option("--images", options.images, "How many images are generated to learn")
      ->check(CLI::Range(1, 1 << 24))
      ->excludes(images)
      ->capture_default_str();
  app.add_option("--side", options.side, "Pixels of their sides")
      ->check(CLI::Range(8, 512))
      ->excludes(images)
      ->capture_default_str();
  app.add_flag("--overlap,!--no-overlap", options.overlap,
               "Give each gradient away as the backward pass comes to it (on by default), or all after its end");
  app.add_option("--report-every", options.report_every, "Steps from one line of progress to the next")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_flag("--json", options.json, "The last line as JSON");
  try {
    app.parse(argc, argv);
    if (options.width % 8 != 0) throw CLI::ValidationError("--width", "must be a multiple of 8");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  return std::nullopt;
}

}  // namespace cudnn_cnn
