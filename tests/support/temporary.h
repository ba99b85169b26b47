// Names and folders that no other test, nor another run of this one, has.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace gyre::support {

// "`prefix`-<process>-<16 random hexadecimal digits>": fit for a job id, a file or an abstract socket.
std::string UniqueName(std::string_view prefix);

// A folder whose files are kept in memory: /dev/shm where it can be written to, else that of temporary files.
std::filesystem::path MemoryFolder();

// A new folder of mode 0700, removed with all it holds when this object goes.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::filesystem::path& in = std::filesystem::temp_directory_path());
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace gyre::support
