// Carrier: what takes data between hosts, TCP or UCX, and how the ranks of a job come to take the same. Pure.
//
// GYRE_BACKEND decides where it is given. Else UCX is taken where every rank can use an RDMA port and has started UCX,
// if a measurement of the links when the job starts does not find it slower than TCP.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "collectives/selection/selector.h"
#include "runtime/network_model.h"

namespace gyre::internal {

// One rank's part.
struct CarrierOffer {
  std::string endpoint;        // where its hub listens
  std::string ucx{};           // its address with UCX; empty: it goes without
  std::string why_not_ucx{};   // where it goes without, and nothing is forced
  std::string why_not_rdma{};  // empty: it can use an RDMA port
  bool forced = false;         // its GYRE_BACKEND says which

  friend bool operator==(const CarrierOffer&, const CarrierOffer&) = default;
};

std::string Encode(const CarrierOffer& offer);
absl::StatusOr<CarrierOffer> DecodeCarrierOffer(const std::string& text);

struct CarrierChoice {
  bool ucx = false;
  bool forced = false;  // else it is for the measurement to say
  std::string why{};
  std::optional<int> without_rdma{};  // the first rank that has none

  // Whether UCX is to be measured beside TCP: to be judged, or for a warning.
  bool compared() const { return ucx && (!forced || without_rdma); }
};

// `offers`, `names`: by rank of the job. kInvalidArgument names two ranks that are given different backends, or one
// that is given UCX and one that cannot follow.
absl::StatusOr<CarrierChoice> AgreeOnCarrier(std::span<const CarrierOffer> offers, std::span<const std::string> names);

// What a measurement says against UCX, by all ranks' reports; empty: nothing. `by_ucx`, `by_tcp`: what the ranks have
// agreed on. To be slower is to take 1.25 times as long for 1 MiB: a measurement of milliseconds is no better.
std::string CaseAgainstUcx(std::span<const NetworkReport> reports, const PathModel& by_ucx, const PathModel& by_tcp);

// "0.8 Gbit/s at 25.0 us by UCX, 0.9 Gbit/s at 20.0 us by TCP".
std::string Compared(const PathModel& by_ucx, const PathModel& by_tcp);

}  // namespace gyre::internal
