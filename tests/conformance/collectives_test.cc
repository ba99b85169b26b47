// What every implementation of the collectives must do, held against the definitions, over threads and processes.
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "support/fill.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::ExactValue;
using support::FillExact;
using support::IsOk;
using support::Mode;
using support::ReadElement;

enum class Place { kPlain, kArena, kMixed, kUnaligned };

constexpr DType kAllTypes[] = {DType::kU8,  DType::kI8,   DType::kI16, DType::kU16, DType::kI32, DType::kI64,
                               DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kBool};

// Elements somewhere: on the heap, in the arena, off alignment, or (kMixed) in the arena of odd ranks only.
class Tensor {
 public:
  Tensor(Runtime& runtime, Place place, DType dtype, int64_t count) {
    const int64_t bytes = count * DTypeSize(dtype);
    const bool arena = place == Place::kArena || (place == Place::kMixed && runtime.world().rank() % 2 == 1);
    if (arena) {
      auto buffer = runtime.Allocate(bytes);
      EXPECT_THAT(buffer, IsOk());
      buffer_ = *std::move(buffer);
      view_ = TensorView(buffer_.data(), count, dtype);
    } else {
      heap_.resize(static_cast<size_t>(bytes) + 17, '\x5a');
      view_ = TensorView(heap_.data() + (place == Place::kUnaligned ? 1 : 0), count, dtype);
    }
    std::memset(view_.data, 0x11, static_cast<size_t>(bytes));
  }
  // Nothing may write beside the elements.
  ~Tensor() {
    if (heap_.empty()) return;
    const char* const begin = static_cast<const char*>(view_.data);
    const char* const end = begin + view_.bytes();
    for (const char& byte : heap_) {
      if (&byte < begin || &byte >= end) {
        EXPECT_EQ(byte, '\x5a') << "written beside the elements";
      }
    }
  }
  Tensor(Tensor&&) = default;
  TensorView view() const { return view_; }
  double at(int64_t index) const { return ReadElement(view_, index); }

 private:
  Buffer buffer_;
  std::vector<char> heap_;
  TensorView view_;
};

// The reduction of all ranks' element, by definition. ExactValue makes it exact for sums, minima and maxima.
double Reduced(ReduceOp op, DType dtype, uint64_t seed, int size, int64_t index) {
  double result = ExactValue(dtype, seed, 0, index);
  for (int r = 1; r < size; ++r) {
    const double value = ExactValue(dtype, seed, r, index);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage: result += value; break;
      case ReduceOp::kMin: result = std::min(result, value); break;
      case ReduceOp::kMax: result = std::max(result, value); break;
      case ReduceOp::kProduct: result *= value; break;
    }
  }
  const bool floating = dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
  if (dtype == DType::kBool) return result != 0 ? 1 : 0;
  if (op == ReduceOp::kAverage) return floating ? result / size : std::trunc(result / size);
  return result;
}

double RelativeTolerance(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 1.0 / 1024;
    case DType::kBF16: return 1.0 / 128;
    case DType::kF32: return 1e-6;
    case DType::kF64: return 1e-14;
    default: return 0;
  }
}

class Conformance : public testing::TestWithParam<std::tuple<Mode, int>> {
 protected:
  void Run(const std::function<void(Runtime&, Communicator&)>& body) {
    support::RunRanks(std::get<0>(GetParam()), std::get<1>(GetParam()), [&](const support::Rank& rank) {
      auto runtime = support::JoinJob(rank);
      ASSERT_NE(runtime, nullptr);
      body(*runtime, runtime->world());
      EXPECT_THAT(runtime->world().Barrier(), IsOk()) << "the group did not stay in step";
    });
  }
};

std::string Name(const testing::TestParamInfo<std::tuple<Mode, int>>& info) {
  return support::ModeName(std::get<0>(info.param)) + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, Conformance,
                         testing::Combine(testing::Values(Mode::kThreads), testing::Values(1, 2, 3, 4, 5, 8)), Name);
INSTANTIATE_TEST_SUITE_P(Spread, Conformance,
                         testing::Combine(testing::Values(Mode::kProcesses), testing::Values(1, 2, 4, 7)), Name);

// Counts around every border of the algorithms: inline data, the slot's line, direct, one chunk, several chunks.
const std::vector<int64_t> kCounts = {0, 1, 2, 3, 4, 5, 17, 250, 1023, 4096, 4097, 65536, 65537, 200001};

TEST_P(Conformance, AllReduceEveryTypeAndReduction) {
  Run([](Runtime& runtime, Communicator& world) {
    for (DType dtype : kAllTypes) {
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
        if (dtype == DType::kBool && op == ReduceOp::kAverage) continue;
        const bool narrow = dtype != DType::kBool && dtype != DType::kF16 && dtype != DType::kBF16 && DTypeSize(dtype) <= 2;
        if (op == ReduceOp::kProduct && narrow) continue;  // would wrap, which the device's own test covers
        for (int64_t count : {1, 37, 20000, 20001}) {
          const Place place = count == 20000 ? Place::kPlain : Place::kArena;  // 20001: pushed, both from the arena
          Tensor in(runtime, place, dtype, count), out(runtime, Place::kArena, dtype, count);
          FillExact(in.view(), 1, world.rank());
          ASSERT_THAT(world.AllReduce(in.view(), out.view(), {.op = op}), IsOk());
          for (int64_t i = 0; i < count; i += 1 + count / 50) {
            const double expected = Reduced(op, dtype, 1, world.size(), i);
            ASSERT_NEAR(out.at(i), expected, std::abs(expected) * RelativeTolerance(dtype))
                << DTypeName(dtype) << " " << ReduceOpName(op) << " element " << i << " of " << count;
          }
        }
      }
    }
  });
}

TEST_P(Conformance, AllReduceEverySizeAndPlace) {
  Run([](Runtime& runtime, Communicator& world) {
    uint64_t seed = 10;
    for (Place place : {Place::kPlain, Place::kArena, Place::kMixed, Place::kUnaligned}) {
      for (int64_t count : kCounts) {
        for (bool in_place : {true, false}) {
          ++seed;
          Tensor a(runtime, place, DType::kF32, count), b(runtime, place, DType::kF32, count);
          FillExact(a.view(), seed, world.rank());
          const TensorView out = in_place ? a.view() : b.view();
          ASSERT_THAT(world.AllReduce(a.view(), out), IsOk());
          for (int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(ReadElement(out, i), Reduced(ReduceOp::kSum, DType::kF32, seed, world.size(), i))
                << "element " << i << " of " << count << " place " << static_cast<int>(place);
            if (in_place) continue;
            ASSERT_EQ(a.at(i), ExactValue(DType::kF32, seed, world.rank(), i)) << "input was changed";
          }
        }
      }
    }
  });
}

TEST_P(Conformance, AllReduceIsBitIdenticalOnAllRanks) {
  Run([](Runtime& runtime, Communicator& world) {
    for (Place place : {Place::kPlain, Place::kArena}) {
      for (int64_t count : {100, 4099, 300007}) {
        Tensor tensor(runtime, place, DType::kF32, count);
        support::FillUniform(tensor.view(), 5, world.rank());
        ASSERT_THAT(world.AllReduce(tensor.view(), {.op = ReduceOp::kAverage}), IsOk());
        std::vector<float> all(static_cast<size_t>(count * world.size()));
        ASSERT_THAT(world.AllGather(tensor.view(), all), IsOk());
        for (int r = 1; r < world.size(); ++r) {
          ASSERT_EQ(std::memcmp(all.data(), all.data() + r * count, static_cast<size_t>(count) * 4), 0) << "rank " << r;
        }
      }
    }
  });
}

TEST_P(Conformance, ScalesApplyBeforeAndAfter) {
  Run([](Runtime&, Communicator& world) {
    std::vector<double> data(100, world.rank() + 1.0);
    ASSERT_THAT(world.AllReduce(data, {.prescale = 0.5, .postscale = 3}), IsOk());
    for (double v : data) ASSERT_DOUBLE_EQ(v, 1.5 * world.size() * (world.size() + 1) / 2);
  });
}

TEST_P(Conformance, ReduceScatterGivesEveryRankItsSegment) {
  Run([](Runtime& runtime, Communicator& world) {
    const int n = world.size();
    for (int64_t each : {0, 1, 5, 1000, 70001}) {
      std::vector<int64_t> counts(n);
      for (int r = 0; r < n; ++r) counts[r] = each + (each > 0 ? (r * 3) % 5 : 0);
      const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      int64_t begin = std::accumulate(counts.begin(), counts.begin() + world.rank(), int64_t{0});
      for (bool in_place : {false, true}) {
        Tensor in(runtime, Place::kUnaligned, DType::kI32, total);
        Tensor separate(runtime, Place::kPlain, DType::kI32, counts[world.rank()]);
        FillExact(in.view(), 3, world.rank());
        const TensorView out = in_place ? in.view().Slice(begin, counts[world.rank()]) : separate.view();
        ASSERT_THAT(world.ReduceScatterV(in.view(), counts, out), IsOk());
        for (int64_t i = 0; i < counts[world.rank()]; ++i) {
          ASSERT_EQ(ReadElement(out, i), Reduced(ReduceOp::kSum, DType::kI32, 3, n, begin + i)) << i;
        }
      }
    }
    std::vector<float> in(n * 7), out(7);
    FillExact(in, 4, world.rank());
    ASSERT_THAT(world.ReduceScatter(in, out, {.op = ReduceOp::kMax}), IsOk());
    for (int i = 0; i < 7; ++i) {
      ASSERT_EQ(out[i], Reduced(ReduceOp::kMax, DType::kF32, 4, n, world.rank() * 7 + i));
    }
  });
}

TEST_P(Conformance, AllGatherConcatenates) {
  Run([](Runtime& runtime, Communicator& world) {
    const int n = world.size();
    for (int64_t each : {0, 1, 7, 5000, 140001}) {
      std::vector<int64_t> counts(n);
      for (int r = 0; r < n; ++r) counts[r] = (r % 3 == 1) ? 0 : each + r;  // some ranks have nothing
      const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      for (bool in_place : {false, true}) {
        Tensor in(runtime, Place::kPlain, DType::kI16, counts[world.rank()]);
        Tensor out(runtime, Place::kArena, DType::kI16, total);
        const int64_t mine = std::accumulate(counts.begin(), counts.begin() + world.rank(), int64_t{0});
        const TensorView from = in_place ? out.view().Slice(mine, counts[world.rank()]) : in.view();
        FillExact(from, 6, world.rank());
        ASSERT_THAT(world.AllGatherV(from, counts, out.view()), IsOk());
        int64_t at = 0;
        for (int r = 0; r < n; ++r) {
          for (int64_t i = 0; i < counts[r]; ++i, ++at) ASSERT_EQ(out.at(at), ExactValue(DType::kI16, 6, r, i));
        }
      }
    }
  });
}

TEST_P(Conformance, BroadcastFromEveryRoot) {
  Run([](Runtime& runtime, Communicator& world) {
    for (int root = 0; root < world.size(); ++root) {
      for (int64_t count : {0, 1, 9, 65537}) {
        Tensor tensor(runtime, Place::kUnaligned, DType::kF64, count);
        FillExact(tensor.view(), root + 1, world.rank());
        ASSERT_THAT(world.Broadcast(tensor.view(), root), IsOk());
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(tensor.at(i), ExactValue(DType::kF64, root + 1, root, i));
      }
    }
  });
}

TEST_P(Conformance, ReduceToEveryRoot) {
  Run([](Runtime& runtime, Communicator& world) {
    for (int root = 0; root < world.size(); ++root) {
      for (int64_t count : {0, 1, 9, 70001}) {
        Tensor in(runtime, Place::kPlain, DType::kF32, count), out(runtime, Place::kPlain, DType::kF32, count);
        FillExact(in.view(), root + 1, world.rank());
        // Elsewhere than on the root the output is nobody's business.
        const TensorView to = world.rank() == root ? out.view() : TensorView();
        ASSERT_THAT(world.Reduce(in.view(), to, root), IsOk());
        if (world.rank() != root) continue;
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(out.at(i), Reduced(ReduceOp::kSum, DType::kF32, root + 1, world.size(), i));
        }
      }
    }
  });
}

TEST_P(Conformance, AllToAllTransposes) {
  Run([](Runtime& runtime, Communicator& world) {
    const int n = world.size(), me = world.rank();
    for (int64_t each : {0, 1, 3, 20011}) {
      Tensor in(runtime, Place::kPlain, DType::kI64, each * n), out(runtime, Place::kUnaligned, DType::kI64, each * n);
      FillExact(in.view(), 8, me);
      ASSERT_THAT(world.AllToAll(in.view(), out.view()), IsOk());
      for (int r = 0; r < n; ++r) {
        for (int64_t i = 0; i < each; ++i) ASSERT_EQ(out.at(r * each + i), ExactValue(DType::kI64, 8, r, me * each + i));
      }
      ASSERT_THAT(world.AllToAll(in.view(), in.view()), IsOk());  // in place
      for (int64_t i = 0; i < each * n; ++i) ASSERT_EQ(in.at(i), out.at(i));
    }
    // Ragged: rank s sends s + r elements to rank r, and none where the sum is a multiple of 3.
    const auto length = [](int s, int r) { return (s + r) % 3 == 0 ? 0 : int64_t{1000} * (s + r); };
    std::vector<int64_t> send(n), receive(n);
    for (int r = 0; r < n; ++r) send[r] = length(me, r), receive[r] = length(r, me);
    Tensor in(runtime, Place::kPlain, DType::kF32, std::accumulate(send.begin(), send.end(), int64_t{0}));
    Tensor out(runtime, Place::kPlain, DType::kF32, std::accumulate(receive.begin(), receive.end(), int64_t{0}));
    FillExact(in.view(), 9, me);
    ASSERT_THAT(world.AllToAllV(in.view(), send, out.view(), receive), IsOk());
    int64_t at = 0;
    for (int s = 0; s < n; ++s) {
      int64_t begin = 0;
      for (int r = 0; r < me; ++r) begin += length(s, r);
      for (int64_t i = 0; i < receive[s]; ++i, ++at) ASSERT_EQ(out.at(at), ExactValue(DType::kF32, 9, s, begin + i));
    }
  });
}

TEST_P(Conformance, MessagesArriveInOrderBetweenEveryPair) {
  Run([](Runtime& runtime, Communicator& world) {
    if (world.size() == 1) return;
    const int n = world.size(), me = world.rank();
    const int next = (me + 1) % n, previous = (me + n - 1) % n;
    for (int64_t count : {0, 1, 5, 50001}) {
      Tensor out(runtime, Place::kPlain, DType::kF32, count), in(runtime, Place::kUnaligned, DType::kF32, count);
      FillExact(out.view(), 12, me);
      Work sent = world.SendAsync(out.view(), next);  // all send round the ring at once: blocking sends would deadlock
      ASSERT_THAT(world.Receive(in.view(), previous), IsOk());
      ASSERT_THAT(sent.Wait(), IsOk());
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(in.at(i), ExactValue(DType::kF32, 12, previous, i));
    }
    // Many messages, collectives between them.
    std::vector<Work> works;
    std::vector<int> numbers(50);
    std::iota(numbers.begin(), numbers.end(), me * 100);
    for (int& number : numbers) works.push_back(world.SendAsync(std::span(&number, 1), next));
    ASSERT_THAT(world.Barrier(), IsOk());
    for (int i = 0; i < 50; ++i) {
      int got = -1;
      ASSERT_THAT(world.Receive(std::span(&got, 1), previous), IsOk());
      ASSERT_EQ(got, previous * 100 + i);
    }
    for (Work& work : works) ASSERT_THAT(work.Wait(), IsOk());
  });
}

TEST_P(Conformance, AsynchronousOperationsRunInOrder) {
  Run([](Runtime& runtime, Communicator& world) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      tensors.emplace_back(runtime, i % 2 == 0 ? Place::kPlain : Place::kArena, DType::kF32, 1 + i * 4001);
      FillExact(tensors.back().view(), i, world.rank());
      works.push_back(world.AllReduceAsync(tensors.back().view()));
    }
    float last = static_cast<float>(world.rank());
    ASSERT_THAT(world.AllReduce(std::span(&last, 1)), IsOk());  // a blocking call queues behind them
    EXPECT_EQ(last, world.size() * (world.size() - 1) / 2);
    for (int i = 19; i >= 0; --i) {
      ASSERT_THAT(works[i].Wait(), IsOk());
      ASSERT_TRUE(works[i].Done());
      for (int64_t e = 0; e < 1 + i * 4001; e += 97) {
        ASSERT_EQ(tensors[i].at(e), Reduced(ReduceOp::kSum, DType::kF32, i, world.size(), e));
      }
    }
  });
}

TEST_P(Conformance, AsynchronousWorkEndsWithoutBeingWaitedFor) {
  Run([](Runtime&, Communicator& world) {
    std::vector<float> data(100000, 1.0f);
    Work work = world.AllReduceAsync(data);
    while (!work.Done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(data[99999], static_cast<float>(world.size()));
  });
}

TEST_P(Conformance, SplitMakesIndependentGroups) {
  Run([](Runtime&, Communicator& world) {
    const int n = world.size(), me = world.rank();
    std::vector<int> mine;
    for (int r = n - 1; r >= 0; --r) {
      if (r % 2 == me % 2) mine.push_back(r);  // in reverse: new numbers differ from the old
    }
    auto half = world.Split(mine);
    ASSERT_THAT(half, IsOk());
    ASSERT_EQ((*half)->size(), static_cast<int>(mine.size()));
    ASSERT_EQ(mine[(*half)->rank()], me);
    // The halves work at their own pace, the world's operations between theirs.
    for (int i = 0; i < 10 + me % 2 * 10; ++i) {
      std::vector<int64_t> value = {me, 1};
      ASSERT_THAT((*half)->AllReduce(value), IsOk());
      ASSERT_EQ(value[0], std::accumulate(mine.begin(), mine.end(), int64_t{0}));
      ASSERT_EQ(value[1], static_cast<int64_t>(mine.size()));
    }
    std::vector<float> big(100001, static_cast<float>(me));
    ASSERT_THAT((*half)->Broadcast(big, (*half)->size() - 1), IsOk());
    ASSERT_EQ(big[100000], static_cast<float>(mine.back()));
    ASSERT_THAT(world.Barrier(), IsOk());
    // A rank that stays out.
    std::vector<int> others;
    for (int r = 1; r < n; ++r) others.push_back(r);
    auto rest = world.Split(me == 0 ? std::span<const int>() : std::span<const int>(others));
    ASSERT_THAT(rest, IsOk());
    ASSERT_EQ(*rest == nullptr, me == 0);
    if (me != 0) {
      ASSERT_THAT((*rest)->Barrier(), IsOk());
    }
    // Split of a split.
    const int alone = (*half)->rank();
    auto single = (*half)->Split({{alone}});
    ASSERT_THAT(single, IsOk());
    ASSERT_EQ((*single)->size(), 1);
  });
}

TEST_P(Conformance, TwoGroupsInDifferentOrderDoNotDeadlock) {
  Run([](Runtime&, Communicator& world) {
    std::vector<int> all(world.size());
    std::iota(all.begin(), all.end(), 0);
    auto other = world.Split(all);
    ASSERT_THAT(other, IsOk());
    std::vector<float> a(50000, 1), b(50000, 2);
    Work first, second;
    if (world.rank() % 2 == 0) {
      first = world.AllReduceAsync(a);
      second = (*other)->AllReduceAsync(b);
    } else {
      second = (*other)->AllReduceAsync(b);
      first = world.AllReduceAsync(a);
    }
    ASSERT_THAT(first.Wait(), IsOk());
    ASSERT_THAT(second.Wait(), IsOk());
    EXPECT_EQ(a[49999], world.size());
    EXPECT_EQ(b[49999], 2 * world.size());
  });
}

// Many random calls, all ranks drawing the same ones from a seed, with asynchronous ones mixed in.
TEST_P(Conformance, RandomCallsStayInStep) {
  Run([](Runtime& runtime, Communicator& world) {
    uint64_t state = 12345;
    const auto draw = [&state](uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<int64_t>((state >> 33) % below);
    };
    for (int i = 0; i < 60; ++i) {
      const int64_t count = draw(3) == 0 ? draw(100000) : draw(300);
      const auto place = static_cast<Place>(draw(4));
      Tensor tensor(runtime, place, DType::kF32, count);
      FillExact(tensor.view(), i, world.rank());
      const int root = static_cast<int>(draw(world.size()));
      const bool asynchronous = draw(2) == 0;
      const bool broadcast = draw(3) == 0;
      const absl::Status status =
          broadcast ? (asynchronous ? world.BroadcastAsync(tensor.view(), root).Wait()
                                    : world.Broadcast(tensor.view(), root))
                    : (asynchronous ? world.AllReduceAsync(tensor.view()).Wait() : world.AllReduce(tensor.view()));
      ASSERT_THAT(status, IsOk());
      for (int64_t e = 0; e < count; e += 1 + count / 20) {
        ASSERT_EQ(tensor.at(e), broadcast ? ExactValue(DType::kF32, i, root, e)
                                          : Reduced(ReduceOp::kSum, DType::kF32, i, world.size(), e));
      }
    }
  });
}

}  // namespace
}  // namespace gyre
