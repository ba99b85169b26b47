// What NCCL's calls do, on the fake GPU.
#include "collectives/gpu/fake_nccl.h"
#include "gtest/gtest.h"

namespace gyre {

using internal::nccl::Transfer;
using Kind = Transfer::Kind;

// Collectives match by their order, messages between two ranks likewise.
void FakeNccl::Do(const std::vector<Launch>& launches, device::Gpu::Stream stream) {
  std::vector<std::vector<const Transfer*>> collectives;
  for (const auto& launch : launches) {
    size_t number = 0;
    for (const Transfer& transfer : launch.group) {
      if (transfer.kind == Kind::kSend || transfer.kind == Kind::kReceive) continue;
      if (collectives.size() <= number) collectives.emplace_back();
      collectives[number++].push_back(&transfer);
    }
  }
  for (const auto& transfers : collectives) {
    ASSERT_EQ(transfers.size(), launches.size());
    DoOne(transfers, stream);
  }
  Match(launches, stream);
}

void FakeNccl::Copy(void* to, const void* from, int64_t bytes, device::Gpu::Stream stream) {
  if (to == from) return;
  ASSERT_TRUE(gpu_.Copy(to, from, bytes, stream).ok());
}

void FakeNccl::DoOne(const std::vector<const Transfer*>& transfers, device::Gpu::Stream stream) {
  const Transfer& first = *transfers[0];
  for (const Transfer* const transfer : transfers) {
    EXPECT_TRUE(transfer->kind == first.kind && transfer->count == first.count && transfer->dtype == first.dtype &&
                transfer->combination == first.combination && transfer->root == first.root);
    EXPECT_GT(transfer->count, 0);
  }
  const int64_t bytes = first.count * DTypeSize(first.dtype);
  if (first.kind == Kind::kBroadcast) {
    for (const Transfer* const to : transfers)
      Copy(to->out, transfers[static_cast<size_t>(first.root)]->in, bytes, stream);
    return;
  }
  if (first.kind != Kind::kAllGather) return Reduce(transfers, stream);
  for (size_t from = 0; from < transfers.size(); ++from) {
    for (const Transfer* const to : transfers) {
      Copy(static_cast<char*>(to->out) + static_cast<int64_t>(from) * bytes, transfers[from]->in, bytes, stream);
    }
  }
}

void FakeNccl::Reduce(const std::vector<const Transfer*>& transfers, device::Gpu::Stream stream) {
  const Transfer& first = *transfers[0];
  EXPECT_TRUE(first.dtype != DType::kI16 && first.dtype != DType::kU16 && first.dtype != DType::kBool);
  const auto [op, scale] = first.combination;
  EXPECT_TRUE(scale == 1.0 || op == ReduceOp::kSum);
  device::Reduction reduction{.dtype = first.dtype, .op = op, .scale_source = scale};
  // As NCCL has scales: in the dtype.
  if (first.dtype == DType::kF16) reduction.scale_source = static_cast<float>(Float16(static_cast<float>(scale)));
  if (first.dtype == DType::kBF16) reduction.scale_source = static_cast<float>(BFloat16(static_cast<float>(scale)));
  if (op == ReduceOp::kAverage)
    reduction = device::MakeReduction(first.dtype, op, 1, 1, static_cast<int>(transfers.size()));
  const int64_t bytes = first.count * DTypeSize(first.dtype);
  const auto of_segment = [&](size_t segment, const std::vector<void*>& outs) {
    std::vector<const void*> ins;
    for (const Transfer* const from : transfers) {
      ins.push_back(static_cast<const char*>(from->in) + static_cast<int64_t>(segment) * bytes);
    }
    ASSERT_TRUE(gpu_.Reduce(reduction, ins, outs, first.count, stream).ok());
  };
  if (first.kind == Kind::kReduceScatter) {
    for (size_t r = 0; r < transfers.size(); ++r) of_segment(r, {transfers[r]->out});
    return;
  }
  std::vector<void*> outs;
  for (size_t r = 0; r < transfers.size(); ++r) {
    if (first.kind == Kind::kAllReduce || static_cast<int>(r) == first.root) outs.push_back(transfers[r]->out);
  }
  of_segment(0, outs);
}

void FakeNccl::Match(const std::vector<Launch>& launches, device::Gpu::Stream stream) {
  const auto messages = [&](size_t rank, Kind kind, size_t other) {
    std::vector<const Transfer*> found;
    for (const Transfer& transfer : launches[rank].group) {
      if (transfer.kind == kind && transfer.root == static_cast<int>(other)) found.push_back(&transfer);
    }
    return found;
  };
  for (size_t from = 0; from < launches.size(); ++from) {
    for (size_t to = 0; to < launches.size(); ++to) {
      const auto sent = messages(from, Kind::kSend, to), received = messages(to, Kind::kReceive, from);
      ASSERT_EQ(sent.size(), received.size());
      for (size_t i = 0; i < sent.size(); ++i) {
        ASSERT_EQ(sent[i]->count, received[i]->count);
        Copy(received[i]->out, sent[i]->in, sent[i]->count, stream);
      }
    }
  }
}

}  // namespace gyre
