#include "model.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "generators.h"

namespace gyre::bench {

namespace {

constexpr std::array<std::string_view, 9> kNames = {"resnet50", "resnet101",  "vgg16",      "googlenet", "inception3",
                                                    "alexnet",  "bert-large", "deepspeech", "lstm-ptb"};
constexpr std::array<Model (*)(), 9> kGenerators = {ResNet50, ResNet101, Vgg16,      GoogLeNet, Inception3,
                                                    AlexNet,  BertLarge, DeepSpeech, LstmPtb};

}  // namespace

int64_t Parameter::count() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t Model::count() const {
  int64_t sum = 0;
  for (const Parameter& each : parameters) sum += each.count();
  return sum;
}

double Model::forward_flops() const {
  double sum = 0;
  for (const Parameter& each : parameters) sum += each.forward_flops;
  return sum;
}

std::vector<int> BackwardOrder(const Model& model) {
  std::vector<int> order(model.parameters.size());
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

std::span<const std::string_view> ModelNames() {
  return kNames;
}

absl::StatusOr<Model> MakeModel(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  if (found != kNames.end()) return kGenerators[static_cast<size_t>(found - kNames.begin())]();
  const std::vector<std::string> names(kNames.begin(), kNames.end());
  return absl::InvalidArgumentError(
      absl::StrCat("no model '", std::string(name), "'; there are ", absl::StrJoin(names, ", ")));
}

}  // namespace gyre::bench
