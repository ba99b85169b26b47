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

absl::StatusOr<Job> Job::Start(int size) {
  Job job;
  ASSIGN_OR_RETURN(const std::string secret, MakeSecret());
  ASSIGN_OR_RETURN(job.secret_, MakeSecretFd(secret));
  ASSIGN_OR_RETURN(job.identity_.job_id, RandomId());
  ASSIGN_OR_RETURN(job.store_,
                   StoreServer::Start(Endpoint{"127.0.0.1", 0},
                                      {.secret = secret, .job_id = job.identity_.job_id, .epoch = 0, .size = size},
                                      TimePoint::max()));  // an address takes no time
  job.identity_.size = size;
  job.identity_.store = ToString(job.store_->endpoint());
  job.identity_.secret_fd = absl::StrCat(job.secret_.get());
  return job;
}

}  // namespace gyre::launch
