#include <pmix.h>

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bootstrap/pmi.h"

namespace gyre {

namespace {

absl::Status PmixError(std::string_view what, pmix_status_t status) {
  return absl::UnavailableError(absl::StrCat("PMIx: ", ToAbsl(what), ": ", PMIx_Error_string(status)));
}

// What a fence's callback, on a thread of PMIx's, tells the thread that waits. Shared, because after a deadline the
// callback may still come.
struct FenceOutcome {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<pmix_status_t> status;
};

void OnFence(pmix_status_t status, void* context) {
  const std::unique_ptr<std::shared_ptr<FenceOutcome>> outcome(static_cast<std::shared_ptr<FenceOutcome>*>(context));
  const std::lock_guard lock((*outcome)->mutex);
  (*outcome)->status = status;
  (*outcome)->changed.notify_one();
}

// All ranks are here, and what they put is to be had everywhere.
absl::Status Fence(TimePoint deadline) {
  auto outcome = std::make_shared<FenceOutcome>();
  pmix_info_t collect;
  bool yes = true;
  PMIX_INFO_CONSTRUCT(&collect);
  PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
  auto* context = new std::shared_ptr<FenceOutcome>(outcome);
  const pmix_status_t begun = PMIx_Fence_nb(nullptr, 0, &collect, 1, OnFence, context);
  if (begun != PMIX_SUCCESS) {
    delete context;  // it will not be called
    if (begun == PMIX_OPERATION_SUCCEEDED) return absl::OkStatus();
    return PmixError("fence", begun);
  }
  std::unique_lock lock(outcome->mutex);
  while (!outcome->status && std::chrono::steady_clock::now() < deadline) {
    outcome->changed.wait_until(lock, std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  }
  if (!outcome->status) return absl::DeadlineExceededError("PMIx: not all ranks came to the fence in time");
  return *outcome->status == PMIX_SUCCESS ? absl::OkStatus() : PmixError("fence", *outcome->status);
}

// Empty: there is no such key. `here_only`: asks no server.
absl::StatusOr<std::optional<std::string>> Get(const pmix_proc_t& process, const std::string& key, bool here_only) {
  pmix_info_t info;
  bool yes = true;
  PMIX_INFO_CONSTRUCT(&info);
  PMIX_INFO_LOAD(&info, here_only ? PMIX_OPTIONAL : PMIX_IMMEDIATE, &yes, PMIX_BOOL);
  pmix_value_t* value = nullptr;
  const pmix_status_t status = PMIx_Get(&process, key.c_str(), &info, 1, &value);
  if (status == PMIX_ERR_NOT_FOUND || (status == PMIX_SUCCESS && value == nullptr)) return std::nullopt;
  if (status != PMIX_SUCCESS) return PmixError(absl::StrCat("get ", key), status);
  std::optional<std::string> text;
  if (value->type == PMIX_STRING && value->data.string != nullptr) text = value->data.string;
  PMIX_VALUE_RELEASE(value);
  return text;
}

absl::StatusOr<std::string> Exchange(const pmix_proc_t& self, int rank, const std::string& value, TimePoint deadline) {
  // A key is written once. Each rank writes one of its own every round, by which it knows, without any memory of ours
  // in this process, which round this is.
  std::string key;
  for (int round = 0;; ++round) {
    key = absl::StrCat("gyre.", round);
    ASSIGN_OR_RETURN(const auto own, Get(self, key, /*here_only=*/true));
    if (!own) break;
  }
  pmix_value_t put;
  PMIX_VALUE_CONSTRUCT(&put);
  put.type = PMIX_STRING;
  put.data.string = const_cast<char*>(rank == 0 ? value.c_str() : "here");  // PMIx_Put copies it
  if (const pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key.c_str(), &put); status != PMIX_SUCCESS) {
    return PmixError("put", status);
  }
  if (const pmix_status_t status = PMIx_Commit(); status != PMIX_SUCCESS) return PmixError("commit", status);
  RETURN_IF_ERROR(Fence(deadline));
  pmix_proc_t root;
  PMIX_PROC_LOAD(&root, self.nspace, 0);
  ASSIGN_OR_RETURN(const auto got, Get(root, key, /*here_only=*/false));
  if (!got) return absl::UnavailableError("PMIx: rank 0's value is not there");
  return *got;
}

}  // namespace

absl::StatusOr<std::string> PmixBroadcast(int rank, const std::string& value, TimePoint deadline) {
  pmix_proc_t self;
  // Counted: MPI_Init and MPI_Finalize have their own turns.
  const pmix_status_t status = PMIx_Init(&self, nullptr, 0);
  if (status != PMIX_SUCCESS) return PmixError("init", status);
  auto result = Exchange(self, rank, value, deadline);
  PMIx_Finalize(nullptr, 0);
  return result;
}

}  // namespace gyre
