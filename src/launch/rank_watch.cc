#include "launch/rank_watch.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/pidfd.h"
#include "base/status.h"
#include "launch/now.h"
#include "launch/process_usage.h"

namespace gyre::launch {

namespace {

constexpr int kReportsAtOnce = 256;
constexpr size_t kLongestStacks = size_t{192} << 10;  // less than a message to the launcher may hold
constexpr Duration kToolPatience = std::chrono::seconds(40);

}  // namespace

absl::Status RankWatch::Prepare(const WatchSettings& settings, int first, int count) {
  settings_ = settings;
  first_ = first;
  ranks_.assign(static_cast<size_t>(count), {});
  absl::StatusOr<std::vector<Binding>> bindings = PlanBindings(settings.bind, settings.map, count);
  if (!bindings.ok()) events_.OnNote(std::string(bindings.status().message()));
  if (bindings.ok()) bindings_ = *std::move(bindings);
  for (size_t i = 0; settings.report_bindings && i < bindings_.size(); ++i) {
    events_.OnNote(absl::StrCat("rank ", first + static_cast<int>(i), ": bound to ", bindings_[i].where, " (CPUs ",
                                CpuListText(bindings_[i].cpus), ")"));
  }
  if (settings.report_bindings && settings.bind == BindTo::kNone) events_.OnNote("not bound: --bind-to none");
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) return ErrnoStatus("socketpair");
  own_end_.Reset(ends[0]);
  ranks_end_.Reset(ends[1]);  // the ranks find it at this very number
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  if (settings.sample.count() > 0) {
    FindGpus();
    if (const std::string note = std::exchange(gpus_note_, ""); !note.empty()) events_.OnNote(note);
    next_sample_ = Now() + settings.sample;
  }
  return poller_.AddReadable(ends[0], {Source::kReports});
}

std::vector<int> RankWatch::CpusOf(int rank) const {
  const auto index = static_cast<size_t>(rank - first_);
  return index < bindings_.size() ? bindings_[index].cpus : std::vector<int>();
}

void RankWatch::OnStarted(int rank, pid_t pid) {
  ranks_[static_cast<size_t>(rank - first_)] = {pid, true, 0};
  if (settings_.sample.count() == 0) return;
  Measure({rank});
  if (!next_sample_) next_sample_ = Now() + settings_.sample;  // for a while nobody was there to look at
}

void RankWatch::OnEnded(int rank) {
  ReadReports();  // what it said before
  if (settings_.sample.count() > 0) Measure({rank});
  ranks_[static_cast<size_t>(rank - first_)].alive = false;
}

void RankWatch::OnEvent(PollKey key) {
  if (key.source == Source::kReports) ReadReports();
  if (key.source == Source::kTool) ReadTool();
}

void RankWatch::ReadReports() {
  std::array<char, kLongestReport + 1> line;
  for (int i = 0; own_end_ && i < kReportsAtOnce; ++i) {
    const ssize_t length = recv(own_end_.get(), line.data(), line.size(), MSG_DONTWAIT);
    if (length <= 0) return;
    const auto report = ParseRankReport({line.data(), static_cast<size_t>(length)});
    const auto last = first_ + static_cast<int>(ranks_.size());
    if (!report.ok() || report->rank < first_ || report->rank >= last) continue;  // whoever wrote it is none of ours
    // What it has used until now belongs to what it did until now.
    if (settings_.sample.count() > 0 && !report->activity.empty()) Measure({report->rank});
    events_.OnReport(*report);
  }
}

std::vector<int> RankWatch::Living() const {
  std::vector<int> living;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].alive) living.push_back(first_ + static_cast<int>(i));
  }
  return living;
}

// Not for a job that is not measured: the library is large.
void RankWatch::FindGpus() {
  if (std::exchange(gpus_sought_, true)) return;
  absl::StatusOr<std::unique_ptr<Gpus>> gpus = Gpus::Open();
  if (gpus.ok()) {
    gpus_ = *std::move(gpus);
  } else {
    gpus_note_ = absl::StrCat("--trace-usage: without GPUs: ", gpus.status().message());
  }
}

void RankWatch::Measure(const std::vector<int>& which) {
  std::vector<pid_t> pids;
  for (const int rank : which) pids.push_back(ranks_[static_cast<size_t>(rank - first_)].pid);
  const std::vector<ProcessUsage> trees = UsageOfTrees(pids);
  std::vector<std::optional<GpuUsage>> gpu(which.size());
  if (gpus_ != nullptr) {
    std::vector<std::vector<pid_t>> processes;
    std::vector<int> numbers;
    for (const ProcessUsage& tree : trees) processes.push_back(tree.processes);
    for (const int rank : which) numbers.push_back(rank - first_);
    gpu = gpus_->Look(processes, numbers);
  }
  std::vector<RankUsage> usage;
  for (size_t i = 0; i < which.size(); ++i) {
    Rank& rank = ranks_[static_cast<size_t>(which[i] - first_)];
    if (trees[i].memory > 0) rank.memory = trees[i].memory;  // a process that has ended has none left
    if (trees[i].memory > 0) rank.gpu = gpu[i];              // likewise
    usage.push_back({which[i], trees[i].cpu_seconds, rank.memory, rank.gpu});
  }
  events_.OnUsage(Now(), usage);
}

std::optional<TimePoint> RankWatch::next() const {
  std::optional<TimePoint> next = next_sample_;
  if (tool_) next = std::min(next.value_or(tool_end_), tool_end_);
  return next;
}

void RankWatch::OnTime(TimePoint now) {
  if (tool_ && now >= tool_end_) EndTool();
  if (!next_sample_ || now < *next_sample_) return;
  // At the times that were meant; those that were missed are left out.
  while (*next_sample_ <= now) *next_sample_ += settings_.sample;
  const std::vector<int> living = Living();
  if (living.empty()) {
    next_sample_.reset();
  } else {
    Measure(living);
  }
}

void RankWatch::TakeStacks(TimePoint now) {
  if (tool_ || Living().empty()) return;
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  RankCommand command;
  command.path = "/proc/self/exe";
  command.arguments = {"gyrerun", "stacks"};
  command.stdin_fd = null.get();
  for (const int rank : Living()) {
    command.arguments.push_back(absl::StrCat("rank ", rank, "=", ranks_[static_cast<size_t>(rank - first_)].pid));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) command.environment.emplace_back(*entry);
  getrlimit(RLIMIT_NOFILE, &command.files);
  absl::StatusOr<RankProcess> tool = StartRank(command);
  if (!tool.ok()) return events_.OnNote(absl::StrCat("no stacks: ", tool.status().message()));
  tool_ = *std::move(tool);
  tool_text_.clear();
  tool_end_ = now + kToolPatience;
  if (!poller_.AddReadable(tool_->out.get(), {Source::kTool}).ok()) EndTool();
}

void RankWatch::ReadTool() {
  std::array<char, 16384> buffer;
  if (!tool_) return;
  const ssize_t count = read(tool_->out.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count > 0) tool_text_.append(buffer.data(), static_cast<size_t>(count));
  if (count <= 0 || tool_text_.size() > kLongestStacks) EndTool();
}

void RankWatch::EndTool() {
  poller_.Remove(tool_->out.get());
  SignalPidfd(tool_->pidfd.get(), SIGKILL);
  tool_.reset();
  tool_text_.resize(std::min(tool_text_.size(), kLongestStacks));
  if (!tool_text_.empty()) events_.OnNote(tool_text_);
}

}  // namespace gyre::launch
