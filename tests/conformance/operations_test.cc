// Every operation with every dtype and reduction that it takes, of no elements, one, an odd number and many, on every
// kind of memory, blocking and asynchronous, held against the definitions.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "conformance/collectives_fixture.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "support/fill.h"

namespace gyre {
namespace {

using support::ExactValue;
using support::FillExact;
using support::ReadElement;

constexpr ReduceOp kAllReductions[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                                       ReduceOp::kProduct};

// One call: what is drawn from `number`, such as its data, differs from one to the next, and is alike on all ranks.
struct Case {
  std::string_view operation;
  DType dtype;
  ReduceOp op;    // of those that reduce
  int64_t count;  // of one rank's segment, where there are segments
  uint64_t number;

  bool asynchronous() const { return number % 2 == 0; }
  bool ragged() const { return number % 3 == 0; }  // the V form
  int root(int size) const { return static_cast<int>(number % static_cast<uint64_t>(size)); }
  Place from() const { return static_cast<Place>(number / 2 % 4); }
  Place to() const { return static_cast<Place>(number / 8 % 4); }
};

class Operations {
 public:
  Operations(Runtime& runtime, int64_t large_bytes)
      : runtime_(runtime), world_(runtime.world()), n_(world_.size()), me_(world_.rank()), large_bytes_(large_bytes) {}

  void CheckAll() {
    for (const DType dtype : kAllTypes) {
      for (const ReduceOp op : kAllReductions) {
        if (dtype == DType::kBool && op == ReduceOp::kAverage) continue;  // refused
        // Large ones with one reduction of each dtype, and so of every reduction with some.
        const bool large = static_cast<int>(op) == static_cast<int>(dtype) % kReduceOpCount;
        Check("AllReduce", dtype, op, Counts(dtype, large, 1), &Operations::AllReduce);
        Check("Reduce", dtype, op, Counts(dtype, large, 1), &Operations::Reduce);
        Check("ReduceScatter", dtype, op, Counts(dtype, large, n_), &Operations::ReduceScatter);
      }
      Check("AllGather", dtype, {}, Counts(dtype, true, n_), &Operations::AllGather);
      Check("Broadcast", dtype, {}, Counts(dtype, true, 1), &Operations::Broadcast);
      Check("AllToAll", dtype, {}, Counts(dtype, true, n_), &Operations::AllToAll);
      Check("Send and Receive", dtype, {}, Counts(dtype, true, 1), &Operations::PassOn);
      Check("Barrier", dtype, {}, {0, 0}, &Operations::Barrier);
    }
  }

 private:
  std::vector<int64_t> Counts(DType dtype, bool large, int segments) const {
    std::vector<int64_t> counts = {0, 1, 37, 1025};
    if (large) counts.push_back(large_bytes_ / DTypeSize(dtype) / segments + 3);
    return counts;
  }

  void Check(std::string_view operation, DType dtype, ReduceOp op, const std::vector<int64_t>& counts,
             absl::Status (Operations::*run)(const Case&)) {
    for (const int64_t count : counts) {
      const Case call{operation, dtype, op, count, ++number_};
      if (broken_) return;  // the communicator is of no more use
      const absl::Status status = (this->*run)(call);
      broken_ = !status.ok();
      EXPECT_TRUE(status.ok()) << Name(call) << ": " << status;
    }
  }

  std::string Name(const Case& call) const {
    return absl::StrCat("rank ", me_, ": ", ToAbsl(call.operation), call.ragged() ? " (ragged) " : " ",
                        ToAbsl(DTypeName(call.dtype)), " ", ToAbsl(ReduceOpName(call.op)), " of ", call.count,
                        call.asynchronous() ? ", asynchronous" : "");
  }

  // Holds all elements, or some hundred spread over them, against what they must be.
  void Expect(const Case& call, ConstTensorView got, const std::function<double(int64_t)>& expected,
              double tolerance = 0) {
    const int64_t step = got.count < 1000 ? 1 : got.count / 500;
    for (int64_t i = 0; i < got.count; i = i < got.count - 1 ? std::min(i + step, got.count - 1) : got.count) {
      const double value = ReadElement(got, i), right = expected(i);
      if (std::abs(value - right) <= std::abs(right) * tolerance) continue;
      if (++wrong_ <= 5) ADD_FAILURE() << Name(call) << ": element " << i << " is " << value << ", not " << right;
      return;
    }
  }

  void ExpectReduced(const Case& call, ConstTensorView got, int64_t begin) {
    const auto expected = [&](int64_t i) { return Reduced(call.op, call.dtype, call.number, n_, begin + i); };
    Expect(call, got, expected, RelativeTolerance(call.dtype));
  }

  Tensor Filled(const Case& call, int64_t count) const {
    Tensor tensor(runtime_, call.from(), call.dtype, count);
    tensor.Fill([&](const TensorView& view) { FillExact(view, call.number, me_); });
    return tensor;
  }
  Tensor Empty(const Case& call, int64_t count) const { return Tensor(runtime_, call.to(), call.dtype, count); }

  // How long each rank's segment is, and where one begins.
  std::vector<int64_t> Segments(const Case& call) const {
    std::vector<int64_t> counts(static_cast<size_t>(n_), call.count);
    for (int r = 0; call.ragged() && r < n_; ++r) counts[static_cast<size_t>(r)] += r % 3;
    return counts;
  }
  static int64_t Begin(const std::vector<int64_t>& counts, int rank) {
    return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  }

  absl::Status AllReduce(const Case& call) {
    const Tensor in = Filled(call, call.count), out = Empty(call, call.count);
    const ReduceOptions options{.op = call.op};
    absl::Status status = call.asynchronous() ? world_.AllReduceAsync(in.view(), out.view(), options).Wait()
                                              : world_.AllReduce(in.view(), out.view(), options);
    if (status.ok()) ExpectReduced(call, out.elements(), 0);
    return status;
  }

  absl::Status Reduce(const Case& call) {
    const Tensor in = Filled(call, call.count), out = Empty(call, call.count);
    const ReduceOptions options{.op = call.op};
    const int root = call.root(n_);
    absl::Status status = call.asynchronous() ? world_.ReduceAsync(in.view(), out.view(), root, options).Wait()
                                              : world_.Reduce(in.view(), out.view(), root, options);
    if (status.ok() && me_ == root) ExpectReduced(call, out.elements(), 0);
    return status;
  }

  absl::Status ReduceScatter(const Case& call) {
    const std::vector<int64_t> counts = Segments(call);
    const Tensor in = Filled(call, Begin(counts, n_)), out = Empty(call, counts[static_cast<size_t>(me_)]);
    const ReduceOptions options{.op = call.op};
    absl::Status status;
    if (call.ragged()) {
      status = call.asynchronous() ? world_.ReduceScatterVAsync(in.view(), counts, out.view(), options).Wait()
                                   : world_.ReduceScatterV(in.view(), counts, out.view(), options);
    } else {
      status = call.asynchronous() ? world_.ReduceScatterAsync(in.view(), out.view(), options).Wait()
                                   : world_.ReduceScatter(in.view(), out.view(), options);
    }
    if (status.ok()) ExpectReduced(call, out.elements(), Begin(counts, me_));
    return status;
  }

  absl::Status AllGather(const Case& call) {
    const std::vector<int64_t> counts = Segments(call);
    const Tensor in = Filled(call, counts[static_cast<size_t>(me_)]), out = Empty(call, Begin(counts, n_));
    absl::Status status;
    if (call.ragged()) {
      status = call.asynchronous() ? world_.AllGatherVAsync(in.view(), counts, out.view()).Wait()
                                   : world_.AllGatherV(in.view(), counts, out.view());
    } else {
      status = call.asynchronous() ? world_.AllGatherAsync(in.view(), out.view()).Wait()
                                   : world_.AllGather(in.view(), out.view());
    }
    for (int r = 0; status.ok() && r < n_; ++r) {
      Expect(call, out.elements().Slice(Begin(counts, r), counts[static_cast<size_t>(r)]),
             [&](int64_t i) { return ExactValue(call.dtype, call.number, r, i); });
    }
    return status;
  }

  absl::Status Broadcast(const Case& call) {
    const Tensor tensor = Filled(call, call.count);
    const int root = call.root(n_);
    absl::Status status =
        call.asynchronous() ? world_.BroadcastAsync(tensor.view(), root).Wait() : world_.Broadcast(tensor.view(), root);
    if (status.ok()) {
      Expect(call, tensor.elements(), [&](int64_t i) { return ExactValue(call.dtype, call.number, root, i); });
    }
    return status;
  }

  // In the ragged form rank s sends (s + r) % 3 elements more to rank r.
  absl::Status AllToAll(const Case& call) {
    const auto lengths = [&](int rank) {
      std::vector<int64_t> counts(static_cast<size_t>(n_), call.count);
      for (int r = 0; call.ragged() && r < n_; ++r) counts[static_cast<size_t>(r)] += (rank + r) % 3;
      return counts;
    };
    const std::vector<int64_t> counts = lengths(me_);  // what it sends and what it receives: the sum is symmetric
    const Tensor in = Filled(call, Begin(counts, n_)), out = Empty(call, Begin(counts, n_));
    absl::Status status;
    if (call.ragged()) {
      status = call.asynchronous() ? world_.AllToAllVAsync(in.view(), counts, out.view(), counts).Wait()
                                   : world_.AllToAllV(in.view(), counts, out.view(), counts);
    } else {
      status = call.asynchronous() ? world_.AllToAllAsync(in.view(), out.view()).Wait()
                                   : world_.AllToAll(in.view(), out.view());
    }
    for (int r = 0; status.ok() && r < n_; ++r) {
      const int64_t begin = Begin(lengths(r), me_);
      Expect(call, out.elements().Slice(Begin(counts, r), counts[static_cast<size_t>(r)]),
             [&](int64_t i) { return ExactValue(call.dtype, call.number, r, begin + i); });
    }
    return status;
  }

  // Round the ring, from each rank to the next.
  absl::Status PassOn(const Case& call) {
    const int next = (me_ + 1) % n_, previous = (me_ + n_ - 1) % n_;
    if (n_ == 1) return absl::OkStatus();  // nobody sends to itself
    const Tensor out = Filled(call, call.count), in = Empty(call, call.count);
    if (call.asynchronous()) {
      Work receiving = world_.ReceiveAsync(in.view(), previous);
      RETURN_IF_ERROR(world_.Send(out.view(), next));
      RETURN_IF_ERROR(receiving.Wait());
    } else {
      Work sending = world_.SendAsync(out.view(), next);
      RETURN_IF_ERROR(world_.Receive(in.view(), previous));
      RETURN_IF_ERROR(sending.Wait());
    }
    Expect(call, in.elements(), [&](int64_t i) { return ExactValue(call.dtype, call.number, previous, i); });
    return absl::OkStatus();
  }

  absl::Status Barrier(const Case& call) {
    return call.asynchronous() ? world_.BarrierAsync().Wait() : world_.Barrier();
  }

  Runtime& runtime_;
  Communicator& world_;
  const int n_, me_;
  const int64_t large_bytes_;
  uint64_t number_ = 0;
  int wrong_ = 0;
  bool broken_ = false;
};

TEST_P(Conformance, EveryOperationTypeAndReduction) {
  Run([](Runtime& runtime, Communicator&) { Operations(runtime, LargeBytes()).CheckAll(); });
}

}  // namespace
}  // namespace gyre
