#include <algorithm>
#include <cstdint>
#include <memory>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/str_cat.h"
#include "launch/help_formatter.h"
#include "launch/manifest.h"

namespace gyre::launch {

namespace {

constexpr int64_t kLongestSeconds = 1'000'000'000;  // an int32 has to hold it

// What is given as text.
struct RawManifestOptions {
  std::string gang = "none";
  std::string placement = "any";
};

void DeclareManifestOptions(CLI::App& app, ManifestOptions& options, RawManifestOptions& raw) {
  app.description("Prints the Kubernetes objects of a job: an MPIJob, its NetworkPolicy, its gang.");
  app.formatter(std::make_shared<HelpFormatter>("gyrerun manifest [OPTIONS] --command PROGRAM [ARGS...]"));
  app.add_option("--name", options.name, "The job's name")->type_name("NAME");
  app.add_option("--image", options.image, "Image of launcher and workers (k8s/images)")->type_name("IMAGE");
  app.add_option("--workers", options.workers, "How many")->type_name("N");
  app.add_option("--gpus", options.gpus, "GPUs of each worker (0)")->type_name("N");
  app.add_option("--size", options.size, "Of a worker: s, m, l, xl; with GPUs l4, a100, h100")->type_name("SIZE");
  app.add_option("--slots", options.slots, "Ranks of each worker (its GPUs, or else processors)")->type_name("N");
  app.add_option("--gang", raw.gang, "Who starts all pods or none: none, volcano, coscheduling, kueue")
      ->check(CLI::IsMember(std::vector<std::string>{"none", "volcano", "coscheduling", "kueue"}))
      ->type_name("WHO");
  app.add_option("--queue", options.queue, "Volcano's (default) or Kueue's (gyre)")->type_name("QUEUE");
  app.add_option("--placement", raw.placement, "Workers close together or apart: any, pack, spread")
      ->check(CLI::IsMember(std::vector<std::string>{"any", "pack", "spread"}))
      ->type_name("HOW");
  app.add_option("--deadline", options.deadline, "The cluster ends the job after so long (never)")
      ->check(CLI::Range(int64_t{1}, kLongestSeconds))
      ->type_name("SECONDS");
  app.add_option("--ttl", options.ttl, "The cluster deletes the job so long after its end (never)")
      ->check(CLI::Range(int64_t{0}, kLongestSeconds))
      ->type_name("SECONDS");
  app.add_option("--volume", options.volumes,
                 "Mount a PersistentVolumeClaim in all pods, whose / is read-only: for checkpoints; several times")
      ->allow_extra_args(false)
      ->type_name("CLAIM:PATH");
  app.add_option("--env", options.environment, "Set a variable for the ranks; several times")
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
  app.add_option("--service-account", options.service_account, "Of all pods; its token is not mounted")
      ->type_name("NAME");
  app.add_option("--priority", options.priority, "PriorityClass of all pods")->type_name("CLASS");
}

Gang ToGang(const std::string& text) {
  if (text == "volcano") return Gang::kVolcano;
  if (text == "coscheduling") return Gang::kCoscheduling;
  return text == "kueue" ? Gang::kKueue : Gang::kNone;
}

PodPlacement ToPlacement(const std::string& text) {
  if (text == "pack") return PodPlacement::kPack;
  return text == "spread" ? PodPlacement::kSpread : PodPlacement::kAny;
}

}  // namespace

absl::StatusOr<ManifestOptions> ParseManifestOptions(const std::vector<std::string>& arguments) {
  ManifestOptions options;
  CLI::App app;
  RawManifestOptions raw;
  DeclareManifestOptions(app, options, raw);
  const auto is_command = [](const std::string& word) { return word == "--command" || word == "--"; };
  const auto command = std::ranges::find_if(arguments, is_command);
  if (command != arguments.end()) options.command.assign(command + 1, arguments.end());
  std::vector<std::string> words(arguments.begin(), command);
  std::ranges::reverse(words);  // as the parser wants them
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    options.answer = app.help();
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(absl::StrCat("manifest: ", error.what(), "; try: gyrerun manifest --help"));
  }
  options.gang = ToGang(raw.gang);
  options.placement = ToPlacement(raw.placement);
  return options;
}

}  // namespace gyre::launch
