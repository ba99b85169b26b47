#include "scaling/findings.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace gyre::bench {

namespace {

constexpr char kOne[] = "1 server", kMany[] = "N servers", kBeside[] = "servers beside workers";
constexpr const char* kDense[] = {"ring", "few steps"};
constexpr int kUsual = 64;  // workers, or the most below; where all are more, the fewest

class Table {
 public:
  explicit Table(std::span<const Prediction> predictions) : predictions_(predictions) {
    for (const Prediction& each : predictions) {
      if (each.workers <= kUsual) usual_ = std::max(usual_, each.workers);
    }
    if (usual_ == 0 && !predictions.empty()) usual_ = std::ranges::min(predictions, {}, &Prediction::workers).workers;
  }

  int usual() const { return usual_; }

  const Prediction* Of(const std::string& model, const std::string& strategy, int workers) const {
    const auto found = std::ranges::find_if(predictions_, [&](const Prediction& each) {
      return each.model == model && each.strategy == strategy && each.workers == workers;
    });
    return found == predictions_.end() ? nullptr : &*found;
  }

  // The best of allreduce without compression.
  const Prediction* Dense(const std::string& model, int workers) const {
    const Prediction* best = nullptr;
    for (const char* const strategy : kDense) {
      const Prediction* const each = Of(model, strategy, workers);
      if (each != nullptr && (best == nullptr || each->images_per_second > best->images_per_second)) best = each;
    }
    return best;
  }

 private:
  std::span<const Prediction> predictions_;
  int usual_ = 0;
};

std::optional<Finding> FollowsComputation(std::span<const Model> models, const Table& table) {
  std::vector<std::pair<double, const Prediction*>> order;
  for (const Model& model : models) {
    if (const auto* const p = table.Of(model.name, kMany, table.usual()))
      order.emplace_back(FlopsPerParameter(model), p);
  }
  if (order.size() < 3) return std::nullopt;
  std::ranges::sort(order);
  std::vector<std::string> words;
  for (const auto& [flops, p] : order) {
    words.push_back(absl::StrFormat("%s %.0f: %.0f %%", p->model, flops, 100 * p->efficiency));
  }
  const bool shown = std::ranges::is_sorted(order, {}, [](const auto& each) { return each.second->efficiency; });
  return Finding{"Efficiency follows computation per parameter", shown,
                 absl::StrFormat("FLOP a parameter and sample, and efficiency of %d workers with as many servers: %s",
                                 table.usual(), absl::StrJoin(words, "; "))};
}

std::optional<Finding> BelowOneNode(std::span<const Prediction> predictions) {
  const Prediction* worst = nullptr;
  for (const Prediction& p : predictions) {
    if (p.model != "vgg16" || p.strategy != kOne || p.workers < 2) continue;
    if (worst == nullptr || p.workers * p.efficiency < worst->workers * worst->efficiency) worst = &p;
  }
  if (worst == nullptr) return std::nullopt;
  const double nodes = worst->workers * worst->efficiency;
  return Finding{"VGG-16 on one parameter server falls below one node", nodes < 1,
                 absl::StrFormat("%d workers train as fast as %.2f workers without exchange", worst->workers, nodes)};
}

// Of all models that have both: how many for which the first is slower, and their worst.
std::optional<Finding> Slower(const std::string& claim, std::span<const Model> models, int workers,
                              const std::function<const Prediction*(const std::string&)>& slower,
                              const std::function<const Prediction*(const std::string&)>& faster) {
  std::vector<std::string> words;
  bool shown = true;
  for (const Model& model : models) {
    const Prediction *const a = slower(model.name), *const b = faster(model.name);
    if (a == nullptr || b == nullptr) continue;
    shown = shown && a->images_per_second <= b->images_per_second;
    words.push_back(absl::StrFormat("%s %.2f (exchange alone %.2f)", model.name,
                                    b->images_per_second / a->images_per_second,
                                    a->exchange_seconds / b->exchange_seconds));
  }
  if (words.empty()) return std::nullopt;
  return Finding{claim, shown,
                 absl::StrFormat("how many times as fast, %d workers: %s", workers, absl::StrJoin(words, "; "))};
}

std::optional<Finding> EnoughServersWin(std::span<const Model> models, const Setting& setting) {
  const auto model = std::ranges::find(models, "vgg16", &Model::name);
  if (model == models.end()) return std::nullopt;
  constexpr int kHosts = 16;
  internal::AdviceQuestion question = setting.network;
  question.model_bytes = static_cast<double>(model->count()) * sizeof(float);
  question.hosts = question.most_servers = kHosts;
  const auto advice = internal::Advise(question);
  if (!advice.ok()) return std::nullopt;
  double dense = 1e300;
  std::map<int, double> apart;
  for (const internal::Advice& row : *advice) {
    if (row.strategy == "servers apart") apart[row.servers] = row.seconds;
    if (row.strategy == "allreduce, over hosts" || row.strategy == "allreduce, over hosts, few steps") {
      dense = std::min(dense, row.seconds);
    }
  }
  const auto enough = std::ranges::find_if(apart, [&](const auto& each) { return each.second < dense; });
  const std::string text =
      enough == apart.end()
          ? std::string("no number is enough")
          : absl::StrFormat(
                "VGG-16's exchange on %d hosts: %.0f ms by allreduce, less from %d servers on (%.0f ms), "
                "%.0f ms with %d",
                kHosts, dense * 1e3, enough->first, enough->second * 1e3, apart[kHosts] * 1e3, kHosts);
  return Finding{"Servers win with enough spare hosts", enough != apart.end(), text};
}

}  // namespace

double FlopsPerParameter(const Model& model) {
  return (1 + kBackwardFactor) * model.forward_flops() / static_cast<double>(model.count());
}

std::vector<Finding> Findings(std::span<const Model> models, std::span<const Prediction> predictions,
                              const Setting& setting) {
  const Table table(predictions);
  const int workers = table.usual();
  const auto of = [&](const char* strategy) {
    return [&table, strategy, workers](const std::string& model) { return table.Of(model, strategy, workers); };
  };
  const auto dense = [&](const std::string& model) { return table.Dense(model, workers); };
  std::vector<Finding> findings;
  const std::optional<Finding> all[] = {
      FollowsComputation(models, table), BelowOneNode(predictions),
      Slower("Servers on the workers' hosts cost, beside as many on hosts of their own", models, workers, of(kBeside),
             of(kMany)),
      Slower("Without spare hosts allreduce wins", models, workers, of(kBeside), dense),
      EnoughServersWin(models, setting)};
  for (const std::optional<Finding>& each : all) {
    if (each) findings.push_back(*each);
  }
  return findings;
}

}  // namespace gyre::bench
