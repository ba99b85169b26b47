#include "bootstrap/identity.h"

#include <map>
#include <string>

#include "support/status_matchers.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;
using Variables = std::map<std::string, std::string, std::less<>>;

absl::StatusOr<Identity> Find(const Variables& variables, const RuntimeOptions& options = {}) {
  const Environment environment = FixedEnvironment(variables);
  auto config = LoadConfig(options, environment);
  if (!config.ok()) return config.status();
  return FindIdentity(*config, environment);
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"PMIX_RANK", "1"},
                            {"PMIX_NAMESPACE", "7441"},          {"PMIX_SERVER_TMPDIR", "/tmp/ompi/pid.9"}};
const Variables kMpich = {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"PMI_FD", "6"}, {"MPI_LOCALNRANKS", "4"}};
const Variables kTorchrun = {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "4001"}};
const Variables kHorovodrun = {{"HOROVOD_RANK", "0"},
                               {"HOROVOD_SIZE", "4"},
                               {"HOROVOD_LOCAL_SIZE", "4"},
                               {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"},
                               {"HOROVOD_GLOO_RENDEZVOUS_PORT", "5"}};
const Variables kSlurm = {{"SLURM_PROCID", "2"},
                          {"SLURM_NTASKS", "4"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_NNODES", "1"}};
const Variables kGyrerun = {{"GYRE_RANK", "1"},
                            {"GYRE_SIZE", "4"},
                            {"GYRE_STORE", "127.0.0.1:400"},
                            {"GYRE_JOB_ID", "j"},
                            {"GYRE_SECRET_FD", "5"}};

Variables With(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables Without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

Variables Both(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

TEST(Identity, WithoutALauncherOneIsAlone) {
  const auto identity = Find({});
  ASSERT_THAT(identity, IsOk());
  EXPECT_EQ(identity->rank, 0);
  EXPECT_EQ(identity->size, 1);
  EXPECT_EQ(identity->launcher, "none");
  EXPECT_EQ(identity->meeting, Meeting::kAlone);
}

TEST(Identity, EachLauncherIsKnown) {
  const struct {
    Variables variables;
    std::string launcher;
    int rank;
    Meeting meeting;
    std::string store;
    std::string job_id;
  } kCases[] = {
      {kGyrerun, "gyrerun", 1, Meeting::kLauncherStore, "127.0.0.1:400", "j"},
      {kOpenMpi, "openmpi", 1, Meeting::kLocalFile, "", "pmix-7441-/tmp/ompi/pid.9-"},
      {kMpich, "mpich", 2, Meeting::kHydraFile, "", ""},
      {kTorchrun, "torchrun", 3, Meeting::kRankZeroStore, "127.0.0.1:4001", "torchrun-127.0.0.1:4001"},
      {With(kTorchrun, "MASTER_ADDR", "::1"), "torchrun", 3, Meeting::kRankZeroStore, "[::1]:4001",
       "torchrun-[::1]:4001"},
      {kHorovodrun, "horovodrun", 0, Meeting::kLocalFile, "", "horovodrun-10.0.0.1:5"},
      {kSlurm, "slurm", 2, Meeting::kLocalFile, "", "slurm-77.0"},
      {{{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.77.0"}, {"SLURM_NTASKS", "4"}},
       "slurm",
       2,
       Meeting::kLocalFile,
       "",
       "pmix-slurm.pmix.77.0--"},
  };
  for (const auto& expected : kCases) {
    const auto identity = Find(expected.variables);
    ASSERT_THAT(identity, IsOk()) << expected.launcher;
    EXPECT_EQ(identity->launcher, expected.launcher);
    EXPECT_EQ(identity->rank, expected.rank) << expected.launcher;
    EXPECT_EQ(identity->size, 4) << expected.launcher;
    EXPECT_EQ(identity->meeting, expected.meeting) << expected.launcher;
    EXPECT_EQ(identity->store, expected.store) << expected.launcher;
    EXPECT_EQ(identity->job_id, expected.job_id) << expected.launcher;
  }
}

TEST(Identity, AJobOfTooManyRanksIsRefused) {
  EXPECT_THAT(
      Find(With(kGyrerun, "GYRE_SIZE", "2000000000")),
      MatchesStatus(StatusCode::kInvalidArgument, "size (GYRE_SIZE) must be 1 to 1000000 ranks, not 2000000000"));
  EXPECT_THAT(Find(With(kTorchrun, "WORLD_SIZE", "1000001")),
              MatchesStatus(StatusCode::kInvalidArgument, "WORLD_SIZE=1000001 is more than the 1000000 ranks"));
  EXPECT_THAT(Find(With(kTorchrun, "WORLD_SIZE", "1000000")), IsOk());
}

TEST(Identity, TheNearestLauncherWins) {
  // A Slurm step that runs mpirun that runs gyrerun; a torchrun inside a Slurm step; Hydra inside a Slurm step.
  EXPECT_EQ(Find(Both(kGyrerun, Both(kOpenMpi, kSlurm)))->launcher, "gyrerun");
  EXPECT_EQ(Find(Both(kOpenMpi, kSlurm))->launcher, "openmpi");
  EXPECT_EQ(Find(Both(kTorchrun, kSlurm))->launcher, "torchrun");
  EXPECT_EQ(Find(Both(kMpich, kSlurm))->launcher, "mpich");
  // Slurm's own PMI-2 uses Hydra's names.
  EXPECT_EQ(Find(Both(Without(kMpich, "MPI_LOCALNRANKS"), kSlurm))->launcher, "slurm");
  // What stands in the code wins over all.
  RuntimeOptions options;
  options.rank = 0;
  options.size = 2;
  options.store = "127.0.0.1:9";
  const auto code = Find(kOpenMpi, options);
  EXPECT_EQ(code->launcher, "explicit");
  EXPECT_EQ(code->meeting, Meeting::kRankZeroStore);
  EXPECT_EQ(code->job_id, "job-127.0.0.1:9");
}

TEST(Identity, AGivenStoreIsWhereAnyLaunchersRanksMeet) {
  for (const Variables& variables : {kOpenMpi, kMpich, kTorchrun, kHorovodrun, kSlurm}) {
    const auto identity = Find(With(variables, "GYRE_STORE", "10.1.2.3:99"));
    ASSERT_THAT(identity, IsOk());
    EXPECT_EQ(identity->meeting, Meeting::kRankZeroStore);
    EXPECT_EQ(identity->store, "10.1.2.3:99");
    EXPECT_FALSE(identity->job_id.empty());
  }
  EXPECT_THAT(Find(With(kOpenMpi, "GYRE_STORE", "nowhere")), MatchesStatus(StatusCode::kInvalidArgument, "nowhere"));
  EXPECT_THAT(Find(With(kOpenMpi, "GYRE_STORE", "host:0")), MatchesStatus(StatusCode::kInvalidArgument, "no port"));
}

TEST(Identity, HalfAnEnvironmentNamesWhatIsMissing) {
  const struct {
    Variables variables;
    std::string missing;
  } kCases[] = {
      {Without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE is missing"},
      {Without(kOpenMpi, "OMPI_COMM_WORLD_RANK"), "OMPI_COMM_WORLD_RANK is missing"},
      {Without(kOpenMpi, "PMIX_NAMESPACE"), "PMIX_NAMESPACE is missing"},
      {Without(kMpich, "PMI_SIZE"), "PMI_SIZE is missing"},
      {Without(kMpich, "PMI_RANK"), "PMI_RANK is missing"},
      {Without(kMpich, "PMI_FD"), "PMI_FD is missing"},
      {Without(kTorchrun, "RANK"), "RANK is missing"},
      {Without(kTorchrun, "WORLD_SIZE"), "WORLD_SIZE is missing"},
      {Without(kTorchrun, "MASTER_ADDR"), "MASTER_ADDR is missing"},
      {Without(kTorchrun, "MASTER_PORT"), "MASTER_PORT is missing"},
      {Without(kHorovodrun, "HOROVOD_SIZE"), "HOROVOD_SIZE is missing"},
      {Without(kHorovodrun, "HOROVOD_RANK"), "HOROVOD_RANK is missing"},
      {Without(kHorovodrun, "HOROVOD_GLOO_RENDEZVOUS_ADDR"), "HOROVOD_GLOO_RENDEZVOUS_ADDR is missing"},
      {Without(kHorovodrun, "HOROVOD_GLOO_RENDEZVOUS_PORT"), "HOROVOD_GLOO_RENDEZVOUS_PORT is missing"},
      {Without(kSlurm, "SLURM_NTASKS"), "SLURM_NTASKS is missing"},
      {Without(kSlurm, "SLURM_JOB_ID"), "SLURM_JOB_ID is missing"},
      {Without(kGyrerun, "GYRE_STORE"), "GYRE_STORE"},
  };
  for (const auto& half : kCases) {
    EXPECT_THAT(Find(half.variables), MatchesStatus(StatusCode::kFailedPrecondition, half.missing)) << half.missing;
  }
}

TEST(Identity, RefusesWhatIsNoNumber) {
  for (const char* value : {"x", "-1", "1.5", "4", "99999999999", "1 2", "0x1"}) {
    EXPECT_THAT(Find(With(kTorchrun, "RANK", value)), MatchesStatus(StatusCode::kInvalidArgument, "RANK")) << value;
    EXPECT_THAT(Find(With(kMpich, "PMI_RANK", value)), MatchesStatus(StatusCode::kInvalidArgument, "PMI_RANK"))
        << value;
  }
  for (const char* value : {"0", "many", "-4", "99999999999999"}) {
    EXPECT_THAT(Find(With(kSlurm, "SLURM_NTASKS", value)), MatchesStatus(StatusCode::kInvalidArgument, "SLURM_NTASKS"))
        << value;
  }
  for (const char* value : {"0", "65536", "http"}) {
    EXPECT_THAT(Find(With(kTorchrun, "MASTER_PORT", value)), MatchesStatus(StatusCode::kInvalidArgument, "MASTER_PORT"))
        << value;
  }
}

TEST(Identity, SeveralHostsNeedAStore) {
  for (const Variables& variables :
       {With(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2"), With(kMpich, "MPI_LOCALNRANKS", "2"),
        With(kHorovodrun, "HOROVOD_LOCAL_SIZE", "2"), With(kSlurm, "SLURM_NNODES", "2"),
        Both(With(With(kTorchrun, "LOCAL_WORLD_SIZE", "2"), "TORCHELASTIC_USE_AGENT_STORE", "True"), {})}) {
    EXPECT_THAT(Find(variables), MatchesStatus(StatusCode::kUnimplemented, "GYRE_STORE"));
    EXPECT_THAT(Find(With(variables, "GYRE_STORE", "10.0.0.1:9")), IsOk());
  }
}

TEST(Identity, ASlurmShellIsNoStep) {
  EXPECT_EQ(Find(Without(kSlurm, "SLURM_STEP_ID"))->launcher, "none");
  EXPECT_EQ(Find(With(kSlurm, "SLURM_STEP_ID", "4294967290"))->launcher, "none");  // salloc's interactive step
  EXPECT_EQ(Find(With(kSlurm, "SLURM_STEP_NUM_TASKS", "3"))->size, 3);             // the step's, not the job's
}

TEST(Identity, AnElasticAgentKeepsItsPort) {
  Variables variables = With(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True");
  const auto first = Find(variables);
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->meeting, Meeting::kLocalFile);
  // A restart is the same job, in another epoch.
  const auto second = Find(With(variables, "TORCHELASTIC_RESTART_COUNT", "1"));
  EXPECT_EQ(second->job_id, first->job_id);
  EXPECT_NE(second->epoch, first->epoch);
  EXPECT_NE(Find(With(variables, "TORCHELASTIC_RUN_ID", "another"))->job_id, first->job_id);
}

TEST(Identity, TheEpochIsWhatTheLauncherCounts) {
  const auto epoch = [](const Variables& variables) { return Find(variables)->epoch; };
  for (const Variables& variables : {kGyrerun, kOpenMpi, kMpich, kTorchrun, kHorovodrun, kSlurm, Variables{}}) {
    EXPECT_EQ(epoch(variables), 0u);
    EXPECT_EQ(epoch(With(variables, "GYRE_EPOCH", "7")), 7u);
  }
  EXPECT_EQ(epoch(With(kTorchrun, "TORCHELASTIC_RESTART_COUNT", "2")), 2u);
  EXPECT_EQ(epoch(With(kSlurm, "SLURM_RESTART_COUNT", "3")), 3u);
  const Variables pmix = {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.77.0"}, {"SLURM_NTASKS", "4"}};
  EXPECT_EQ(epoch(With(pmix, "SLURM_RESTART_COUNT", "3")), 3u);
}

TEST(Identity, OnlyTheLauncherThatWasFoundCounts) {
  const Variables counts = {{"TORCHELASTIC_RESTART_COUNT", "2"}, {"SLURM_RESTART_COUNT", "3"}};
  EXPECT_EQ(Find(Both(kTorchrun, Both(kSlurm, counts)))->epoch, 2u);
  EXPECT_EQ(Find(Both(kSlurm, counts))->epoch, 3u);
  EXPECT_EQ(Find(Both(kOpenMpi, Both(kSlurm, counts)))->epoch, 0u);
  EXPECT_EQ(Find(Both(kGyrerun, counts))->epoch, 0u);
  // GYRE_EPOCH wins, also over what could not be read.
  EXPECT_EQ(Find(With(With(kTorchrun, "TORCHELASTIC_RESTART_COUNT", "2"), "GYRE_EPOCH", "5"))->epoch, 5u);
  EXPECT_EQ(Find(With(With(kSlurm, "SLURM_RESTART_COUNT", "x"), "GYRE_EPOCH", "0"))->epoch, 0u);
}

TEST(Identity, ACountThatIsNoNumberIsRefused) {
  for (const char* value : {"x", "-1", "1.5", "99999999999999999999"}) {
    EXPECT_THAT(Find(With(kTorchrun, "TORCHELASTIC_RESTART_COUNT", value)),
                MatchesStatus(StatusCode::kInvalidArgument, "TORCHELASTIC_RESTART_COUNT="))
        << value;
    EXPECT_THAT(Find(With(kSlurm, "SLURM_RESTART_COUNT", value)),
                MatchesStatus(StatusCode::kInvalidArgument, "SLURM_RESTART_COUNT="))
        << value;
  }
}

// Each of torchrun's agents counts the restarts that its own ranks caused: after one of two hosts has failed, they
// differ.
TEST(Identity, TorchrunsCountIsNotTakenOverSeveralHosts) {
  const Variables restarted = With(kTorchrun, "TORCHELASTIC_RESTART_COUNT", "2");
  EXPECT_EQ(Find(With(restarted, "LOCAL_WORLD_SIZE", "4"))->epoch, 2u);
  EXPECT_EQ(Find(With(restarted, "LOCAL_WORLD_SIZE", "2"))->epoch, 0u);
  EXPECT_EQ(Find(With(With(restarted, "LOCAL_WORLD_SIZE", "2"), "GYRE_EPOCH", "1"))->epoch, 1u);
}

TEST(Identity, OneRankNeedsNoStoreWhateverItsLauncher) {
  const auto identity = Find({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_THAT(identity, IsOk());
  EXPECT_EQ(identity->meeting, Meeting::kAlone);
  EXPECT_EQ(identity->launcher, "torchrun");
  EXPECT_EQ(Find({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"PMI_FD", "6"}})->meeting, Meeting::kAlone);
}

// What a launcher calls its servers differs between its hosts: ranks that are told where to meet are of one job there.
TEST(Identity, AGivenStoreNamesTheJobOfOpenMpiOverHosts) {
  Config config;
  config.store = "10.0.0.1:4000";
  std::string jobs[2];
  for (int host = 0; host < 2; ++host) {
    const auto identity = FindIdentity(config, [&](std::string_view name) -> std::optional<std::string> {
      if (name == "OMPI_COMM_WORLD_RANK") return std::to_string(host);
      if (name == "OMPI_COMM_WORLD_SIZE") return "2";
      if (name == "OMPI_COMM_WORLD_LOCAL_SIZE") return "1";
      if (name == "PMIX_NAMESPACE") return "7";
      if (name == "PMIX_SERVER_URI2") return "tcp4://server-" + std::to_string(host);
      return std::nullopt;
    });
    ASSERT_THAT(identity, support::IsOk());
    EXPECT_EQ(identity->meeting, Meeting::kRankZeroStore);
    jobs[host] = identity->job_id;
  }
  EXPECT_EQ(jobs[0], jobs[1]);
}

}  // namespace
}  // namespace gyre
