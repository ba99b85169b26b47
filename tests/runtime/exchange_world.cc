#include "runtime/exchange_world.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace gyre {

using internal::Call;
using internal::CallKind;

namespace {

absl::Status Wrong(const Call& call, const char* what) {
  return absl::InternalError(absl::StrCat(what, " of call ", static_cast<int>(call.kind)));
}

int64_t Before(std::span<const int64_t> counts, size_t rank) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank), int64_t{0});
}

template <typename T>
T* At(const TensorView& view, int64_t element) {
  return static_cast<T*>(view.data) + element;
}

// What every rank's `out` becomes, by the definition of the call. REQUIRES: all ranks make the same one.
absl::Status Reduce(const std::vector<Call>& calls) {
  std::vector<float> result(static_cast<size_t>(calls[0].in.count), 0.0f);
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    if (calls[rank].in.count != calls[0].in.count) return Wrong(calls[0], "the length");
    const auto* const from = static_cast<const float*>(calls[rank].in.data);
    for (size_t i = 0; i < result.size(); ++i) {
      const bool largest = calls[0].op == ReduceOp::kMax;
      result[i] = rank == 0 ? from[i] : largest ? std::max(result[i], from[i]) : result[i] + from[i];
    }
  }
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    const bool scatters = calls[0].kind == CallKind::kReduceScatter;
    const int64_t begin = scatters ? Before(calls[0].counts, rank) : 0;
    std::copy_n(result.begin() + begin, calls[rank].out.count, At<float>(calls[rank].out, 0));
  }
  return absl::OkStatus();
}

absl::Status Gather(const std::vector<Call>& calls) {
  for (size_t to = 0; to < calls.size(); ++to) {
    for (size_t from = 0; from < calls.size(); ++from) {
      if (calls[to].counts[from] != calls[from].in.count) return Wrong(calls[0], "the count");
      if (calls[from].in.count == 0) continue;
      std::memcpy(At<std::byte>(calls[to].out, Before(calls[to].counts, from)), calls[from].in.data,
                  static_cast<size_t>(calls[from].in.count));
    }
  }
  return absl::OkStatus();
}

absl::Status Exchange(const std::vector<Call>& calls) {
  for (size_t to = 0; to < calls.size(); ++to) {
    for (size_t from = 0; from < calls.size(); ++from) {
      const int64_t bytes = calls[from].counts[to];
      if (calls[to].receive_counts[from] != bytes) return Wrong(calls[0], "the count");
      if (bytes == 0) continue;
      std::memcpy(At<std::byte>(calls[to].out, Before(calls[to].receive_counts, from)),
                  static_cast<const std::byte*>(calls[from].in.data) + Before(calls[from].counts, to),
                  static_cast<size_t>(bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status RunInMemory(const std::vector<Call>& calls) {
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    if (calls[rank].kind != calls[0].kind) return Wrong(calls[0], "the kind");
    const auto size = static_cast<int>(calls.size());
    if (absl::Status valid = Validate(calls[rank], static_cast<int>(rank), size); !valid.ok()) return valid;
  }
  switch (calls[0].kind) {
    case CallKind::kAllReduce:
    case CallKind::kReduceScatter: return Reduce(calls);
    case CallKind::kAllGather: return Gather(calls);
    case CallKind::kAllToAll: return Exchange(calls);
    default: return Wrong(calls[0], "the kind");
  }
}

}  // namespace

ExchangeWorld::ExchangeWorld(const Compression& compression, const internal::ExchangeSettings& settings,
                             const std::vector<int>& hosts, SimWorld* network, const DeviceOf& device_of)
    : hosts_(hosts), network_(network), pending_(hosts.size()) {
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    internal::ExchangeSettings own = settings;
    own.rank = static_cast<int>(rank);
    own.ranks = static_cast<int>(hosts.size());
    own.hosts = hosts;
    exchanges_.push_back(std::move(internal::MakeCompressedExchange(compression, own, device_of(own.rank))).value());
    values_.emplace_back();
    for (const auto& tensor : settings.tensors) values_.back().emplace_back(static_cast<size_t>(tensor.count));
  }
}

internal::ExchangePart ExchangeWorld::PartOf(int rank, const std::vector<int>& tensors, bool dense) {
  internal::ExchangePart part{.tensors = tensors, .values = {}, .dense = dense};
  for (const int tensor : tensors) part.values.emplace_back(values(rank, static_cast<size_t>(tensor)));
  return part;
}

void ExchangeWorld::BeginStep(int64_t step) {
  for (auto& exchange : exchanges_) exchange->BeginStep(step, 0);
}

int ExchangeWorld::Prepare(int rank, const std::vector<int>& tensors) {
  int times = 0;
  while (exchange(rank).Prepare(PartOf(rank, tensors, false))) ++times;
  return times;
}

absl::Status ExchangeWorld::Await(int rank) {
  for (;;) {
    const auto ready = exchange(rank).Ready();
    if (!ready.ok() || *ready) return ready.status();
  }
}

absl::Status ExchangeWorld::Advance(int rank) {
  Pending& pending = pending_[static_cast<size_t>(rank)];
  if (absl::Status ready = Await(rank); !ready.ok()) return ready;
  auto next = exchange(rank).Next();
  if (!next.ok()) return next.status();
  pending = {*next, exchange(rank).within_host(), !next->has_value()};
  return Await(rank);
}

absl::Status ExchangeWorld::Exchange(const std::vector<int>& tensors, bool dense) {
  calls_ = 0;
  received_ = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (absl::Status begun = exchange(rank).Begin(PartOf(rank, tensors, dense)); !begun.ok()) return begun;
    if (absl::Status advanced = Advance(rank); !advanced.ok()) return advanced;
  }
  while (std::ranges::any_of(pending_, [](const Pending& each) { return !each.ended; })) {
    if (absl::Status run = RunReady(); !run.ok()) return run;
  }
  return absl::OkStatus();
}

// Hosts may make different numbers of calls within themselves.
absl::Status ExchangeWorld::RunReady() {
  for (int host = 0; host <= hosts_.back(); ++host) {
    std::vector<int> there;
    for (int rank = 0; rank < ranks(); ++rank) {
      if (hosts_[static_cast<size_t>(rank)] == host) there.push_back(rank);
    }
    while (pending_[static_cast<size_t>(there[0])].within_host) {
      if (absl::Status run = Run(there, false); !run.ok()) return run;
    }
  }
  std::vector<int> all(static_cast<size_t>(ranks()));
  std::iota(all.begin(), all.end(), 0);
  return Run(all, true);
}

absl::Status ExchangeWorld::Run(const std::vector<int>& ranks, bool between_hosts) {
  std::vector<Call> calls;
  for (const int rank : ranks) {
    const Pending& pending = pending_[static_cast<size_t>(rank)];
    if (!pending.call || pending.within_host == between_hosts) return absl::InternalError("ranks are out of step");
    calls.push_back(*pending.call);
    const Call& call = calls.back();
    const auto own = static_cast<size_t>(rank);  // for calls of all ranks; what is its own does not travel
    const auto counts = call.receive_counts.empty() ? call.counts : call.receive_counts;
    if (between_hosts && !counts.empty()) received_ += call.out.count - counts[own];
  }
  ++calls_;
  if (between_hosts && network_ != nullptr) {
    std::vector<std::shared_ptr<internal::HierarchicalOperation>> operations;
    for (const int rank : ranks) operations.push_back(network_->Make(rank, calls[static_cast<size_t>(rank)]));
    if (!network_->Run(operations, std::chrono::seconds(100))) return absl::DeadlineExceededError("simulated");
    for (const auto& operation : operations) {
      if (!operation->status().ok()) return operation->status();
    }
  } else if (absl::Status run = RunInMemory(calls); !run.ok()) {
    return run;
  }
  for (const int rank : ranks) {
    if (absl::Status advanced = Advance(rank); !advanced.ok()) return advanced;
  }
  return absl::OkStatus();
}

}  // namespace gyre
