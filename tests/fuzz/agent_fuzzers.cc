// What gyrerun and its agents say to each other over a remote shell.
#include <algorithm>

#include "fuzzers.h"
#include "launch/agent_protocol.h"

namespace gyre::fuzz {

using namespace launch;

namespace {

// A text has 4 bytes at least on the wire, in memory 32; vectors grow by doubling, and the result is moved once.
constexpr int64_t kFactor = 30;

std::string RandomAgentText(Mutator& random) {
  std::string text = random.RandomBytes(random.Below(30));
  std::ranges::replace(text, '\0', 'x');
  return text;
}

std::vector<std::string> RandomAgentTexts(Mutator& random) {
  std::vector<std::string> texts(1 + random.Below(8));
  for (std::string& text : texts) text = RandomAgentText(random);
  return texts;
}

AgentJob RandomJob(Mutator& random) {
  AgentJob job;
  for (std::string* text :
       {&job.version, &job.job_id, &job.secret, &job.directory, &job.host, &job.interface, &job.shared_volume}) {
    *text = RandomAgentText(random);
  }
  job.epoch = random.Number();
  job.ranks = static_cast<uint32_t>(1 + random.Below(1000));
  job.first_rank = static_cast<uint32_t>(random.Below(1000));
  job.size = job.first_rank + job.ranks + static_cast<uint32_t>(random.Below(1000));
  job.ranks_on_hosts = {job.first_rank, job.ranks, job.size - job.first_rank - job.ranks};
  job.command = RandomAgentTexts(random);
  job.environment = RandomAgentTexts(random);
  job.input = random.OneIn(2);
  job.serve_store = random.OneIn(2);
  job.loopback = random.OneIn(2);
  job.grace = std::chrono::milliseconds(random.Below(100'000));
  job.first_server = static_cast<uint32_t>(random.Below(1000));
  job.servers = static_cast<uint32_t>(random.Below(1000));
  job.restart_rank = static_cast<uint32_t>(random.Below(1000));
  return job;
}

TimePoint RandomTime(Mutator& random) {
  return TimePoint(std::chrono::microseconds(random.Below(uint64_t{1} << 52)));
}

RankEnd RandomEnd(Mutator& random) {
  RankEnd end;
  end.rank = static_cast<int>(random.Below(INT32_MAX));
  end.pid = static_cast<pid_t>(random.Below(INT32_MAX));
  end.when = RandomTime(random);
  end.code = static_cast<int>(random.Below(256));
  end.signal = static_cast<int>(random.Below(128));
  end.core_dumped = random.OneIn(2);
  end.exec_error = static_cast<int>(random.Below(200));
  end.asked_to = random.OneIn(2);
  return end;
}

constexpr uint64_t kKinds = 11;

std::string Encoded(uint64_t kind, Mutator& random) {
  switch (kind) {
    case 0: return EncodeHello({RandomAgentText(random), RandomAgentText(random)});
    case 1: return EncodeJob(RandomJob(random));
    case 2:
      return EncodeFailure({static_cast<int>(1 + random.Below(255)), RandomAgentText(random), RandomAgentText(random)});
    case 3: return EncodeRankEnd(RandomEnd(random));
    case 4: {
      const std::string bytes = RandomAgentText(random);
      return EncodeOutput({static_cast<int>(random.Below(INT32_MAX)), static_cast<int>(1 + random.Below(2)), bytes});
    }
    case 5: return EncodePair(static_cast<uint32_t>(random.Number()), static_cast<uint32_t>(random.Number()));
    case 6: {
      Ready ready{RandomTime(random), RandomAgentText(random)};
      ready.servers = RandomAgentTexts(random);
      return EncodeReady(ready);
    }
    case 7: return EncodeTime(RandomTime(random));
    case 8: return EncodeStart({RandomAgentText(random), RandomAgentTexts(random)});
    case 9:
      return EncodeWay({RandomAgentText(random), RandomAgentText(random), static_cast<uint32_t>(random.Number())});
    default: return EncodeNumber(static_cast<uint32_t>(random.Number()));
  }
}

std::string Check(uint64_t kind, const std::string& payload, bool valid) {
  const auto pair = [](const std::pair<uint32_t, uint32_t>& numbers) {
    return EncodePair(numbers.first, numbers.second);
  };
  switch (kind) {
    case 0: return CheckDecoder(payload, valid, kFactor, DecodeHello, EncodeHello);
    case 1: return CheckDecoder(payload, valid, kFactor, DecodeJob, EncodeJob);
    case 2: return CheckDecoder(payload, valid, kFactor, DecodeFailure, EncodeFailure);
    case 3: return CheckDecoder(payload, valid, kFactor, DecodeRankEnd, EncodeRankEnd);
    case 4: return CheckDecoder(payload, valid, kFactor, DecodeOutput, EncodeOutput);
    case 5: return CheckDecoder(payload, valid, kFactor, DecodePair, pair);
    case 6: return CheckDecoder(payload, valid, kFactor, DecodeReady, EncodeReady);
    case 7: return CheckDecoder(payload, valid, kFactor, DecodeTime, EncodeTime);
    case 8: return CheckDecoder(payload, valid, kFactor, DecodeStart, EncodeStart);
    case 9: return CheckDecoder(payload, valid, kFactor, DecodeWay, EncodeWay);
    default: return CheckDecoder(payload, valid, kFactor, DecodeNumber, EncodeNumber);
  }
}

}  // namespace

std::string FuzzAgentMessages(Mutator& random) {
  const uint64_t kind = random.Below(kKinds);
  std::string payload = Encoded(kind, random);
  const bool valid = random.OneIn(4);
  if (!valid) payload = random.Mutated(std::move(payload));
  if (std::string wrong = Check(kind, payload, valid); !wrong.empty()) return wrong;
  return valid ? "" : Check(random.Below(kKinds), payload, false);
}

// The magic somewhere in what a login shell says, in pieces.
std::string FuzzPreamble(Mutator& random) {
  const std::string magic(kAgentMagic);
  std::string before = random.RandomBytes(random.OneIn(20) ? random.Below(2 * Preamble::kLongest) : random.Below(100));
  for (uint64_t i = random.Below(4); i > 0; --i)
    before += random.OneIn(2) ? random.Mutated(magic) : magic.substr(random.Below(magic.size()));
  const std::string after = random.RandomBytes(random.Below(100));
  const std::string all = before + magic + after;
  const size_t expected = all.find(magic);
  Preamble preamble;
  for (size_t fed = 0; fed < all.size();) {
    const size_t piece = std::min(all.size() - fed, 1 + random.Below(random.OneIn(2) ? 20 : 200'000));
    std::string_view bytes = std::string_view(all).substr(fed, piece);
    fed += piece;
    const auto seen = preamble.Feed(bytes);
    if (preamble.skipped().size() > Preamble::kLongest + magic.size()) return "keeps too much";
    if (!seen.ok()) return expected > Preamble::kLongest ? "" : "gave up too early";
    if (!*seen && !bytes.empty()) return "left bytes behind";
    if (!*seen) continue;
    if (fed - bytes.size() != expected + magic.size()) return "ended elsewhere";
    return preamble.skipped() == all.substr(0, expected) ? "" : "skipped something else";
  }
  return "did not find the magic";
}

}  // namespace gyre::fuzz
