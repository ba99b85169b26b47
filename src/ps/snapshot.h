// Snapshots of a server on a disk: the old one or the new one, whenever the process or the machine dies.
//
// A snapshot is written under a temporary name, synced and renamed; then the manifest, which says which one counts, its
// size and its checksum, in the same way: it comes last. docs/wire_format.md has the formats.
//
// The manifest also says which incarnation of the server may write. A process that was replaced finds a later one there
// and writes no more. (It looks before it writes. One that is frozen in between, for as long as its successor needs to
// start, could put its own manifest in place: still a whole snapshot, but an older one.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/interfaces.h"

namespace gyre::ps {

struct Manifest {
  uint64_t incarnation = 0;  // which process may write
  uint64_t number = 0;       // of the snapshot; 0: none was written yet
  uint64_t writer = 0;       // the incarnation that wrote it
  uint64_t size = 0;
  uint64_t checksum = 0;  // XXH3-64 of the snapshot
};

std::string EncodeManifest(const Manifest& manifest);
absl::StatusOr<Manifest> DecodeManifest(std::string_view bytes);  // kDataLoss

// One thread; may block as the disk does.
class Snapshots {
 public:
  // `disk` outlives it. `fence`: Guards::fence.
  Snapshots(Disk& disk, int server, uint64_t incarnation, bool fence)
      : disk_(disk), server_(server), incarnation_(incarnation), fence_(fence) {}

  // Returns what the last snapshot holds, or nothing where there is none, and takes the place of older incarnations:
  // place_status() says whether the disk has taken that in. Where it has not, Write does it.
  //   kAborted   a later incarnation has taken this one's place
  //   kDataLoss  manifest or snapshot are not what was written
  //   others     the disk's, of what cannot be read
  absl::StatusOr<std::optional<std::string>> Open();

  // After Open: OK once the manifest names this incarnation. Until then an older one that still runs may write.
  const absl::Status& place_status() const { return place_status_; }

  // Returns when the snapshot is there to stay. Errors as above; the old one counts then. REQUIRES: Open succeeded
  absl::Status Write(std::string_view bytes);

  // kAborted as above. REQUIRES: Open succeeded
  absl::Status CheckPlace();

  uint64_t number() const { return manifest_.number; }  // of the last one

 private:
  absl::Status CheckPlace(const Manifest& found) const;
  absl::StatusOr<std::optional<Manifest>> ReadManifest();
  absl::Status Put(const std::string& name, std::string_view bytes);
  absl::Status Commit(const Manifest& manifest);
  void RemoveOthers();
  void RemoveTemporaries();
  std::string Prefix() const;
  std::string ManifestName() const;
  std::string SnapshotName(const Manifest& manifest) const;

  Disk& disk_;
  const int server_;
  const uint64_t incarnation_;
  const bool fence_;
  Manifest manifest_;
  absl::Status place_status_;
  uint64_t last_ = 0;  // number that was tried: after an error, either manifest may be there
};

}  // namespace gyre::ps
