// The status file: in which phase a job is, for those who watch it from outside. JSON; replaced as a whole, so that a
// reader never finds half of it.
//
//   QUEUED -> DEPLOYING -> PROCESSING -> COMPLETED, FAILED or HALTED (it ended at a checkpoint, and can go on)
//   PROCESSING <-> DOWNLOADING, PROCESSING <-> STORING: as the program reports; both end and restart as PROCESSING does
//   DEPLOYING -> FAILED or HALTED; PROCESSING -> DEPLOYING: a restart; HALTED -> RESUMED -> DEPLOYING: a later gyrerun
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gyre::launch {

enum class Phase { kQueued, kDeploying, kDownloading, kProcessing, kStoring, kHalted, kResumed, kCompleted, kFailed };

inline constexpr int kPhases = 9;

const char* PhaseName(Phase phase);  // "QUEUED"
bool IsLegal(Phase from, Phase to);  // see above
Phase EndPhase(int exit_code);       // of gyrerun: 0, 75, or any other

struct JobFacts {
  std::string id;
  int ranks = 0;
  int hosts = 0;
  pid_t pid = 0;  // of gyrerun
};

// Not thread-safe.
class StatusFile {
 public:
  // A file of a job that was halted is gone on with: its history stays, and it is in RESUMED. Any other is replaced,
  // and is in QUEUED. The message names the file where it cannot be written.
  static absl::StatusOr<StatusFile> Open(const std::string& path, const JobFacts& facts);

  // Of what comes to be written with the next phase.
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }
  void set_end(int exit_code, std::vector<std::string> said) {
    exit_code_ = exit_code;
    said_ = std::move(said);
  }

  Phase phase() const { return history_.back().phase; }

  // kFailedPrecondition: not from the phase that it is in. Otherwise an error says that it was not written.
  absl::Status Enter(Phase phase);

 private:
  struct Step {
    Phase phase;
    std::string time;
  };

  StatusFile(std::string path, JobFacts facts) : path_(std::move(path)), facts_(std::move(facts)) {}
  absl::Status Write() const;

  std::string path_;
  JobFacts facts_;
  std::vector<Step> history_;
  uint64_t epoch_ = 0;
  int exit_code_ = 0;
  std::vector<std::string> said_;
};

// `gyrerun status FILE`: what the file says, for people. kInvalidArgument: no such file, or not one of these.
absl::StatusOr<std::string> DescribeStatusFile(const std::string& path);

}  // namespace gyre::launch
