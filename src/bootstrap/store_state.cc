#include "bootstrap/store_state.h"

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/first_and_more.h"
#include "base/status.h"

namespace gyre {

namespace {

constexpr size_t kEntryBytes = 128;  // what an entry costs besides its key and value, roughly

// A little before the client's own deadline, so that the answer, which says who is missing, still reaches it.
TimePoint WaitUntil(TimePoint now, uint32_t timeout_ms) {
  const uint32_t margin = std::min<uint32_t>(200, timeout_ms / 10);
  return now + std::chrono::milliseconds(timeout_ms - margin);
}

std::string ListRanks(const std::vector<int>& ranks) {
  constexpr size_t kMostNamed = 16;
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", FirstAndMore(ranks, kMostNamed, std::identity()));
}

absl::Status RankLeft(std::string_view name, int rank) {
  return absl::UnavailableError(absl::StrCat("gather \"", ToAbsl(name), "\": rank ", rank, " left or was lost"));
}

}  // namespace

StoreState::StoreState(int size, uint64_t epoch, bool ranks_return)
    : size_(size), epoch_(epoch), ranks_return_(ranks_return), ranks_(static_cast<size_t>(size)) {}

void StoreState::Connected(ConnectionId id, const HandshakeIdentity& peer) {
  clients_.emplace(id, Client{peer, /*instance=*/-1, std::nullopt});
}

void StoreState::Disconnected(ConnectionId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  const int instance = found->second.instance;
  const int rank = found->second.peer.rank;
  clients_.erase(found);
  if (instance >= 0) LoseRank(instance, rank);
}

void StoreState::Handle(ConnectionId id, const Frame& frame, TimePoint now) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = found->second;
  client.wait.reset();
  const uint32_t sequence = frame.header.sequence;
  if (frame.header.epoch != epoch_) {
    return Answer(id, sequence,
                  absl::AbortedError(absl::StrCat("the store is in epoch ", epoch_, ", not ", frame.header.epoch)));
  }
  const auto request = DecodeRequest(frame.header.type, frame.payload);
  if (!request.ok()) return Answer(id, sequence, request.status());
  switch (request->kind) {
    case StoreMessage::kJoin: return Join(id, client, sequence, *request);
    case StoreMessage::kSet: return Set(id, sequence, *request);
    case StoreMessage::kGet: return Get(id, client, sequence, *request, now);
    case StoreMessage::kAdd: return Add(id, sequence, *request);
    case StoreMessage::kGather: return Gather(id, client, sequence, *request, now);
    case StoreMessage::kReply: return;  // DecodeRequest refuses it
  }
}

void StoreState::Expire(TimePoint now) {
  std::set<GatherKey> given_up;
  for (const auto& [id, client] : clients_) {
    if (client.wait && client.wait->gather && client.wait->deadline <= now) given_up.insert(*client.wait->gather);
  }
  for (auto& [id, client] : clients_) {
    if (!client.wait) continue;
    // Ranks that began together end together, all with the names of those who are missing: otherwise the first one's
    // leaving would be what the others hear.
    const bool with_others = client.wait->gather && given_up.contains(*client.wait->gather);
    const auto early = std::chrono::milliseconds(with_others ? client.wait->timeout_ms / 10 : 0);
    if (client.wait->deadline > now + early) continue;
    const Wait wait = *std::exchange(client.wait, std::nullopt);
    Answer(id, wait.sequence, TimedOut(wait));
  }
}

TimePoint StoreState::NextExpiry() const {
  TimePoint next = TimePoint::max();
  for (const auto& [id, client] : clients_) {
    if (client.wait) next = std::min(next, client.wait->deadline);
  }
  return next;
}

void StoreState::Close() {
  constexpr char kClosed[] = "the store was closed by the rank that served it";
  for (auto& [id, client] : clients_) {
    if (!client.wait) continue;
    const std::string missing = client.wait->gather ? absl::StrCat("; ", Missing(*client.wait->gather)) : "";
    Answer(id, client.wait->sequence, absl::CancelledError(kClosed + missing));
    client.wait.reset();
  }
}

void StoreState::Answer(ConnectionId to, uint32_t sequence, const absl::Status& status, std::string result) {
  replies_.push_back({to, sequence, status.code(), status.ok() ? std::move(result) : std::string(status.message())});
}

absl::Status StoreState::Reserve(size_t bytes) {
  if (bytes > kMaxStoredBytes - stored_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("the store is full (", kMaxStoredBytes >> 20, " MiB)"));
  }
  stored_bytes_ += bytes;
  return absl::OkStatus();
}

// --- Joining and leaving ---

void StoreState::Join(ConnectionId id, Client& client, uint32_t sequence, const StoreRequest& request) {
  if (client.peer.role != Role::kRank || client.instance >= 0) {
    return Answer(id, sequence, absl::FailedPreconditionError("only ranks join, and only once"));
  }
  const absl::Status joined = TryJoin(client, request);
  if (!joined.ok() && !absl::IsAlreadyExists(joined)) Refused(1, joined);
  Answer(id, sequence, joined);
}

absl::Status StoreState::TryJoin(Client& client, const StoreRequest& request) {
  const int rank = client.peer.rank;
  if (request.size != static_cast<uint32_t>(size_) || rank < 0 || rank >= size_) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " of ", request.size, " wants to join a job of ", size_, " ranks"));
  }
  RankState& state = ranks_[static_cast<size_t>(rank)];
  if (request.life < state.life) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " is in its life ", state.life, "; life ", request.life, " wants to join"));
  }
  if (request.life > state.life) {
    if (met_) return absl::AlreadyExistsError(absl::StrCat("the ranks have met without life ", request.life));
    LoseEarlierLives(rank);
    state.life = request.life;
  }
  for (const auto& [instance, process] : state.processes) {
    if (process == request.process) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " is taken by process ", process, "; process ", request.process, " wants it too"));
  }
  client.instance = state.joined++;
  state.processes[client.instance] = request.process;
  return absl::OkStatus();
}

void StoreState::Refused(int64_t count, absl::Status last) {
  refused_ += count;
  last_refusal_ = std::move(last);
}

// They are dead; their connections may be in the hands of processes that they began.
void StoreState::LoseEarlierLives(int rank) {
  for (auto& [id, client] : clients_) {
    if (client.peer.role != Role::kRank || client.peer.rank != rank || client.instance < 0) continue;
    client.wait.reset();
    LoseRank(std::exchange(client.instance, -1), rank);
  }
}

void StoreState::LoseRank(int instance, int rank) {
  RankState& state = ranks_[static_cast<size_t>(rank)];
  state.processes.erase(instance);
  const bool returns = ranks_return_ && !met_ && state.processes.empty();
  if (returns) state.joined = 0;
  for (auto gather = gathers_.lower_bound({instance, ""});
       gather != gathers_.end() && gather->first.first == instance;) {
    const auto next = std::next(gather);
    if (gather->second.Decided()) {
      MarkTaken(gather, rank);
    } else if (returns) {
      TakeBack(gather, rank);
    } else {
      for (auto& [id, client] : clients_) {
        if (!client.wait || client.wait->gather != gather->first) continue;
        const absl::Status left = RankLeft(gather->first.second, rank);
        Answer(id, client.wait->sequence,
               absl::UnavailableError(absl::StrCat(left.message(), "; ", Missing(gather->first))));
        client.wait.reset();
      }
      Erase(gather);
    }
    gather = next;
  }
}

std::optional<int> StoreState::LostRank(int instance) const {
  for (int rank = 0; rank < size_; ++rank) {
    const RankState& state = ranks_[static_cast<size_t>(rank)];
    if (state.joined > instance && !state.processes.contains(instance)) return rank;
  }
  return std::nullopt;
}

// --- Keys and values ---

absl::Status StoreState::Put(std::string_view key, std::string_view value) {
  const auto found = values_.find(key);
  const size_t before = found == values_.end() ? 0 : found->second.size();
  RETURN_IF_ERROR(Reserve(value.size() + (found == values_.end() ? key.size() + kEntryBytes : 0)));
  stored_bytes_ -= before;
  if (found == values_.end()) {
    values_.emplace(key, value);
  } else {
    found->second = value;
  }
  for (auto& [id, client] : clients_) {
    if (!client.wait || client.wait->key != key) continue;
    Answer(id, client.wait->sequence, absl::OkStatus(), std::string(value));
    client.wait.reset();
  }
  return absl::OkStatus();
}

void StoreState::Set(ConnectionId id, uint32_t sequence, const StoreRequest& request) {
  Answer(id, sequence, Put(request.key, request.value));
}

void StoreState::Get(ConnectionId id, Client& client, uint32_t sequence, const StoreRequest& request, TimePoint now) {
  if (const auto found = values_.find(request.key); found != values_.end()) {
    return Answer(id, sequence, absl::OkStatus(), found->second);
  }
  client.wait = Wait{sequence, WaitUntil(now, request.timeout_ms), request.timeout_ms, std::string(request.key), {}};
}

void StoreState::Add(ConnectionId id, uint32_t sequence, const StoreRequest& request) {
  int64_t value = 0;
  const auto found = values_.find(request.key);
  if (found != values_.end() && !absl::SimpleAtoi(found->second, &value)) {
    return Answer(id, sequence, absl::FailedPreconditionError("the key's value is not a number"));
  }
  if (__builtin_add_overflow(value, request.amount, &value)) {
    return Answer(id, sequence, absl::OutOfRangeError("the counter would overflow"));
  }
  const std::string text = absl::StrCat(value);
  Answer(id, sequence, Put(request.key, text), text);
}

// --- Gathers ---

void StoreState::Gather(ConnectionId id, Client& client, uint32_t sequence, const StoreRequest& request,
                        TimePoint now) {
  if (client.instance < 0) {
    return Answer(id, sequence, absl::FailedPreconditionError("only ranks that have joined may gather"));
  }
  const GatherKey key{client.instance, std::string(request.key)};
  auto gather = gathers_.find(key);
  const bool decided = gather != gathers_.end() && gather->second.Decided();
  if (!decided) {
    if (const auto lost = LostRank(client.instance)) return Answer(id, sequence, RankLeft(request.key, *lost));
    if (gather == gathers_.end()) gather = gathers_.emplace(key, GatherState{}).first;
    if (const absl::Status given = GiveValue(gather, client.peer.rank, request.value); !given.ok()) {
      if (gather->second.values.empty()) {  // not even room to remember it
        Erase(gather);
        return Answer(id, sequence, given);
      }
      Fail(gather, given);
    }
    met_ |= gather->second.given == size_;
  } else if (gather->second.taken[static_cast<size_t>(client.peer.rank)]) {
    return Answer(id, sequence,
                  absl::FailedPreconditionError(
                      absl::StrCat("gather \"", key.second, "\" is begun again before all ranks had its result")));
  }
  client.wait = Wait{sequence, WaitUntil(now, request.timeout_ms), request.timeout_ms, {}, key};
  if (gather->second.Decided()) Deliver(gather);
}

absl::Status StoreState::GiveValue(Gathers::iterator gather, int rank, std::string_view value) {
  const auto& name = gather->first.second;
  GatherState& state = gather->second;
  if (state.values.empty()) {
    const size_t bytes = name.size() + kEntryBytes + static_cast<size_t>(size_) * sizeof(state.values[0]);
    RETURN_IF_ERROR(Reserve(bytes));
    state.stored_bytes = bytes;
    state.values.resize(static_cast<size_t>(size_));
    state.taken.resize(static_cast<size_t>(size_));
    state.reply_bytes = sizeof(uint32_t) * (static_cast<size_t>(size_) + 1);
  }
  auto& slot = state.values[static_cast<size_t>(rank)];
  const size_t before = slot ? slot->size() : 0;  // it gave up waiting, and comes again
  if (state.reply_bytes - before + value.size() > kMaxStoreReplyBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("gather \"", name, "\": the ranks' values together are over ", kMaxStoreReplyBytes >> 20, " MiB"));
  }
  RETURN_IF_ERROR(Reserve(value.size()));
  stored_bytes_ -= before;
  state.stored_bytes += value.size() - before;
  state.reply_bytes += value.size() - before;
  if (!slot) ++state.given;
  slot = std::string(value);
  return absl::OkStatus();
}

// As if it had not given one.
void StoreState::TakeBack(Gathers::iterator gather, int rank) {
  GatherState& state = gather->second;
  auto& slot = state.values[static_cast<size_t>(rank)];
  if (!slot) return;
  stored_bytes_ -= slot->size();
  state.stored_bytes -= slot->size();
  state.reply_bytes -= slot->size();
  slot.reset();
  if (--state.given == 0) Erase(gather);
}

// One value less than all is of no use to anybody: the others must not wait for it. The values are let go.
void StoreState::Fail(Gathers::iterator gather, absl::Status why) {
  GatherState& state = gather->second;
  state.failed = std::move(why);
  for (auto& value : state.values) {
    if (!value) continue;
    stored_bytes_ -= value->size();
    state.stored_bytes -= value->size();
    value.reset();
  }
}

// Gives the result to all who wait for it.
void StoreState::Deliver(Gathers::iterator gather) {
  const absl::Status status = gather->second.failed;
  std::vector<std::string> values;
  for (auto& value : gather->second.values) {
    if (value) values.push_back(*value);
  }
  const std::string result = status.ok() ? EncodeValues(values) : "";
  const GatherKey key = gather->first;
  std::vector<int> ranks;
  for (auto& [id, client] : clients_) {
    if (!client.wait || client.wait->gather != key) continue;
    Answer(id, client.wait->sequence, status, result);
    client.wait.reset();
    ranks.push_back(client.peer.rank);
  }
  for (const int rank : ranks) MarkTaken(gather, rank);  // the last one may erase it
}

void StoreState::MarkTaken(Gathers::iterator gather, int rank) {
  GatherState& state = gather->second;
  if (state.taken[static_cast<size_t>(rank)]) return;
  state.taken[static_cast<size_t>(rank)] = true;
  if (++state.taken_count == size_) Erase(gather);
}

void StoreState::Erase(Gathers::iterator gather) {
  stored_bytes_ -= gather->second.stored_bytes;
  gathers_.erase(gather);
}

// "ranks 2, 3 of 4 did not come", with why that may be if one of them never joined.
std::string StoreState::Missing(const GatherKey& key, std::string_view within) const {
  std::vector<int> missing;
  bool never_joined = false;
  const auto gather = gathers_.find(key);
  for (int rank = 0; gather != gathers_.end() && rank < size_; ++rank) {
    if (gather->second.values[static_cast<size_t>(rank)]) continue;
    missing.push_back(rank);
    never_joined |= ranks_[static_cast<size_t>(rank)].joined <= key.first;
  }
  return absl::StrCat(ListRanks(missing), " of ", size_, " did not come", ToAbsl(within),
                      never_joined ? Refusals() : "");
}

std::string StoreState::Refusals() const {
  if (refused_ == 0) return "";
  return absl::StrCat(
      "; ", refused_,
      refused_ == 1 ? " attempt to join was refused: " : " attempts to join were refused, the last one: ",
      last_refusal_.message());
}

absl::Status StoreState::TimedOut(const Wait& wait) const {
  const std::string within = absl::StrFormat(" within %.3g s", wait.timeout_ms / 1e3);
  if (wait.gather) {
    return absl::DeadlineExceededError(
        absl::StrCat("gather \"", wait.gather->second, "\": ", Missing(*wait.gather, within)));
  }
  return absl::DeadlineExceededError(absl::StrCat("key \"", wait.key.value_or(""), "\" was not set", within));
}

}  // namespace gyre
