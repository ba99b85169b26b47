// MemoryDisk: a folder in memory that forgets in a crash what a real one may forget, and can fail from any call on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ps/interfaces.h"
#include "support/mutator.h"

namespace gyre::ps {

class MemoryDisk final : public Disk {
 public:
  absl::Status Write(std::string_view name, std::string_view bytes) override;
  absl::Status Sync(std::string_view name) override;
  absl::Status Rename(std::string_view from, std::string_view to) override;
  absl::Status SyncFolder() override;
  absl::StatusOr<std::string> Read(std::string_view name) override;
  absl::Status Remove(std::string_view name) override;
  absl::StatusOr<std::vector<std::string>> List() override;

  // After so many more changing calls all fail; the one at which it happens may have been done by half.
  void FailAfter(int64_t calls) { calls_left_ = calls; }
  bool failing() const { return calls_left_ && *calls_left_ <= 0; }
  int64_t calls() const { return calls_; }  // changing ones, so far

  // While it is full, of what is written half gets there, with an error; all else succeeds.
  void SetFull(bool full) { full_ = full; }

  // The process has ended: nothing is forgotten. Calls succeed again.
  void EndProcess() { calls_left_.reset(); }

  // The machine has crashed: of what was not synced, some is there, some is not, some is cut short.
  void Crash(support::Mutator& random);

  // It is gone with all that was on it, and another one is there.
  void Lose() {
    files_.clear();
    folder_.clear();
    calls_left_.reset();
  }

  // Called with the name of each file that is written.
  std::function<void(std::string_view name)> on_write = [](std::string_view) {};

 private:
  struct File {
    std::string bytes;
    std::optional<std::string> synced{};
  };
  absl::Status Count();

  std::map<std::string, File, std::less<>> files_;
  std::map<std::string, File, std::less<>> folder_;  // as of the last SyncFolder
  std::optional<int64_t> calls_left_;
  int64_t calls_ = 0;
  bool full_ = false;
};

}  // namespace gyre::ps
