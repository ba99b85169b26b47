// A file that is written, and closed with its owner.
#pragma once

#include <cstdio>
#include <memory>

namespace gyre::bench {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OutputFile = std::unique_ptr<std::FILE, CloseFile>;

}  // namespace gyre::bench
