// A pipe whose ends close themselves.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "gtest/gtest.h"

namespace gyre::launch {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

// `flags`: as pipe2(2)'s.
inline Pipe MakePipe(int flags = 0) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC | flags), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace gyre::launch
