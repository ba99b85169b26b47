// Cluster: what must always hold, and in the end.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "cluster_process.h"
#include "xxhash.h"

namespace gyre::ps {

namespace {

std::string Text(std::string_view what, const std::vector<uint64_t>& numbers) {
  return absl::StrCat(ToAbsl(what), " ", absl::StrJoin(numbers, " "));
}

}  // namespace

void Cluster::CheckApplied(Process& server, const AppliedPush& push) {
  const uint64_t bit = uint64_t{1} << push.sequence;
  uint64_t& applied = server.history[static_cast<size_t>(push.slot)][static_cast<size_t>(push.worker)];
  const std::vector<uint64_t> who = {static_cast<uint64_t>(push.worker), push.sequence};
  if ((applied & bit) != 0) Wrong(Text("applied twice: worker, step", who));
  applied |= bit;
  if (plan_.replicas) {
    histories_[{server.number, server.incarnation}][server.server->position() + 1] = server.history;
  }
  if (push.incarnation < server.welcomed[push.worker]) Wrong(Text("applied, but fenced: worker, step", who));
}

void Cluster::CheckSent(Process& server, int worker, const Message& message) {
  const auto w = static_cast<size_t>(worker);
  if (message.kind == Kind::kWelcome) {
    uint64_t& newest = server.welcomed[worker];
    if (message.to > newest && newest > 0) server.gaps.insert(worker);
    newest = std::max(newest, message.to);
    uint64_t& granted = granted_[{worker, message.to}];
    if (message.member && !message.floors.empty()) granted = std::max(granted, std::ranges::max(message.floors));
    // Whoever comes anew belongs no more, without being given up.
    message.member ? void(server.members.insert(worker)) : void(server.members.erase(worker));
  }
  if (plan_.replicas) {
    if (message.kind == Kind::kAck) CheckTold(server, worker, message.slot, message.sequence);
    for (size_t slot = 0; slot < message.next.size(); ++slot) CheckTold(server, worker, slot, message.next[slot]);
  }
  for (size_t slot = 0; slot < message.durable.size() && !plan_.replicas; ++slot) {
    uint64_t& durable = durable_[static_cast<size_t>(server.number)][slot][w];
    // A process that was replaced knows less, and is not believed.
    if (&server != servers_[static_cast<size_t>(server.number)].back().get()) continue;
    if (message.durable[slot] < durable) Wrong(Text("what was durable is not: worker, step", {w, durable}));
    durable = std::max(durable, message.durable[slot]);
  }
  if (message.kind == Kind::kRefuse) {
    const auto& lives = workers_[w];
    if (message.to >= lives.back()->incarnation) {
      lost_ = doubly_lost_.contains(server.number);
      if (!lost_) Wrong("the newest life of a worker is refused");
    }
  }
  if (message.kind == Kind::kValues || message.kind == Kind::kRows) CheckValues(server, worker, message);
  if (message.kind == Kind::kRows) CheckRows(server, message);
}

// The worker goes on to step `clock` with these values: how far must the others have come, and what must be in them?
void Cluster::CheckValues(Process& server, int worker, const Message& message) {
  const Mode mode = plan_.consistency.mode;
  const bool replaced = &server != servers_[static_cast<size_t>(server.number)].back().get();  // nobody listens to it
  if (mode == Mode::kAsynchronous || replaced) return;
  const uint64_t bound = mode == Mode::kStale ? plan_.consistency.bound : 0;
  const uint64_t due = message.clock - std::min(message.clock, bound);
  for (const int other : server.server->roster().members()) {
    const auto& lives = workers_[static_cast<size_t>(other)];
    const uint64_t life = server.server->roster().incarnation(other);
    const Process& process = *lives[life - 1];
    const uint64_t granted = granted_[{other, life}];
    const uint64_t ended = ended_[static_cast<size_t>(other)][life];
    // A dead one, not given up yet, has come as far as it had.
    const uint64_t clock = process.alive ? process.worker->clock() : process.clock;
    const std::vector<uint64_t> who = {static_cast<uint64_t>(worker), message.clock, static_cast<uint64_t>(other),
                                       clock};
    if (std::max(clock, granted) < due) Wrong(Text("the bound is broken: worker, step, other, its step", who));
    // What it pushed is in there, if it could be: it was there all the time, and had kept what it pushed.
    const uint64_t before = ended & ((uint64_t{1} << due) - 1);
    const uint64_t in = server.history[message.slot][static_cast<size_t>(other)];
    const bool gaps = server.gaps.contains(other) || jumped_.contains({other, life});
    if (gaps || server.incarnation > 1 || !process.alive) continue;
    if ((before & ~in) != 0) Wrong(Text("pushes are missing in values: worker, step, of worker, its step", who));
  }
}

// What is sent is what was applied: no push twice, none missing, none of another table.
void Cluster::CheckRows(Process& server, const Message& message) {
  std::vector<float> sent(message.values.size() / sizeof(float));
  if (std::ssize(sent) != kClusterColumns * plan_.workers) return Wrong("rows are sent that were not asked for");
  std::memcpy(sent.data(), message.values.data(), message.values.size());
  const std::vector<float> expected = Expected(server, message.slot);
  for (size_t worker = 0; worker < expected.size(); ++worker) {  // whose ids rise with their number
    if (std::abs(sent[2 * worker] - expected[worker]) > 1e-3f) Wrong(Text("rows are not what was applied", {worker}));
    if (sent[2 * worker + 1] != 2 * sent[2 * worker]) Wrong(Text("a row has another's values", {worker}));
  }
}

std::vector<float> Cluster::Expected(const Process& server, size_t slot) const {
  std::vector<float> expected;
  const std::vector<uint64_t>& history = server.history[slot];
  for (const uint64_t own : history) {
    expected.push_back(static_cast<float>(std::popcount(own)));
    if (plan_.consistency.mode != Mode::kSynchronous) continue;
    expected.back() = 0;
    for (uint64_t step = 0; step < plan_.steps; ++step) {
      const auto has = [step](uint64_t steps) { return (steps >> step & 1) != 0; };
      if (has(own)) expected.back() += 1.0f / static_cast<float>(std::ranges::count_if(history, has));
    }
  }
  return expected;
}

std::vector<float> Cluster::ValuesOf(const Process& server, size_t slot) const {
  const Shard& shard = server.server->shard(static_cast<int>(slot));
  if (shard.rows() == nullptr) return {shard.values().begin(), shard.values().end()};
  const auto table = slot + ids_.size() - server.history.size();
  std::vector<float> rows(ids_[table][static_cast<size_t>(server.number)].size() * kClusterColumns), values;
  shard.rows()->Read(std::as_bytes(std::span(ids_[table][static_cast<size_t>(server.number)])), rows);
  for (size_t i = 0; i < rows.size(); i += kClusterColumns) values.push_back(rows[i]);
  return values;
}

void Cluster::CheckExpired(Process& server) {
  const std::vector<int>& members = server.server->roster().members();
  for (auto member = server.members.begin(); member != server.members.end();) {
    if (std::ranges::binary_search(members, *member)) {
      ++member;
      continue;
    }
    server.gaps.insert(*member);
    const auto heard = server.heard.find(*member);
    if (heard != server.heard.end() && now() - heard->second < kClusterTiming.timeout) {
      Wrong(Text("given up though heard: worker", {static_cast<uint64_t>(*member)}));
    }
    member = server.members.erase(member);
  }
}

// A new life begins where the snapshot is, and all that was said to be durable is in it.
void Cluster::CheckRestored(Process& server) {
  const auto number = static_cast<size_t>(server.number);
  const auto names = disks_[number]->List();
  for (const std::string& name : *names) {
    const auto end = name.find(".snapshot");
    if (end != std::string::npos) server.history = saved_[number][std::string(name, 0, end)];
  }
  // With replicas it is what the next server has that counts.
  for (size_t slot = 0; slot < server.history.size() && !plan_.replicas; ++slot) {
    const Shard& shard = server.server->shard(static_cast<int>(slot));
    for (size_t worker = 0; worker < workers_.size(); ++worker) {
      const uint64_t told = durable_[number][slot][worker];
      if (shard.Next(static_cast<int>(worker)) < told) Wrong(Text("durable pushes are lost: worker", {worker, told}));
    }
  }
}

void Cluster::CheckPush(const Process& worker, int server, const Message& message) {
  const bool of_table = IsOfTable(server, message.slot);
  if (of_table && message.packed != 0) return Wrong("rows are pushed as a payload");
  if (!compressed() || of_table) return;
  const auto number = static_cast<size_t>(worker.number);
  const auto slot = static_cast<size_t>(message.slot);
  const auto& partition = layout_[0].partitions()[static_cast<size_t>(layout_[0].OfServer(server)[slot])];
  const Floats pushed = message.packed == 0 ? Floats::CopyOf(message.values)
                                            : PushDecoder().Decode(message.values.first(message.packed),
                                                                   static_cast<size_t>(partition.count));
  if (static_cast<int64_t>(pushed.size()) != partition.count) return Wrong("a push is not what it says");
  const Sent sent{XXH3_64bits(message.values.data(), message.values.size()), pushed.span()[number]};
  const auto [known, first] = sent_[{server, slot, number, message.sequence}].try_emplace(worker.incarnation, sent);
  if (!first && known->second.hash != sent.hash) {
    Wrong(Text("what is pushed again is something else: worker, step", {number, message.sequence}));
  }
}

std::optional<float> Cluster::Pushed(int server, size_t slot, size_t worker, uint64_t step) const {
  if (!compressed() || IsOfTable(server, slot)) return 1.0f;
  const auto found = sent_.find({server, slot, worker, step});
  if (found == sent_.end()) return std::nullopt;
  const float own = found->second.begin()->second.own;
  for (const auto& [_, sent] : found->second) {
    if (sent.own != own) return std::nullopt;
  }
  return own;
}

// What a worker's element has of these steps, if that is known.
std::optional<float> Cluster::SumOf(int server, size_t slot, size_t worker, uint64_t steps) const {
  float sum = 0;
  for (; steps != 0; steps &= steps - 1) {
    const auto pushed = Pushed(server, slot, worker, static_cast<uint64_t>(std::countr_zero(steps)));
    if (!pushed) return std::nullopt;
    sum += *pushed;
  }
  return sum;
}

// What all workers' elements have together of the means of these steps' pushes.
std::optional<float> Cluster::MeansOf(int server, size_t slot, const std::vector<uint64_t>& history) const {
  float means = 0;
  for (uint64_t step = 0; step < plan_.steps; ++step) {
    float sum = 0, pushes = 0;
    for (size_t worker = 0; worker < history.size(); ++worker) {
      const uint64_t bit = history[worker] & (uint64_t{1} << step);
      const auto pushed = SumOf(server, slot, worker, bit);
      if (!pushed) return std::nullopt;
      sum += *pushed;
      pushes += bit != 0 ? 1 : 0;
    }
    means += pushes > 0 ? sum / pushes : 0;
  }
  return means;
}

// What a worker is told is acknowledged is at two servers.
void Cluster::CheckTold(Process& server, int worker, size_t slot, uint64_t next) {
  const auto number = static_cast<size_t>(server.number);
  const auto w = static_cast<size_t>(worker);
  if (next > at_next_[number][slot][w])
    Wrong(Text("acknowledged, but not at the next server: worker, step", {w, next}));
  if (&server != servers_[number].back().get()) return;
  uint64_t& told = told_[number][slot][w];
  told = std::max(told, next);
  told_history_[number][slot][w] |= server.history[slot][w] & ((uint64_t{1} << next) - 1);
}

// Its process ends, or another takes its place: who has its state now?
void Cluster::NoteEnd(Process& server) {
  if (!plan_.replicas || Current(true, server.number) != &server) return;
  const Process* const next = Current(true, NextOf(server.number));
  const bool copy = next != nullptr && next->server->follower() != nullptr && next->server->follower()->has_copy();
  copy_at_end_[static_cast<size_t>(server.number)] = copy ? next->incarnation : 0;
}

// It has its state again, and all that workers were told of is in it, unless two servers were lost at once.
void Cluster::CheckRecovered(Process& server) {
  const auto number = static_cast<size_t>(server.number);
  const Process* const next = Current(true, NextOf(server.number));
  const bool must = copy_at_end_[number] > 0 && next != nullptr && next->incarnation == copy_at_end_[number];
  for (size_t slot = 0; slot < server.history.size(); ++slot) {
    const Shard& shard = server.server->shard(static_cast<int>(slot));
    for (size_t worker = 0; worker < workers_.size(); ++worker) {
      uint64_t& told = told_[number][slot][worker];
      uint64_t& applied = told_history_[number][slot][worker];
      const uint64_t is = shard.Next(static_cast<int>(worker));
      // In BSP what was applied may be held there.
      const bool synchronous = plan_.consistency.mode == Mode::kSynchronous;
      const bool missing = !synchronous && (applied & ~server.history[slot][worker]) != 0;
      if (must && (is < told || missing)) {
        Wrong(Text("acknowledged pushes are lost: of server, worker, told, is", {number, worker, told, is}));
      }
      if (must) continue;
      told = applied = 0;
    }
  }
  if (!must) doubly_lost_.insert(server.number);
  if (!must && !server.server->shard(0).has_values()) begun_anew_.insert(server.number);
}

// In the end each copy is what it is a copy of.
void Cluster::CheckCopies() {
  for (int number = 0; number < plan_.servers && plan_.replicas; ++number) {
    const Server& server = *Current(true, number)->server;
    const Follower* const follower = Current(true, NextOf(number))->server->follower();
    for (size_t slot = 0; slot < layout_[0].OfServer(number).size(); ++slot) {
      const Shard& shard = server.shard(static_cast<int>(slot));
      if (!follower->has_copy()) return Wrong("there is no copy of a server");
      const Shard& copy = follower->shards()[slot];
      const bool same_rows = shard.rows() == nullptr || copy.rows()->Save() == shard.rows()->Save();
      if (copy.version() != shard.version() || !std::ranges::equal(copy.values(), shard.values()) || !same_rows) {
        return Wrong(Text("the copy of a server is another one: server, life and change of both, steps of both",
                          {static_cast<uint64_t>(number), Current(true, number)->incarnation, server.position(),
                           follower->life(), follower->position(), shard.version(), copy.version()}));
      }
    }
  }
}

void Cluster::CheckEnd() {
  CheckCopies();
  const bool synchronous = plan_.consistency.mode == Mode::kSynchronous;
  for (int number = 0; number < plan_.servers; ++number) {
    const Process& process = *Current(true, number);
    if (begun_anew_.contains(number)) continue;
    for (size_t slot = 0; slot < process.history.size(); ++slot) {
      const std::vector<float> values = ValuesOf(process, slot), expected = Expected(process, slot);
      const bool plain = !compressed() || IsOfTable(number, slot);
      float all = 0;
      for (size_t worker = 0; worker < workers_.size(); ++worker) {
        const uint64_t in = process.history[slot][worker];
        all += values[worker];
        const auto sum = plain ? expected[worker] : SumOf(number, slot, worker, in);
        const bool judged = plain || !synchronous;
        if (judged && sum && std::abs(values[worker] - *sum) > (plain && !synchronous ? 0.0f : 1e-3f)) {
          Wrong(Text("values do not hold what was applied: of worker", {worker}));
        }
        // Who lived to the end, and kept all until it was safe, has lost nothing. Late steps count for nobody in BSP.
        const uint64_t ended = ended_[worker][workers_[worker].back()->incarnation];
        const bool lived = !gone_.contains(static_cast<int>(worker));
        const bool once = plan_.replicas && !doubly_lost_.contains(number);
        const bool kept = once || (plan_.retain >= plan_.steps && !lost_disks_.contains(number));
        if (lived && !synchronous && kept && (ended & ~in) != 0) {
          Wrong(Text("pushes are lost: of worker, steps, applied", {worker, ended, in}));
        }
      }
      const auto means = MeansOf(number, slot, process.history[slot]);
      if (synchronous && means && std::abs(all - *means) > 0.01f) Wrong("the mean of a step is no mean");
    }
  }
  const std::span<const float> model = Current(false, 0)->worker->model();
  final_model_.assign(model.begin(), model.end());
  for (int number = 0; number < plan_.servers; ++number) {
    const Process& process = *Current(true, number);
    for (size_t slot = process.history.size() - ids_.size(); slot < process.history.size(); ++slot) {
      std::ranges::copy(ValuesOf(process, slot), std::back_inserter(final_model_));
      const size_t touched = process.server->shard(static_cast<int>(slot)).rows()->touched();
      if (touched > workers_.size()) Wrong("a server holds rows that nobody has pushed");
    }
  }
}

}  // namespace gyre::ps
