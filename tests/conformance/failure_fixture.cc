#include "conformance/failure_fixture.h"

namespace gyre {
namespace {

using support::Mode;

INSTANTIATE_TEST_SUITE_P(All, Failure, testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& info) { return support::ModeName(info.param); });

}  // namespace
}  // namespace gyre
