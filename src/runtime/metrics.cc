#include "runtime/metrics.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gyre/version.h"

namespace gyre::internal {

void Metrics::Count(const Observed& observed) {
  Counters& counters = counters_[static_cast<size_t>(observed.activity)];
  counters.calls.fetch_add(1);
  counters.bytes.fetch_add(observed.bytes);
  counters.nanoseconds.fetch_add(std::chrono::nanoseconds(observed.end - observed.begin).count());
  if (observed.failed) counters.failures.fetch_add(1);
}

std::string Metrics::Text() const {
  std::string text = absl::StrFormat(
      "# HELP gyre_info This rank.\n# TYPE gyre_info gauge\n"
      "gyre_info{version=\"%s\",rank=\"%d\",size=\"%d\",host=\"%d\"} 1\n",
      GYRE_VERSION_STRING, rank_, size_, host_);
  const auto family = [&](const char* name, const char* help, const auto& value_of) {
    absl::StrAppend(&text, "# HELP ", name, " ", help, "\n# TYPE ", name, " counter\n");
    for (size_t i = 0; i < kActivities; ++i) {
      absl::StrAppend(&text, name, "{op=\"", ActivityName(static_cast<Activity>(i)), "\"} ", value_of(counters_[i]),
                      "\n");
    }
  };
  family("gyre_calls_total", "Calls that have ended.", [](const Counters& c) { return c.calls.load(); });
  family("gyre_call_failures_total", "Calls that have ended in an error.",
         [](const Counters& c) { return c.failures.load(); });
  family("gyre_call_bytes_total", "Bytes of their longer buffers.", [](const Counters& c) { return c.bytes.load(); });
  family("gyre_call_seconds_total", "From each call to its end, waiting for others included.",
         [](const Counters& c) { return absl::StrFormat("%.9f", static_cast<double>(c.nanoseconds.load()) * 1e-9); });
  return text;
}

}  // namespace gyre::internal
