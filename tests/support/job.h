// A job of a test's ranks: options with which every rank of RunThreads or RunProcesses joins the same runtime.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gyre/options.h"
#include "gyre/runtime.h"
#include "support/ranks.h"

namespace gyre::support {

// Identity, store and secret for this rank. Rank 0 chooses the store's port; the others learn it through the group's
// directory. Blocks until it is known.
RuntimeOptions JobOptions(const Rank& rank);

// Where a test's ranks are: so many on each of these hosts, one host after the other.
using HostSizes = std::vector<int>;

// The same over several hosts, which are this machine told that it is several: their ranks share no memory and talk by
// TCP over the loopback. One that is silent there is lost after 10 s: a test of frozen ranks sets its own time-out.
RuntimeOptions JobOptions(const Rank& rank, const HostSizes& hosts);

// The same job, restarted: its name, secret and hosts are the old ones, and so is the store's address, wherever rank 0
// is now. Blocks until a rank 0 of epoch 0 has chosen that.
RuntimeOptions RestartedJobOptions(const Rank& rank, const HostSizes& hosts, int64_t epoch);

// A runtime with these options; a failure to join fails the test and yields null.
std::unique_ptr<Runtime> JoinJob(const Rank& rank, RuntimeOptions options);
std::unique_ptr<Runtime> JoinJob(const Rank& rank);

}  // namespace gyre::support
