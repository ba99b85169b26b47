// Files that readers never find half written.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"

namespace gyre::launch {

// Writes a file beside PATH and renames it to PATH in the end; until then PATH is what it was. The file beside it is
// new and has a random name, so nobody can have a link there that leads elsewhere. If PATH is no regular file (a pipe,
// a terminal, /dev/null), writes to PATH itself without blocking. Errors name PATH. Not thread-safe.
class WholeFile {
 public:
  static absl::StatusOr<WholeFile> Open(const std::string& path);
  WholeFile(WholeFile&&) = default;
  WholeFile& operator=(WholeFile&&) = delete;
  // Removes the file beside PATH if Finish has not renamed it.
  ~WholeFile();

  // Keeps up to 64 KiB back.
  absl::Status Write(std::string_view text);
  // Call it last.
  absl::Status Finish();

 private:
  WholeFile() = default;
  absl::Status Flush();

  UniqueFd fd_;
  std::string path_;    // as given
  std::string file_;    // what it stands for
  std::string beside_;  // empty: PATH itself is written, or all is done
  std::string buffer_;
};

// Open, Write and Finish.
absl::Status WriteWholeFile(const std::string& path, std::string_view text);

}  // namespace gyre::launch
