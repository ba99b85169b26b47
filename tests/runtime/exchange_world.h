// All ranks' sparse exchanges of one job on one thread: their calls are carried out in lock step, in memory or over a
// simulated network, so that jobs of many hosts and forms that a small job does not take are tests of milliseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/hierarchical/sim_world.h"
#include "runtime/codec_device.h"
#include "runtime/compressed_exchange.h"

namespace gyre {

class ExchangeWorld {
 public:
  using DeviceOf = std::function<std::shared_ptr<internal::CodecDevice>(int rank)>;

  // `settings`: without ranks. `hosts`: by rank. `network`: between hosts of one rank each; null: in memory. Gradients
  // are in the host's memory, which `device_of` must reach.
  ExchangeWorld(
      const Compression& compression, const internal::ExchangeSettings& settings, const std::vector<int>& hosts,
      SimWorld* network = nullptr, const DeviceOf& device_of = [](int) { return internal::MakeHostDevice(); });

  int ranks() const { return static_cast<int>(exchanges_.size()); }
  internal::CompressedExchange& exchange(int rank) { return *exchanges_[static_cast<size_t>(rank)]; }
  std::span<float> values(int rank, size_t tensor) { return values_[static_cast<size_t>(rank)][tensor]; }

  void BeginStep(int64_t step);

  // Exchanges these gradients, on all ranks. An error is the first rank's that had one.
  absl::Status Exchange(const std::vector<int>& tensors, bool dense = false);

  // Prepares them as far as it goes. How many times that did something.
  int Prepare(int rank, const std::vector<int>& tensors);

  // Calls of all ranks that the last Exchange has made.
  int calls() const { return calls_; }

  // Bytes that these have brought to a rank from others, in the mean, without those of allreduces.
  double received() const { return static_cast<double>(received_) / ranks(); }

 private:
  struct Pending {
    std::optional<internal::Call> call;
    bool within_host = false, ended = false;
  };

  internal::ExchangePart PartOf(int rank, const std::vector<int>& tensors, bool dense);
  absl::Status Await(int rank);
  absl::Status Advance(int rank);
  absl::Status RunReady();
  absl::Status Run(const std::vector<int>& ranks, bool between_hosts);

  const std::vector<int> hosts_;
  SimWorld* const network_;
  std::vector<std::unique_ptr<internal::CompressedExchange>> exchanges_;
  std::vector<std::vector<std::vector<float>>> values_;  // by rank and place
  std::vector<Pending> pending_;
  int calls_ = 0;
  int64_t received_ = 0;
};

}  // namespace gyre
