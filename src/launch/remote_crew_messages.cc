// RemoteCrew: what agents say.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "launch/remote_crew.h"
#include "launch/report.h"
#include "launch/signals.h"
#include "launch/watch_protocol.h"

namespace gyre::launch {

absl::Status RemoteCrew::OnFrame(RemoteHost& remote, const Frame& frame) {
  Host& host = hosts_[remote.index()];
  switch (static_cast<AgentMessage>(frame.header.type)) {
    case AgentMessage::kBeat: return OnBeat(host, frame.payload);
    case AgentMessage::kReady: return OnReady(host, frame.payload);
    case AgentMessage::kReached: return OnReached(host, frame.payload);
    case AgentMessage::kFailed: return OnFailed(host, frame.payload);
    default: break;
  }
  if (phase_ != Phase::kRunning && phase_ != Phase::kFinishing) return absl::DataLossError("not started yet");
  switch (static_cast<AgentMessage>(frame.header.type)) {
    case AgentMessage::kStarted: return OnPid(host, frame.payload);
    case AgentMessage::kOutput:
    case AgentMessage::kOutputEnd: return OnOutput(host, frame);
    case AgentMessage::kRankEnded: return OnEnd(host, frame.payload);
    case AgentMessage::kRankState: return OnState(host, frame.payload);
    case AgentMessage::kInputTaken: return OnInputTaken(frame.payload);
    case AgentMessage::kDone: return OnDone(host);
    case AgentMessage::kReport: return OnReport(host, frame.payload);
    case AgentMessage::kUsage: return OnUsage(host, frame.payload);
    case AgentMessage::kNote: OnHostNote(host, frame.payload); return absl::OkStatus();
    default: return absl::DataLossError(absl::StrCat("a message of type ", frame.header.type));
  }
}

absl::Status RemoteCrew::OnBeat(Host& host, std::string_view payload) {
  ASSIGN_OR_RETURN(const TimePoint sent, DecodeTime(payload));
  host.Here(sent);
  return absl::OkStatus();
}

absl::Status RemoteCrew::OnFailed(Host& host, std::string_view payload) {
  ASSIGN_OR_RETURN(Failure failure, DecodeFailure(payload));
  const size_t next = failure.message.find("; try: ");
  std::string cause = failure.message.substr(0, next);
  std::string what_next = next == std::string::npos ? "" : failure.message.substr(next + 7);
  host.remote->Fail({failure.stage, std::move(cause), std::move(what_next), failure.exit_code});
  return absl::OkStatus();
}

// Or the server of that number.
absl::StatusOr<RemoteCrew::Rank*> RemoteCrew::RankOf(const Host& host, uint32_t rank) {
  const auto within = [rank](int first, int count) {
    return rank >= static_cast<uint32_t>(first) && rank - static_cast<uint32_t>(first) < static_cast<uint32_t>(count);
  };
  if (!within(host.ranks.first, host.ranks.count) && !within(size_ + host.servers.first, host.servers.count)) {
    return absl::DataLossError(absl::StrCat("rank ", rank, " is none of this host's"));
  }
  return &ranks_[rank];
}

absl::Status RemoteCrew::ReopenStreams(const Host& host, uint32_t number) {
  Rank& rank = ranks_[number];
  output_.Finish(rank.stream);
  output_.Finish(rank.stream + 1);
  ASSIGN_OR_RETURN(rank.stream, output_.AddRemote(static_cast<int>(number), hosts_.size() > 1 ? host.ranks.host : "",
                                                  /*again=*/true));
  return absl::OkStatus();
}

absl::Status RemoteCrew::OnPid(Host& host, std::string_view payload) {
  ASSIGN_OR_RETURN(const auto pair, DecodePair(payload));
  ASSIGN_OR_RETURN(Rank * rank, RankOf(host, pair.first));
  const auto number = static_cast<int>(pair.first);
  if (rank->pid != 0) RETURN_IF_ERROR(ReopenStreams(host, pair.first));
  rank->pid = static_cast<pid_t>(pair.second);
  rank->stopped = false;  // whoever was, is gone
  events_.Verbose(absl::StrCat(NameOf(number), ": pid ", rank->pid, " on ", host.ranks.host, ": ",
                               number < size_ ? QuotedCommand(options_.command) : "gyrerun serve"));
  return absl::OkStatus();
}

absl::Status RemoteCrew::OnOutput(Host& host, const Frame& frame) {
  ASSIGN_OR_RETURN(const OutputPiece piece, DecodeOutput(frame.payload));
  ASSIGN_OR_RETURN(const Rank* rank, RankOf(host, static_cast<uint32_t>(piece.rank)));
  const uint32_t stream = rank->stream + static_cast<uint32_t>(piece.stream - 1);
  if (static_cast<AgentMessage>(frame.header.type) == AgentMessage::kOutputEnd) {
    output_.Finish(stream);
    return absl::OkStatus();
  }
  host.credit += static_cast<uint32_t>(piece.bytes.size());
  if (host.credit > kOutputWindow) return absl::DataLossError("more output than it may send");
  output_.Feed(stream, piece.bytes);
  return absl::OkStatus();
}

absl::Status RemoteCrew::OnEnd(Host& host, std::string_view payload) {
  ASSIGN_OR_RETURN(RankEnd end, DecodeRankEnd(payload));
  ASSIGN_OR_RETURN(Rank * rank, RankOf(host, static_cast<uint32_t>(end.rank)));
  if (!rank->alive) return absl::DataLossError(absl::StrCat(NameOf(end.rank), " has ended twice"));
  rank->alive = false;
  end.when = std::max(host.Here(end.when), start_);
  end.host = host.ranks.host;
  if (end.pid == 0) end.pid = rank->pid;  // of one that was to be started again
  if (end.rank >= size_) {
    EndOfServer(std::move(end));
    return absl::OkStatus();
  }
  --alive_;
  if (end.rank == 0 && input_) input_->Stop();
  events_.OnRankEnded(std::move(end));
  return absl::OkStatus();
}

absl::Status RemoteCrew::OnState(Host& host, std::string_view payload) {
  ASSIGN_OR_RETURN(const auto pair, DecodePair(payload));
  ASSIGN_OR_RETURN(Rank * rank, RankOf(host, pair.first));
  rank->stopped = pair.second != 0;
  events_.Verbose(absl::StrCat(NameOf(static_cast<int>(pair.first)), " on ", host.ranks.host, " (pid ", rank->pid,
                               rank->stopped ? ") was stopped by " : ") goes on",
                               rank->stopped ? SignalName(static_cast<int>(pair.second)) : ""));
  events_.OnRankStoppedOrNot();
  return absl::OkStatus();
}

absl::Status RemoteCrew::OnInputTaken(std::string_view payload) {
  ASSIGN_OR_RETURN(const uint32_t bytes, DecodeNumber(payload));
  if (input_) input_->OnTaken(bytes);
  return absl::OkStatus();
}

absl::Status RemoteCrew::OnReport(const Host& host, std::string_view payload) {
  ASSIGN_OR_RETURN(const RankReport report, DecodeReport(payload));
  if (report.rank >= size_) return absl::DataLossError("a report of no rank");  // servers make none
  RETURN_IF_ERROR(RankOf(host, static_cast<uint32_t>(report.rank)).status());
  events_.watch().OnReport(report);
  return absl::OkStatus();
}

absl::Status RemoteCrew::OnUsage(Host& host, std::string_view payload) {
  ASSIGN_OR_RETURN(const UsageMessage usage, DecodeUsage(payload));
  for (const RankUsage& rank : usage.ranks) {
    if (rank.rank >= size_) return absl::DataLossError("usage of no rank");  // servers are not measured
    RETURN_IF_ERROR(RankOf(host, static_cast<uint32_t>(rank.rank)).status());
  }
  events_.watch().OnUsage(host.Here(usage.when), usage.ranks);
  return absl::OkStatus();
}

void RemoteCrew::OnHostNote(const Host& host, std::string_view lines) {
  for (const absl::string_view line : absl::StrSplit(ToAbsl(lines), '\n', absl::SkipEmpty())) {
    events_.watch().OnNote(absl::StrCat("host ", host.ranks.host, ": ", line));
  }
}

absl::Status RemoteCrew::OnDone(Host& host) {
  if (phase_ != Phase::kFinishing) return absl::DataLossError("done at the wrong time");
  host.done = true;
  CloseStreams(host);
  return absl::OkStatus();
}

}  // namespace gyre::launch
