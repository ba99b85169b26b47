#include "launch/job.h"

#include <sys/random.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bootstrap/secret.h"

namespace gyre::launch {

namespace {

absl::StatusOr<std::string> RandomId() {
  char bytes[8];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return ErrnoStatus("getrandom");
  return absl::BytesToHexString(absl::string_view(bytes, sizeof bytes));
}

}  // namespace

absl::StatusOr<JobKeys> MakeJobKeys() {
  JobKeys keys;
  ASSIGN_OR_RETURN(keys.secret, MakeSecret());
  ASSIGN_OR_RETURN(keys.job_id, RandomId());
  return keys;
}

absl::StatusOr<Job> Job::Serve(const JobKeys& keys, int size, const std::string& address, bool ranks_return) {
  ASSIGN_OR_RETURN(Job job, Join(keys, size));
  const StoreServerOptions options{
      .secret = keys.secret, .job_id = keys.job_id, .epoch = keys.epoch, .size = size, .ranks_return = ranks_return};
  ASSIGN_OR_RETURN(job.store_, StoreServer::Start(Endpoint{address, 0}, options,
                                                  TimePoint::max()));  // an address takes no time
  job.identity_.store = ToString(job.store_->endpoint());
  return job;
}

absl::StatusOr<Job> Job::Join(const JobKeys& keys, int size) {
  Job job;
  ASSIGN_OR_RETURN(job.secret_, MakeSecretFd(keys.secret));
  job.identity_.job_id = keys.job_id;
  job.identity_.epoch = keys.epoch;
  job.identity_.size = size;
  job.identity_.secret_fd = absl::StrCat(job.secret_.get());
  return job;
}

}  // namespace gyre::launch
