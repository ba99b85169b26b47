// A job of a test's ranks: options with which every rank of RunThreads or RunProcesses joins the same runtime.
#pragma once

#include <memory>

#include "gyre/options.h"
#include "gyre/runtime.h"
#include "support/ranks.h"

namespace gyre::support {

// Identity, store and secret for this rank. Rank 0 chooses the store's port; the others learn it through the group's
// directory. Blocks until it is known.
RuntimeOptions JobOptions(const Rank& rank);

// A runtime with these options; a failure to join fails the test and yields null.
std::unique_ptr<Runtime> JoinJob(const Rank& rank, RuntimeOptions options);
std::unique_ptr<Runtime> JoinJob(const Rank& rank);

}  // namespace gyre::support
