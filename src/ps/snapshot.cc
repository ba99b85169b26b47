#include "ps/snapshot.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/bytes.h"
#include "xxhash.h"

namespace gyre::ps {

namespace {

constexpr uint32_t kMagic = 0x4d505947;  // "GYPM"
constexpr uint32_t kVersion = 1;
constexpr char kTemporary[] = ".tmp";

uint64_t Checksum(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace

std::string EncodeManifest(const Manifest& manifest) {
  std::string bytes = Written([&](WireWriter& writer) {
    writer.U32(kMagic);
    writer.U32(kVersion);
    writer.U64(manifest.incarnation);
    writer.U64(manifest.number);
    writer.U64(manifest.writer);
    writer.U64(manifest.size);
    writer.U64(manifest.checksum);
  });
  const uint64_t checksum = Checksum(bytes);
  WireWriter(bytes).U64(checksum);
  return bytes;
}

absl::StatusOr<Manifest> DecodeManifest(std::string_view bytes) {
  WireReader reader(bytes);
  const uint32_t magic = reader.U32(), version = reader.U32();
  Manifest manifest;
  manifest.incarnation = reader.U64();
  manifest.number = reader.U64();
  manifest.writer = reader.U64();
  manifest.size = reader.U64();
  manifest.checksum = reader.U64();
  const uint64_t checksum = reader.U64();
  if (!reader.AtEnd() || magic != kMagic || checksum != Checksum(bytes.substr(0, bytes.size() - sizeof(checksum)))) {
    return absl::DataLossError("the manifest is damaged");
  }
  if (version != kVersion) return absl::DataLossError(absl::StrCat("the manifest has version ", version));
  return manifest;
}

absl::StatusOr<std::optional<std::string>> Snapshots::Open() {
  ASSIGN_OR_RETURN(const std::optional<Manifest> found, ReadManifest());
  if (found) RETURN_IF_ERROR(CheckPlace(*found));
  std::optional<std::string> content;
  if (found) manifest_ = *found;
  last_ = manifest_.number;
  if (manifest_.number > 0) {
    const std::string name = SnapshotName(manifest_);
    absl::StatusOr<std::string> bytes = disk_.Read(name);
    if (!bytes.ok()) return Annotate(bytes.status(), name);
    if (bytes->size() != manifest_.size || Checksum(*bytes) != manifest_.checksum) {
      return absl::DataLossError(absl::StrCat(name, " is not what the manifest says"));
    }
    content = *std::move(bytes);
  }
  RemoveTemporaries();
  Manifest own = manifest_;
  own.incarnation = incarnation_;
  place_status_ = Commit(own);
  if (place_status_.ok()) RemoveOthers();
  return content;
}

absl::Status Snapshots::CheckPlace() {
  ASSIGN_OR_RETURN(const std::optional<Manifest> found, ReadManifest());
  return found ? CheckPlace(*found) : absl::OkStatus();
}

absl::Status Snapshots::Write(std::string_view bytes) {
  RETURN_IF_ERROR(CheckPlace());
  const Manifest next{incarnation_, ++last_, incarnation_, bytes.size(), Checksum(bytes)};
  RETURN_IF_ERROR(Put(SnapshotName(next), bytes));
  RETURN_IF_ERROR(Commit(next));
  place_status_ = absl::OkStatus();
  RemoveOthers();
  return absl::OkStatus();
}

// What processes were writing when they ended: no manifest names it, and on a full disk it keeps out what is next.
void Snapshots::RemoveTemporaries() {
  const absl::StatusOr<std::vector<std::string>> names = disk_.List();
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (name.starts_with(Prefix()) && name.ends_with(kTemporary)) disk_.Remove(name).IgnoreError();
  }
}

// What cannot be removed takes room, no more.
void Snapshots::RemoveOthers() {
  const absl::StatusOr<std::vector<std::string>> names = disk_.List();
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!name.starts_with(Prefix()) || name == ManifestName()) continue;
    if (manifest_.number == 0 || name != SnapshotName(manifest_)) disk_.Remove(name).IgnoreError();
  }
}

absl::Status Snapshots::Commit(const Manifest& manifest) {
  RETURN_IF_ERROR(Put(ManifestName(), EncodeManifest(manifest)));
  manifest_ = manifest;
  return absl::OkStatus();
}

absl::Status Snapshots::Put(const std::string& name, std::string_view bytes) {
  const std::string temporary = absl::StrCat(name, ".", incarnation_, kTemporary);
  absl::Status status = disk_.Write(temporary, bytes);
  if (status.ok()) status = disk_.Sync(temporary);
  if (status.ok()) status = disk_.Rename(temporary, name);
  if (status.ok()) return disk_.SyncFolder();
  disk_.Remove(temporary).IgnoreError();  // half a file takes room, too
  return status;
}

absl::StatusOr<std::optional<Manifest>> Snapshots::ReadManifest() {
  absl::StatusOr<std::string> bytes = disk_.Read(ManifestName());
  if (absl::IsNotFound(bytes.status())) return std::optional<Manifest>();
  if (!bytes.ok()) return Annotate(bytes.status(), ManifestName());
  absl::StatusOr<Manifest> manifest = DecodeManifest(*bytes);
  if (!manifest.ok()) return Annotate(manifest.status(), ManifestName());
  return std::optional<Manifest>(*manifest);
}

absl::Status Snapshots::CheckPlace(const Manifest& found) const {
  if (found.incarnation <= incarnation_ || !fence_) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("server ", server_, ": incarnation ", found.incarnation,
                                         " has taken the place of this one, ", incarnation_));
}

std::string Snapshots::Prefix() const {
  return absl::StrCat("server-", server_, ".");
}

std::string Snapshots::ManifestName() const {
  return absl::StrCat(Prefix(), "manifest");
}

// Two processes never write the same snapshot.
std::string Snapshots::SnapshotName(const Manifest& manifest) const {
  return absl::StrCat(Prefix(), manifest.writer, ".", manifest.number, ".snapshot");
}

}  // namespace gyre::ps
