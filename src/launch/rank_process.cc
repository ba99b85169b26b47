#include "launch/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>

#include "base/pidfd.h"
#include "base/status.h"

namespace gyre::launch {

namespace {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

absl::StatusOr<Pipe> MakeOutputPipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe2");
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  // Only our end: the rank's must block, as programs expect.
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return pipe;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// As large as the highest processor's number asks.
struct CpuSet {
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };

  explicit CpuSet(const std::vector<int>& cpus) {
    if (cpus.empty()) return;
    const auto count = static_cast<size_t>(*std::ranges::max_element(cpus)) + 1;
    size = CPU_ALLOC_SIZE(count);
    set.reset(CPU_ALLOC(count));
    CPU_ZERO_S(size, set.get());
    for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), size, set.get());
  }

  std::unique_ptr<cpu_set_t, Free> set;
  size_t size = 0;
};

// All that the child needs, made before fork(2): after it, in a process that had threads, nothing may allocate.
struct ChildPlan {
  const RankCommand& command;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  cpu_set_t* cpus;  // null: all
  size_t cpus_size;
  int out;
  int err;
  pid_t parent;
};

void DefaultSignals() {
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void RunChild(const ChildPlan& plan) {
  const RankCommand& command = plan.command;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(1);  // it died before the line above
  dup2(command.stdin_fd, 0);
  dup2(plan.out, 1);
  dup2(plan.err, 2);
  setrlimit(RLIMIT_NOFILE, &command.files);
  if (plan.cpus != nullptr) sched_setaffinity(0, plan.cpus_size, plan.cpus);
  DefaultSignals();
  execve(command.path.c_str(), plan.arguments.data(), plan.environment.data());
  const ExecError report{command.rank, errno};
  const ssize_t written = write(command.error_fd, &report, sizeof report);
  _exit(written == sizeof report ? 127 : 126);
}

}  // namespace

absl::StatusOr<RankProcess> StartRank(const RankCommand& command) {
  ASSIGN_OR_RETURN(Pipe out, MakeOutputPipe());
  ASSIGN_OR_RETURN(Pipe err, MakeOutputPipe());
  const CpuSet cpus(command.cpus);
  const ChildPlan plan{command,
                       Pointers(command.arguments),
                       Pointers(command.environment),
                       cpus.set.get(),
                       cpus.size,
                       out.write.get(),
                       err.write.get(),
                       getpid()};
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus("fork");
  if (pid == 0) RunChild(plan);
  setpgid(pid, pid);  // whoever comes first; the group must exist when we signal it
  RankProcess process;
  process.pid = pid;
  process.pidfd = OpenPidfd(pid);
  if (!process.pidfd) {
    const absl::Status status = ErrnoStatus("pidfd_open");
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return status;
  }
  process.out = std::move(out.read);
  process.err = std::move(err.read);
  return process;
}

}  // namespace gyre::launch
