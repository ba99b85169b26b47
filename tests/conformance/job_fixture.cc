// The suite on a rank of a launcher's job: `gyrerun -H a,b collectives_conformance_job` runs it over real hosts. Every
// test makes a runtime of its own; a rank on which one fails says what differs and exits with 1.
#include <chrono>
#include <string>

#include "conformance/collectives_fixture.h"
#include "support/status_matchers.h"

namespace gyre {

using support::HostSizes;
using support::IsOk;
using support::Mode;

int64_t Conformance::LargeBytes() {
  return (int64_t{2} << 20) + 100'000;
}

void Conformance::Run(const std::function<void(Runtime&, Communicator&)>& body) {
  RuntimeOptions options;
  options.operation_timeout = std::chrono::seconds(60);
  options.heartbeat_timeout = std::chrono::seconds(10);  // a busy machine may starve a rank for over a second
  auto runtime = Runtime::Create(options);
  ASSERT_THAT(runtime, IsOk());
  body(**runtime, (*runtime)->world());
  EXPECT_THAT((*runtime)->world().Barrier(), IsOk()) << "the group did not stay in step";
}

namespace {

// The launcher decides how many ranks there are, and where.
INSTANTIATE_TEST_SUITE_P(Job, Conformance, testing::Values(std::tuple(Mode::kProcesses, HostSizes())),
                         [](const auto&) { return std::string("Rank"); });

}  // namespace

}  // namespace gyre
