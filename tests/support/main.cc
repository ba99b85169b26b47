// main() of every test binary.
#include <gmock/gmock.h>

#include <iostream>

#include "support/child.h"

int main(int argc, char** argv) {
  using gyre::support::ThisChild;
  ThisChild();  // before any test can look at the environment
  testing::InitGoogleMock(&argc, argv);
  const int code = RUN_ALL_TESTS();
  if (ThisChild() && code == 0) {
    // The body of a child exits by itself: whoever comes here never met it.
    std::cout << "rank " << ThisChild()->rank.rank << " never reached its body" << std::endl;
    return gyre::support::kNeverRanExitCode;
  }
  return code;
}
