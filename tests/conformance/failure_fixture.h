// Conformance tests of failures run over threads and over processes.
#pragma once

#include "gtest/gtest.h"
#include "support/ranks.h"

namespace gyre {

class Failure : public testing::TestWithParam<support::Mode> {};

}  // namespace gyre
