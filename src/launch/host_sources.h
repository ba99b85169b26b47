// Where hosts come from if not from -H: what a scheduler or platform leaves for the programs that it starts, and
// scripts that list hosts. Pure but for FindHosts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/environment.h"
#include "launch/hosts.h"
#include "launch/options.h"

namespace gyre::launch {

// Slurm's SLURM_JOB_NODELIST ("n[001-003,7],m-5") and SLURM_TASKS_PER_NODE ("2(x3),1"); without the latter one slot
// each. kInvalidArgument says which part of which is not understood.
absl::StatusOr<std::vector<HostSlots>> ParseSlurmHosts(std::string_view nodes, std::string_view tasks);

// SageMaker's resourceconfig.json: the hosts in natural order, the current one first.
absl::StatusOr<std::vector<HostSlots>> ParseSageMakerHosts(std::string_view json, int slots);

// A discovery script's output: a host a line, as in a hostfile, and with `slots` where the line gives none; in natural
// order (worker-2 before worker-10).
absl::StatusOr<std::vector<HostSlots>> ParseDiscoveredHosts(std::string_view text, int slots);

// Whether `a` comes before `b` where digits are taken as numbers.
bool NaturallyBefore(std::string_view a, std::string_view b);

// The hosts that the options ask for: from -H, a file, a platform or a script, which is run again, until `deadline`,
// while it fails or names fewer slots than -np. Empty: this host alone, since --hosts-from auto found nothing.
// kInvalidArgument: what they say is wrong; kUnavailable: the script did not name enough in time.
absl::StatusOr<std::vector<HostSlots>> FindHosts(const Options& options, const Environment& environment,
                                                 TimePoint deadline);

}  // namespace gyre::launch
