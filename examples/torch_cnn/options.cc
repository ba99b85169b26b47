#include "options.h"

#include <CLI/CLI.hpp>

namespace torch_cnn {

namespace {

constexpr int kExitUsage = 64;

constexpr char kFooter[] =
    "Start it under gyrerun: gyrerun -np 2 torch_cnn. Every rank trains on its share of each batch.\n"
    "Exit codes: 0 done; 1 failed, or replicas differ at the end; 64 wrong usage.";

}  // namespace

std::optional<int> ParseOptions(int argc, char** argv, Options& options) {
  CLI::App app("Trains a small convolutional network on generated images, with LibTorch, data-parallel over its ranks.",
               "torch_cnn");
  app.footer(kFooter);
  app.add_option("--steps", options.steps, "Steps of training")->check(CLI::Range(1, 1 << 24))->capture_default_str();
  app.add_option("--batch", options.batch, "Images a step, over all ranks: a multiple of their number")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--lr", options.learning_rate, "Adam's learning rate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--noise", options.noise, "Standard deviation of the noise on waves of amplitude 1")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of images and weights")->capture_default_str();
  app.add_option("--test-images", options.test_images, "Images to measure accuracy on, over all ranks")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Threads that LibTorch computes with, on each rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  return std::nullopt;
}

}  // namespace torch_cnn
