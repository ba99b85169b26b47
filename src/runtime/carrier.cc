#include "runtime/carrier.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace gyre::internal {

namespace {

constexpr double kComparedBytes = 1 << 20;
constexpr double kSlower = 1.25;

double SecondsOf(const PathModel& model) {
  return model.latency + kComparedBytes / model.bytes_per_second;
}

absl::Status Differ(std::span<const std::string> names, size_t with, size_t without) {
  return absl::InvalidArgumentError(absl::StrCat("GYRE_BACKEND (backend) differs: ucx on ", names[with], ", not on ",
                                                 names[without], "; give all ranks the same"));
}

}  // namespace

std::string Encode(const CarrierOffer& offer) {
  return nlohmann::json{{"endpoint", offer.endpoint},
                        {"ucx", offer.ucx},
                        {"why_not_ucx", offer.why_not_ucx},
                        {"why_not_rdma", offer.why_not_rdma},
                        {"forced", offer.forced}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // what a library says may be any bytes
}

absl::StatusOr<CarrierOffer> DecodeCarrierOffer(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  CarrierOffer offer;
  const auto read = [&](const char* key, std::string& into) {
    if (!json.is_object() || !json.contains(key) || !json[key].is_string()) return false;
    into = json[key];
    return true;
  };
  if (!read("endpoint", offer.endpoint) || !read("ucx", offer.ucx) || !read("why_not_ucx", offer.why_not_ucx) ||
      !read("why_not_rdma", offer.why_not_rdma) || !json.contains("forced") || !json["forced"].is_boolean()) {
    return absl::DataLossError("a rank's address for other hosts cannot be read");
  }
  offer.forced = json["forced"];
  return offer;
}

absl::StatusOr<CarrierChoice> AgreeOnCarrier(std::span<const CarrierOffer> offers, std::span<const std::string> names) {
  std::optional<size_t> told_ucx, told_tcp, without, without_rdma;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const CarrierOffer& offer = offers[rank];
    if (offer.forced && !(offer.ucx.empty() ? told_tcp : told_ucx)) (offer.ucx.empty() ? told_tcp : told_ucx) = rank;
    if (offer.ucx.empty() && !without) without = rank;
    if (!offer.why_not_rdma.empty() && !without_rdma) without_rdma = rank;
  }
  if (told_ucx && without) return Differ(names, *told_ucx, told_tcp.value_or(*without));
  CarrierChoice choice{.ucx = !without && !told_tcp, .forced = told_ucx || told_tcp};
  if (without_rdma) choice.without_rdma = static_cast<int>(*without_rdma);
  if (choice.forced) {
    choice.why = "GYRE_BACKEND says so";
  } else {
    choice.why = without ? absl::StrCat(names[*without], ": ", offers[*without].why_not_ucx)
                         : "all ranks can use an RDMA port and UCX";
  }
  return choice;
}

std::string CaseAgainstUcx(std::span<const NetworkReport> reports, const PathModel& by_ucx, const PathModel& by_tcp) {
  const auto failed = std::ranges::find_if(reports, [](const auto& report) { return !report.ucx_failure.empty(); });
  if (failed != reports.end()) return absl::StrCat("rank ", failed - reports.begin(), ": ", failed->ucx_failure);
  if (SecondsOf(by_ucx) <= kSlower * SecondsOf(by_tcp)) return "";
  return absl::StrCat("UCX is slower: ", Compared(by_ucx, by_tcp));
}

std::string Compared(const PathModel& by_ucx, const PathModel& by_tcp) {
  const auto text = [](const PathModel& model) {
    return absl::StrFormat("%.2f Gbit/s at %.1f us", model.bytes_per_second * 8e-9, model.latency * 1e6);
  };
  return absl::StrCat(text(by_ucx), " by UCX, ", text(by_tcp), " by TCP");
}

}  // namespace gyre::internal
