#include "gpu/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "device/cuda/factory.h"
#include "device/gpu.h"
#include "gpu/cases.h"
#include "gpu/cuda.h"
#include "gyre/status_macros.h"
#include "nlohmann/json.hpp"
#include "output_file.h"
#include "timing.h"

namespace gyre::bench::gpu {

namespace {

struct Rates {
  double rate, copy, share;  // bytes a second, of both; medians, of the share by pairs
  double seconds;
  int64_t runs = 0, rescans = 0;  // all that were made, and Case::rescans of them
};

absl::StatusOr<int64_t> RescansOf(const Case& what) {
  return what.rescans ? what.rescans() : 0;
}

// By turns with a copy of as many bytes, half of them read.
absl::StatusOr<Rates> MeasureCase(const Case& what, const Stream& stream, std::byte* from, std::byte* to, int samples) {
  constexpr int kWarmup = 3;
  constexpr double kSample = 1e-3;  // seconds that one sample should take, so that launches do not show
  const auto copy = [&] {
    return Check(cudaMemcpyAsync(to, from, static_cast<size_t>(what.bytes / 2), cudaMemcpyDeviceToDevice, stream.get()),
                 "copying");
  };
  ASSIGN_OR_RETURN(const double once, stream.Time(kWarmup, what.run));  // it has been run before: CheckAll
  const int calls = std::clamp(static_cast<int>(std::ceil(kSample / std::max(once, 1e-7))), 1, 100);
  std::vector<double> seconds, rates, copies, shares;
  ASSIGN_OR_RETURN(const int64_t rescans, RescansOf(what));
  for (int i = -kWarmup; i < samples; ++i) {
    if (what.refresh) RETURN_IF_ERROR(what.refresh());
    ASSIGN_OR_RETURN(const double copied, stream.Time(calls, copy));
    ASSIGN_OR_RETURN(const double ran, stream.Time(calls, what.run));
    if (i < 0) continue;
    const auto bytes = static_cast<double>(what.bytes);
    seconds.push_back(ran);
    rates.push_back(bytes / ran);
    copies.push_back(bytes / copied);
    shares.push_back(copied / ran);
  }
  ASSIGN_OR_RETURN(const int64_t rescans_after, RescansOf(what));
  return Rates{.rate = Summarize(std::move(rates)).median,
               .copy = Summarize(std::move(copies)).median,
               .share = Summarize(std::move(shares)).median,
               .seconds = Summarize(std::move(seconds)).median,
               .runs = int64_t{calls} * (samples + kWarmup),
               .rescans = rescans_after - rescans};
}

// The names of those whose results are not the host's; which differences these are goes to stderr.
absl::StatusOr<std::set<std::string>> CheckAll(const std::vector<const Case*>& chosen) {
  std::set<std::string> wrong;
  for (const Case* const each : chosen) {
    const absl::Status checked = each->check(each->run);
    if (checked.ok()) continue;
    if (!absl::IsDataLoss(checked)) return checked;
    std::fprintf(stderr, "gyre-bench gpu: %s: %s\n", each->name.c_str(), checked.ToString().c_str());
    wrong.insert(each->name);
  }
  return wrong;
}

void PrintRates(const Case& what, const Rates& got, bool right, const std::string& gpu, std::FILE* json) {
  const std::string rescans = what.rescans ? absl::StrFormat("  %d of %d rescanned", got.rescans, got.runs) : "";
  absl::PrintF("%-48s %12d %10.1f %12.1f %12.1f %7.1f%%%s%s\n", what.name, what.bytes, got.seconds * 1e6,
               got.rate * 1e-9, got.copy * 1e-9, got.share * 100, rescans, right ? "" : "  WRONG");
  std::fflush(stdout);
  if (json == nullptr) return;
  nlohmann::ordered_json line = {{"lib", "gyre"},
                                 {"op", "gpu_kernel"},
                                 {"gpu", gpu},
                                 {"group", what.group},
                                 {"kernel", what.name},
                                 {"bytes", what.bytes},
                                 {"right", right},
                                 {"time_us_med", got.seconds * 1e6},
                                 {"gbs", got.rate * 1e-9},
                                 {"copy_gbs", got.copy * 1e-9},
                                 {"share_of_copy", got.share}};
  if (what.rescans) line.update({{"runs", got.runs}, {"rescans", got.rescans}});
  absl::FPrintF(json, "%s\n", line.dump());
  std::fflush(json);
}

}  // namespace

absl::Status RunKernels(const KernelOptions& options) {
  ASSIGN_OR_RETURN(const OutputFile json, OpenOutputFile(options.json));
  ASSIGN_OR_RETURN(const int ordinal, ChooseGpu(0));
  ASSIGN_OR_RETURN(const auto gpu, device::cuda::OpenGpu(ordinal));
  ASSIGN_OR_RETURN(const Stream stream, Stream::Make());
  Cases cases(*gpu, stream.get());
  RETURN_IF_ERROR(AddAll(cases));
  ASSIGN_OR_RETURN(const auto chosen, Choose(cases, options.only));
  const int64_t largest = (*std::ranges::max_element(chosen, {}, &Case::bytes))->bytes / 2;
  ASSIGN_OR_RETURN(const Memory from, Memory::Make(largest));
  ASSIGN_OR_RETURN(const Memory to, Memory::Make(largest));
  ASSIGN_OR_RETURN(const auto wrong, CheckAll(chosen));
  absl::PrintF("# %s; by turns with copies within its memory of as many bytes, read and written; medians of %d\n",
               gpu->name(), options.samples);
  absl::PrintF("#%-47s %12s %10s %12s %12s %8s\n", "kernel", "bytes", "us", "GB/s", "copy GB/s", "of copy");
  for (const Case* const each : chosen) {
    ASSIGN_OR_RETURN(const Rates got, MeasureCase(*each, stream, from.data(), to.data(), options.samples));
    PrintRates(*each, got, !wrong.contains(each->name), gpu->name(), json.get());
  }
  if (wrong.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("wrong results of ", absl::StrJoin(wrong, "; ")));
}

}  // namespace gyre::bench::gpu
