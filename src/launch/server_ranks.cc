#include "launch/server_ranks.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/environment.h"
#include "base/status.h"
#include "bootstrap/secret.h"
#include "launch/exit_code.h"
#include "net/socket.h"
#include "ps/process/server_process.h"

namespace gyre::launch {

namespace {

constexpr int kBacklog = 512;

constexpr char kFolder[] = "gyre-servers-";
constexpr int kTries = 10;  // to make a folder: each can be taken for an abandoned one before it is locked

// The folder of that name, if it is this user's and is there, locked. Its lock is its gyrerun's for as long as that
// lives, and says so in other containers, too, which a process's number does not.
UniqueFd LockFolder(const std::filesystem::path& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat locked {
  }, named{};
  if (!fd || flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || fstat(fd.get(), &locked) != 0) return {};
  const bool there = lstat(path.c_str(), &named) == 0 && named.st_ino == locked.st_ino;
  return there && locked.st_uid == geteuid() ? std::move(fd) : UniqueFd();
}

// What a gyrerun has left that was killed.
void RemoveAbandoned(const std::filesystem::path& parent) {
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(parent, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kFolder)) continue;
    std::error_code ignored;
    if (const UniqueFd lock = LockFolder(entry->path())) std::filesystem::remove_all(entry->path(), ignored);
  }
}

struct Folder {
  std::string path;
  UniqueFd lock;
};

absl::StatusOr<Folder> MakeFolder() {
  std::error_code error;
  std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error) parent = "/tmp";
  RemoveAbandoned(parent);
  for (int tries = 1;; ++tries) {
    std::string path = parent / absl::StrCat(kFolder, "XXXXXX");
    if (mkdtemp(path.data()) == nullptr) return ErrnoStatus(path);
    UniqueFd lock = LockFolder(path);
    // Where there are no locks at all, nobody else gets one either.
    if (lock || tries == kTries) return Folder{std::move(path), std::move(lock)};
    rmdir(path.c_str());
  }
}

// A descriptor that is readable once SIGTERM has come.
absl::StatusOr<UniqueFd> TakeTermination() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return ErrnoStatus("sigprocmask");
  UniqueFd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return ErrnoStatus("signalfd");
  return fd;
}

std::string GivenStrategy(const std::vector<std::string>& exports) {
  constexpr std::string_view kStrategy = "GYRE_STRATEGY=";
  const char* const own = std::getenv("GYRE_STRATEGY");
  std::string given = own != nullptr ? own : "";
  for (const std::string& entry : exports) {
    if (entry.starts_with(kStrategy)) given = entry.substr(kStrategy.size());
  }
  return given.empty() ? "ps" : given;
}

absl::Status ServeUntilTold(int server, uint64_t life, const std::string& folder) {
  ASSIGN_OR_RETURN(const Config config, LoadConfig({}, ProcessEnvironment()));
  if (!config.secret_fd || !config.job_id) return absl::FailedPreconditionError("this is for gyrerun itself to start");
  ASSIGN_OR_RETURN(UniqueFd stop, TakeTermination());
  ps::ServerProcessOptions options{.server = server,
                                   .incarnation = life,
                                   .job_id = *config.job_id,
                                   .epoch = static_cast<uint64_t>(config.epoch.value_or(0)),
                                   .secret = {},
                                   .host = config.host_id.value_or(""),
                                   .folder = folder,
                                   .servers = {},
                                   .listener = UniqueFd(0),
                                   .stop = std::move(stop)};
  for (const std::string& address : config.strategy.servers) {
    ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(address));
    options.servers.push_back(std::move(endpoint));
  }
  // It may be gone with what was there: another server has it then, perhaps. Without it there are no snapshots.
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    std::fputs(
        absl::StrCat("gyrerun: server ", server, ": no folder for snapshots: ", ErrnoStatus(folder).message(), "\n")
            .c_str(),
        stderr);
  }
  ASSIGN_OR_RETURN(options.secret, ReadSecretFd(*config.secret_fd));
  // Gradients come and go by megabytes: the memory stays.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ASSIGN_OR_RETURN(auto process, ps::ServerProcess::Create(std::move(options)));
  return process->Run();
}

}  // namespace

ServerRanks::~ServerRanks() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

absl::Status ServerRanks::Open(const std::string& address, int first, int count) {
  first_ = first;
  ASSIGN_OR_RETURN(Folder folder, MakeFolder());
  folder_ = std::move(folder.path);
  lock_ = std::move(folder.lock);
  for (int server = 0; server < count; ++server) {
    ASSIGN_OR_RETURN(UniqueFd listener, ListenTcp({address, 0}, kBacklog, TimePoint::max()));
    ASSIGN_OR_RETURN(const Endpoint endpoint, LocalEndpoint(listener.get()));
    addresses_.push_back(ToString(endpoint));
    listeners_.push_back(std::move(listener));
  }
  return absl::OkStatus();
}

std::vector<std::string> ServerRanks::Command(int server, uint64_t life) const {
  return {"gyrerun", "serve", absl::StrCat(server), absl::StrCat(life), folder_};
}

std::string ReplicasVariable(const std::vector<std::string>& exports, int replicas) {
  return absl::StrCat("GYRE_STRATEGY=", GivenStrategy(exports), ",replicas=", replicas);
}

std::string StrategyVariable(const std::vector<std::string>& exports, const std::vector<std::string>& addresses,
                             uint64_t life) {
  return absl::StrCat("GYRE_STRATEGY=", GivenStrategy(exports), ",servers=", absl::StrJoin(addresses, "+"),
                      ",life=", life);
}

int Serve(const std::vector<std::string>& arguments) {
  int server = 0;
  uint64_t life = 0;
  if (arguments.size() != 3 || !absl::SimpleAtoi(arguments[0], &server) || !absl::SimpleAtoi(arguments[1], &life)) {
    std::fputs("gyrerun: serve is for gyrerun itself; try: gyrerun --servers 1 -np 2 PROGRAM\n", stderr);
    return kExitUsage;
  }
  const absl::Status status = ServeUntilTold(server, life, arguments[2]);
  // gyrerun asks for it when nobody looks at the code any more; told by somebody else, a server is missed as if killed.
  if (status.ok()) return kExitSignalBase + SIGTERM;
  std::fputs(absl::StrCat("gyrerun: server ", server, ": ", status.ToString(), "\n").c_str(), stderr);
  return 1;
}

}  // namespace gyre::launch
