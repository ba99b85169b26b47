// FileDisk: the Disk of ps/interfaces.h as a folder of the file system.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ps/interfaces.h"

namespace gyre::ps {

// Thread-compatible. Files are made with mode 0600.
class FileDisk final : public Disk {
 public:
  explicit FileDisk(std::string folder) : folder_(std::move(folder)) {}  // which exists

  absl::Status Write(std::string_view name, std::string_view bytes) override;
  absl::Status Sync(std::string_view name) override;
  absl::Status Rename(std::string_view from, std::string_view to) override;
  absl::Status SyncFolder() override;
  absl::StatusOr<std::string> Read(std::string_view name) override;
  absl::Status Remove(std::string_view name) override;
  absl::StatusOr<std::vector<std::string>> List() override;

 private:
  std::string PathOf(std::string_view name) const { return folder_ + "/" + std::string(name); }

  const std::string folder_;
};

}  // namespace gyre::ps
