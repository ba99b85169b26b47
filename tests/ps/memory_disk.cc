#include "memory_disk.h"

namespace gyre::ps {

absl::Status MemoryDisk::Count() {
  if (calls_left_ && *calls_left_ <= 0) return absl::UnavailableError("the disk has failed");
  ++calls_;
  if (calls_left_ && --*calls_left_ == 0) return absl::UnavailableError("the disk fails");
  return absl::OkStatus();
}

absl::Status MemoryDisk::Write(std::string_view name, std::string_view bytes) {
  const bool worked = !failing();
  absl::Status status = Count();
  if (full_) status.Update(absl::ResourceExhaustedError("no space left on device"));
  if (worked) {
    on_write(name);
    File& file = files_[std::string(name)];
    file.bytes = status.ok() ? bytes : bytes.substr(0, bytes.size() / 2);
    file.synced.reset();
  }
  return status;
}

absl::Status MemoryDisk::Sync(std::string_view name) {
  absl::Status status = Count();
  const auto found = files_.find(name);
  if (found == files_.end()) return absl::NotFoundError("no such file");
  if (status.ok()) found->second.synced = found->second.bytes;
  return status;
}

absl::Status MemoryDisk::Rename(std::string_view from, std::string_view to) {
  const bool worked = !failing();
  absl::Status status = Count();
  const auto found = files_.find(from);
  if (!worked || found == files_.end()) return status.ok() ? absl::NotFoundError("no such file") : status;
  files_[std::string(to)] = found->second;
  files_.erase(std::string(from));
  return status;
}

absl::Status MemoryDisk::SyncFolder() {
  absl::Status status = Count();
  if (status.ok()) folder_ = files_;
  return status;
}

absl::StatusOr<std::string> MemoryDisk::Read(std::string_view name) {
  const auto found = files_.find(name);
  if (found == files_.end()) return absl::NotFoundError("no such file");
  return found->second.bytes;
}

absl::Status MemoryDisk::Remove(std::string_view name) {
  absl::Status status = Count();
  if (status.ok()) files_.erase(std::string(name));
  return status;
}

absl::StatusOr<std::vector<std::string>> MemoryDisk::List() {
  std::vector<std::string> names;
  for (const auto& [name, _] : files_) names.push_back(name);
  return names;
}

void MemoryDisk::Crash(support::Mutator& random) {
  calls_left_.reset();
  // Changes of names since the folder was synced: one after the other they would have got there; which did is chance.
  std::map<std::string, File, std::less<>> left;
  for (const auto& [name, file] : folder_) {
    const auto now = files_.find(name);
    const bool removed = now == files_.end();
    if (removed && random.OneIn(2)) continue;
    left[name] = removed || random.OneIn(2) ? file : now->second;
  }
  for (const auto& [name, file] : files_) {
    if (!folder_.contains(name) && random.OneIn(2)) left[name] = file;
  }
  for (auto& [_, file] : left) {
    if (file.synced) {
      file.bytes = *file.synced;
    } else {
      file.bytes = file.bytes.substr(0, random.Below(file.bytes.size() + 1));
    }
    file.synced = file.bytes;
  }
  files_ = folder_ = std::move(left);
}

}  // namespace gyre::ps
