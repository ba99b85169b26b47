#include "bootstrap/identity.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/endpoint.h"

namespace gyre {

namespace {

// Slurm gives its own shells (batch, interactive, external) step numbers from here up: they are no step of a job's.
constexpr int64_t kSlurmFirstSpecialStep = 0xfffffff0;

absl::Status Missing(std::string_view there, std::string_view missing) {
  return absl::FailedPreconditionError(absl::StrCat(ToAbsl(there), " is set but ", ToAbsl(missing),
                                                    " is missing: the launcher's environment is half there"));
}

absl::StatusOr<int64_t> Number(const Environment& environment, std::string_view name, std::string_view because_of) {
  const auto text = environment(name);
  if (!text) return Missing(because_of, name);
  int64_t value = 0;
  if (!absl::SimpleAtoi(*text, &value) || value < 0) {
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), "=", *text, " is not a number of 0 or more"));
  }
  return value;
}

// rank and size from a pair of variables; `rank_name` or `size_name` is known to be set.
absl::StatusOr<Identity> RankOfSize(const Environment& environment, std::string_view rank_name,
                                    std::string_view size_name) {
  ASSIGN_OR_RETURN(const int64_t rank, Number(environment, rank_name, size_name));
  ASSIGN_OR_RETURN(const int64_t size, Number(environment, size_name, rank_name));
  if (size > kMaxJobRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(size_name), "=", size, " is more than the ", kMaxJobRanks, " ranks that a job may have"));
  }
  if (size < 1 || rank >= size) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(rank_name), "=", rank, " is not below ", ToAbsl(size_name), "=", size));
  }
  Identity identity;
  identity.rank = static_cast<int>(rank);
  identity.size = static_cast<int>(size);
  return identity;
}

// Where there is no store that other hosts reach, all ranks must be on this one.
absl::Status CheckOneHost(const Config& config, const Environment& environment, const Identity& identity,
                          std::string_view local_size_name) {
  if (config.store || !environment(local_size_name)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t local_size, Number(environment, local_size_name, ""));
  if (local_size == identity.size) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(identity.launcher, " started ", identity.size, " ranks, ", local_size,
                                               " of them on this host (", ToAbsl(local_size_name),
                                               "): ranks on several hosts need GYRE_STORE and GYRE_SECRET_FILE"));
}

absl::StatusOr<Identity> FromConfig(const Config& config) {
  Identity identity;
  identity.rank = *config.rank;
  identity.size = *config.size;
  identity.launcher = config.secret_fd ? "gyrerun" : "explicit";
  if (identity.size > 1 && !config.store) {
    return absl::FailedPreconditionError(
        "rank and size are given but the store is missing: set GYRE_STORE to the host:port where the ranks meet (or, "
        "where code gives rank and size, RuntimeOptions::store: under gyrerun, GYRE_STORE is for gyrerun's ranks)");
  }
  return identity;
}

// Likewise for Slurm, which counts nodes.
absl::Status CheckOneNode(const Config& config, const Environment& environment) {
  const std::string_view name = environment("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  if (config.store || !environment(name)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t nodes, Number(environment, name, ""));
  if (nodes == 1) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("Slurm started the ranks on ", nodes, " nodes (", ToAbsl(name),
                                               "): several hosts need GYRE_STORE and GYRE_SECRET_FILE"));
}

std::string_view SlurmSizeName(const Environment& environment) {
  return environment("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

absl::StatusOr<Identity> FromPmix(const Config& config, const Environment& environment) {
  const bool open_mpi = environment("OMPI_COMM_WORLD_RANK") || environment("OMPI_COMM_WORLD_SIZE");
  ASSIGN_OR_RETURN(Identity identity, open_mpi ? RankOfSize(environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
                                               : RankOfSize(environment, "PMIX_RANK", SlurmSizeName(environment)));
  identity.launcher = open_mpi ? "openmpi" : "slurm";
  identity.meeting = Meeting::kLocalFile;
  const auto name = environment("PMIX_NAMESPACE");
  if (!name && !config.store && identity.size > 1) {
    return Missing(open_mpi ? "OMPI_COMM_WORLD_RANK" : "PMIX_RANK", "PMIX_NAMESPACE");
  }
  if (config.store) return identity;  // it names the job; what follows differs from host to host
  // The namespace alone is a short hash; where the launcher's server is makes it this host's only one.
  identity.job_id = absl::StrCat("pmix-", name.value_or(""), "-", environment("PMIX_SERVER_TMPDIR").value_or(""), "-",
                                 environment("PMIX_SERVER_URI2").value_or(""));
  RETURN_IF_ERROR(CheckOneHost(config, environment, identity, "OMPI_COMM_WORLD_LOCAL_SIZE"));
  if (!open_mpi) RETURN_IF_ERROR(CheckOneNode(config, environment));
  return identity;
}

absl::StatusOr<Identity> FromHydra(const Config& config, const Environment& environment) {
  ASSIGN_OR_RETURN(Identity identity, RankOfSize(environment, "PMI_RANK", "PMI_SIZE"));
  identity.launcher = "mpich";
  identity.meeting = Meeting::kHydraFile;
  if (!config.store && !environment("PMI_FD")) return Missing("PMI_RANK", "PMI_FD");
  RETURN_IF_ERROR(CheckOneHost(config, environment, identity, "MPI_LOCALNRANKS"));
  return identity;
}

absl::StatusOr<Identity> FromTorchrun(const Config& config, const Environment& environment) {
  ASSIGN_OR_RETURN(Identity identity, RankOfSize(environment, "RANK", "WORLD_SIZE"));
  identity.launcher = "torchrun";
  if (identity.size == 1 || config.store) {
    identity.job_id = "torchrun";
    return identity;
  }
  const auto address = environment("MASTER_ADDR");
  if (!address) return Missing("RANK", "MASTER_ADDR");
  ASSIGN_OR_RETURN(const int64_t port, Number(environment, "MASTER_PORT", "MASTER_ADDR"));
  if (port < 1 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("MASTER_PORT=", port, " is not a port"));
  }
  const std::string store = ToString(Endpoint{*address, static_cast<uint16_t>(port)});
  identity.job_id = absl::StrCat("torchrun-", store);
  if (environment("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    // The agent's own store holds that port.
    absl::StrAppend(&identity.job_id, "-", environment("TORCHELASTIC_RUN_ID").value_or(""));
    identity.meeting = Meeting::kLocalFile;
    RETURN_IF_ERROR(CheckOneHost(config, environment, identity, "LOCAL_WORLD_SIZE"));
    return identity;
  }
  identity.meeting = Meeting::kRankZeroStore;
  identity.store = store;
  return identity;
}

absl::StatusOr<Identity> FromHorovodrun(const Config& config, const Environment& environment) {
  ASSIGN_OR_RETURN(Identity identity, RankOfSize(environment, "HOROVOD_RANK", "HOROVOD_SIZE"));
  identity.launcher = "horovodrun";
  identity.meeting = Meeting::kLocalFile;
  if (identity.size > 1 && !config.store) {
    const auto address = environment("HOROVOD_GLOO_RENDEZVOUS_ADDR");
    if (!address) return Missing("HOROVOD_RANK", "HOROVOD_GLOO_RENDEZVOUS_ADDR");
    ASSIGN_OR_RETURN(const int64_t port,
                     Number(environment, "HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_GLOO_RENDEZVOUS_ADDR"));
    identity.job_id = absl::StrCat("horovodrun-", *address, ":", port);
  }
  RETURN_IF_ERROR(CheckOneHost(config, environment, identity, "HOROVOD_LOCAL_SIZE"));
  return identity;
}

// A step of srun's, rather than a shell of salloc's or sbatch's.
bool InSlurmStep(const Environment& environment) {
  int64_t step = 0;
  const auto text = environment("SLURM_STEP_ID");
  if (!text || !environment("SLURM_PROCID")) return false;
  return !absl::SimpleAtoi(*text, &step) || step < kSlurmFirstSpecialStep;  // no number: let Number() say so
}

absl::StatusOr<Identity> FromSlurm(const Config& config, const Environment& environment) {
  ASSIGN_OR_RETURN(Identity identity, RankOfSize(environment, "SLURM_PROCID", SlurmSizeName(environment)));
  ASSIGN_OR_RETURN(const int64_t job, Number(environment, "SLURM_JOB_ID", "SLURM_PROCID"));
  ASSIGN_OR_RETURN(const int64_t step, Number(environment, "SLURM_STEP_ID", "SLURM_PROCID"));
  identity.launcher = "slurm";
  identity.meeting = Meeting::kLocalFile;
  identity.job_id = absl::StrCat("slurm-", job, ".", step);
  RETURN_IF_ERROR(CheckOneNode(config, environment));
  return identity;
}

absl::StatusOr<Identity> FromLauncher(const Config& config, const Environment& environment) {
  const auto any = [&](std::string_view a, std::string_view b) { return environment(a) || environment(b); };
  if (config.rank) return FromConfig(config);
  if (any("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE") || environment("PMIX_RANK")) {
    return FromPmix(config, environment);
  }
  // Slurm's own PMI (srun --mpi=pmi2) sets the same names but speaks PMI-2; Hydra tells itself by MPI_LOCALNRANKS, also
  // where it was started inside a Slurm step.
  if (any("PMI_RANK", "PMI_SIZE") && (environment("MPI_LOCALNRANKS") || !InSlurmStep(environment))) {
    return FromHydra(config, environment);
  }
  if (any("RANK", "WORLD_SIZE")) return FromTorchrun(config, environment);
  if (any("HOROVOD_RANK", "HOROVOD_SIZE")) return FromHorovodrun(config, environment);
  if (InSlurmStep(environment)) return FromSlurm(config, environment);
  return Identity{};
}

// How often the launcher says that it has restarted the job.
absl::StatusOr<uint64_t> LaunchersEpoch(const Identity& identity, const Environment& environment) {
  const auto count = [&](std::string_view name) -> absl::StatusOr<uint64_t> {
    if (!environment(name)) return 0;
    ASSIGN_OR_RETURN(const int64_t restarts, Number(environment, name, ""));
    return static_cast<uint64_t>(restarts);
  };
  if (identity.launcher == "slurm") return count("SLURM_RESTART_COUNT");
  if (identity.launcher != "torchrun") return 0;
  // Over several hosts its agents count each for itself, and need not agree: a restart that another host's ranks caused
  // does not count.
  if (environment("LOCAL_WORLD_SIZE")) {
    ASSIGN_OR_RETURN(const int64_t local_size, Number(environment, "LOCAL_WORLD_SIZE", ""));
    if (local_size != identity.size) return 0;
  }
  return count("TORCHELASTIC_RESTART_COUNT");
}

}  // namespace

absl::StatusOr<Identity> FindIdentity(const Config& config, const Environment& environment) {
  ASSIGN_OR_RETURN(Identity identity, FromLauncher(config, environment));
  if (config.epoch) {
    identity.epoch = static_cast<uint64_t>(*config.epoch);
  } else {
    ASSIGN_OR_RETURN(identity.epoch, LaunchersEpoch(identity, environment));
  }
  if (identity.size == 1) {
    identity.meeting = Meeting::kAlone;
  } else if (config.store) {
    ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(*config.store));
    if (endpoint.port == 0) {
      return absl::InvalidArgumentError(absl::StrCat("the store (GYRE_STORE) ", *config.store, " has no port"));
    }
    identity.meeting = identity.launcher == "gyrerun" ? Meeting::kLauncherStore : Meeting::kRankZeroStore;
    identity.store = *config.store;
  }
  if (config.job_id) identity.job_id = *config.job_id;
  if (identity.meeting == Meeting::kHydraFile) return identity;
  if (identity.job_id.empty()) identity.job_id = identity.store.empty() ? "alone" : "job-" + identity.store;
  return identity;
}

}  // namespace gyre
