#include "launch/agent_protocol.h"

#include "absl/strings/str_cat.h"
#include "launch/malformed.h"
#include "net/bytes.h"

namespace gyre::launch {

namespace {

constexpr uint64_t kLongestGrace = uint64_t{1} << 40;  // milliseconds: 35 years
constexpr uint32_t kMostServers = 1 << 16;

void Texts(WireWriter& writer, const std::vector<std::string>& texts) {
  writer.U32(static_cast<uint32_t>(texts.size()));
  for (const std::string& text : texts) writer.Text(text);
}

std::vector<std::string> Texts(WireReader& reader) {
  std::vector<std::string> texts;
  const uint32_t count = reader.U32();
  for (uint32_t i = 0; i < count && reader.ok(); ++i) texts.emplace_back(reader.Text());
  return texts;
}

void Time(WireWriter& writer, TimePoint when) {
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch());
  writer.U64(static_cast<uint64_t>(since.count()));
}

// Nothing for what no clock says: before its beginning, or so late that sums would overflow.
std::optional<TimePoint> Time(WireReader& reader) {
  const uint64_t since = reader.U64();
  if (since > kLatest) return std::nullopt;
  return TimePoint(std::chrono::microseconds(since));
}

// What execve(2) and setenv(3) would cut.
bool HasNul(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (text.find('\0') != std::string::npos) return true;
  }
  return false;
}

}  // namespace

std::string EncodeHello(const Hello& hello) {
  return Written([&](WireWriter& writer) {
    writer.Text(hello.version);
    writer.Text(hello.host);
  });
}

absl::StatusOr<Hello> DecodeHello(std::string_view payload) {
  WireReader reader(payload);
  Hello hello;
  hello.version = reader.Text();
  hello.host = reader.Text();
  // More may follow in another version, which is to be told by its number.
  if (!reader.ok()) return Malformed("hello");
  return hello;
}

std::string EncodeReady(const Ready& ready) {
  return Written([&](WireWriter& writer) {
    Time(writer, ready.when);
    writer.Text(ready.store);
    writer.U32(ready.facts.cpus);
    writer.U32(ready.facts.gpus);
    writer.U64(ready.facts.memory);
    writer.U64(ready.facts.shm_free);
    writer.U64(ready.facts.memlock);
    writer.U64(ready.facts.wall_us);
    writer.U32(ready.facts.mtu);
    writer.Text(ready.facts.machine);
    writer.U32(ready.facts.rdma);
    for (const std::string* text : {&ready.facts.driver, &ready.facts.cuda, &ready.facts.nccl, &ready.facts.shares}) {
      writer.Text(*text);
    }
    Texts(writer, ready.servers);
  });
}

absl::StatusOr<Ready> DecodeReady(std::string_view payload) {
  WireReader reader(payload);
  const std::optional<TimePoint> when = Time(reader);
  Ready ready;
  ready.store = reader.Text();
  ready.facts.cpus = reader.U32();
  ready.facts.gpus = reader.U32();
  ready.facts.memory = reader.U64();
  ready.facts.shm_free = reader.U64();
  ready.facts.memlock = reader.U64();
  ready.facts.wall_us = reader.U64();
  ready.facts.mtu = reader.U32();
  ready.facts.machine = reader.Text();
  ready.facts.rdma = reader.U32();
  for (std::string* text : {&ready.facts.driver, &ready.facts.cuda, &ready.facts.nccl, &ready.facts.shares}) {
    *text = reader.Text();
  }
  ready.servers = Texts(reader);
  if (!reader.AtEnd() || !when) return Malformed("ready");
  ready.when = *when;
  return ready;
}

std::string EncodeWay(const WayToStore& way) {
  return Written([&](WireWriter& writer) {
    writer.Text(way.address);
    writer.Text(way.interface);
    writer.U32(way.mtu);
  });
}

absl::StatusOr<WayToStore> DecodeWay(std::string_view payload) {
  WireReader reader(payload);
  WayToStore way;
  way.address = reader.Text();
  way.interface = reader.Text();
  way.mtu = reader.U32();
  if (!reader.AtEnd()) return Malformed("the way to the store");
  return way;
}

std::string EncodeJob(const AgentJob& job) {
  return Written([&](WireWriter& writer) {
    writer.Text(job.version);
    writer.Text(job.job_id);
    writer.Text(job.secret);
    writer.U64(job.epoch);
    writer.U32(job.size);
    writer.U32(static_cast<uint32_t>(job.ranks_on_hosts.size()));
    for (const uint32_t ranks : job.ranks_on_hosts) writer.U32(ranks);
    writer.U32(job.first_rank);
    writer.U32(job.ranks);
    Texts(writer, job.command);
    writer.Text(job.directory);
    Texts(writer, job.environment);
    writer.U8(job.input);
    writer.U8(job.serve_store);
    writer.U8(job.loopback);
    writer.Text(job.host);
    writer.Text(job.interface);
    writer.Text(job.shared_volume);
    writer.U64(static_cast<uint64_t>(job.grace.count()));
    writer.U32(job.first_server);
    writer.U32(job.servers);
    writer.U32(job.restart_rank);
  });
}

absl::StatusOr<AgentJob> DecodeJob(std::string_view payload) {
  WireReader reader(payload);
  AgentJob job;
  job.version = reader.Text();
  job.job_id = reader.Text();
  job.secret = reader.Text();
  job.epoch = reader.U64();
  job.size = reader.U32();
  const uint32_t hosts = reader.U32();
  uint64_t placed = 0;
  for (uint32_t i = 0; i < hosts && reader.ok(); ++i) placed += job.ranks_on_hosts.emplace_back(reader.U32());
  job.first_rank = reader.U32();
  job.ranks = reader.U32();
  job.command = Texts(reader);
  job.directory = reader.Text();
  job.environment = Texts(reader);
  job.input = reader.U8() != 0;
  job.serve_store = reader.U8() != 0;
  job.loopback = reader.U8() != 0;
  job.host = reader.Text();
  job.interface = reader.Text();
  job.shared_volume = reader.Text();
  const uint64_t grace = reader.U64();
  job.first_server = reader.U32();
  job.servers = reader.U32();
  job.restart_rank = reader.U32();
  if (!reader.AtEnd()) return Malformed("job");
  const bool idle = job.ranks == 0 && job.servers == 0;
  if (job.size > INT32_MAX || job.first_rank > job.size || idle || job.ranks > job.size - job.first_rank) {
    return Malformed(absl::StrCat("job: ranks ", job.first_rank, " and ", job.ranks, " more of ", job.size));
  }
  if (placed != job.size) return Malformed("job: ranks on hosts");
  if (job.command.empty() || HasNul(job.command) || HasNul(job.environment) || grace > kLongestGrace) {
    return Malformed("job: command, environment or grace");
  }
  if (job.servers > kMostServers || job.first_server > kMostServers || job.restart_rank > INT32_MAX) {
    return Malformed("job: servers or restarts");
  }
  job.grace = std::chrono::milliseconds(grace);
  return job;
}

std::string EncodeStart(const JobStart& start) {
  return Written([&](WireWriter& writer) {
    writer.Text(start.store);
    Texts(writer, start.servers);
  });
}

absl::StatusOr<JobStart> DecodeStart(std::string_view payload) {
  WireReader reader(payload);
  JobStart start;
  start.store = reader.Text();
  start.servers = Texts(reader);
  // They go into the ranks' environment.
  if (!reader.AtEnd() || HasNul({start.store}) || HasNul(start.servers)) return Malformed("start");
  return start;
}

std::string EncodeFailure(const Failure& failure) {
  return Written([&](WireWriter& writer) {
    writer.I32(failure.exit_code);
    writer.Text(failure.stage);
    writer.Text(failure.message);
  });
}

absl::StatusOr<Failure> DecodeFailure(std::string_view payload) {
  WireReader reader(payload);
  Failure failure;
  failure.exit_code = reader.I32();
  failure.stage = reader.Text();
  failure.message = reader.Text();
  if (!reader.AtEnd() || failure.exit_code < 1 || failure.exit_code > 255) return Malformed("failure");
  return failure;
}

std::string EncodeRankEnd(const RankEnd& end) {
  return Written([&](WireWriter& writer) {
    writer.I32(end.rank);
    writer.I32(end.pid);
    Time(writer, end.when);
    writer.U8(static_cast<uint8_t>(end.code));
    writer.U8(static_cast<uint8_t>(end.signal));
    writer.U8(end.core_dumped);
    writer.I32(end.exec_error);
    writer.U8(end.asked_to);
  });
}

absl::StatusOr<RankEnd> DecodeRankEnd(std::string_view payload) {
  WireReader reader(payload);
  RankEnd end;
  end.rank = reader.I32();
  end.pid = reader.I32();
  const std::optional<TimePoint> when = Time(reader);
  end.code = reader.U8();
  end.signal = reader.U8();
  end.core_dumped = reader.U8() != 0;
  end.exec_error = reader.I32();
  end.asked_to = reader.U8() != 0;
  if (!reader.AtEnd() || end.rank < 0 || !when || end.exec_error < 0) return Malformed("end");
  end.when = *when;
  return end;
}

std::string EncodeTime(TimePoint when) {
  return Written([&](WireWriter& writer) { Time(writer, when); });
}

absl::StatusOr<TimePoint> DecodeTime(std::string_view payload) {
  WireReader reader(payload);
  const std::optional<TimePoint> when = Time(reader);
  if (!reader.AtEnd() || !when) return Malformed("a time");
  return *when;
}

std::string EncodeOutput(const OutputPiece& piece) {
  return Written([&](WireWriter& writer) {
    writer.I32(piece.rank);
    writer.U8(static_cast<uint8_t>(piece.stream));
    writer.Raw(piece.bytes);
  });
}

absl::StatusOr<OutputPiece> DecodeOutput(std::string_view payload) {
  WireReader reader(payload);
  OutputPiece piece;
  piece.rank = reader.I32();
  piece.stream = reader.U8();
  if (!reader.ok() || piece.rank < 0 || piece.stream < 1 || piece.stream > 2) return Malformed("output");
  piece.bytes = payload.substr(5);
  return piece;
}

std::string EncodePair(uint32_t a, uint32_t b) {
  return Written([&](WireWriter& writer) {
    writer.U32(a);
    writer.U32(b);
  });
}

absl::StatusOr<std::pair<uint32_t, uint32_t>> DecodePair(std::string_view payload) {
  WireReader reader(payload);
  const uint32_t a = reader.U32();
  const uint32_t b = reader.U32();
  if (!reader.AtEnd()) return Malformed("two numbers");
  return std::pair{a, b};
}

std::string EncodeNumber(uint32_t number) {
  return Written([&](WireWriter& writer) { writer.U32(number); });
}

absl::StatusOr<uint32_t> DecodeNumber(std::string_view payload) {
  WireReader reader(payload);
  const uint32_t number = reader.U32();
  if (!reader.AtEnd()) return Malformed("a number");
  return number;
}

absl::StatusOr<bool> Preamble::Feed(std::string_view& bytes) {
  const size_t before = skipped_.size();
  skipped_.append(bytes.substr(0, kLongest + kAgentMagic.size() - std::min(before, kLongest)));
  // The magic may have begun in what came earlier.
  const size_t from = before > kAgentMagic.size() ? before - kAgentMagic.size() : 0;
  const size_t found = skipped_.find(kAgentMagic, from);
  if (found != std::string::npos) {
    bytes.remove_prefix(found + kAgentMagic.size() - before);
    skipped_.resize(found);
    return true;
  }
  bytes = {};
  if (skipped_.size() <= kLongest) return false;
  return absl::DataLossError("64 KiB came that were not the agent's");
}

}  // namespace gyre::launch
