#include "device/fake_gpu_codecs.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "device/emulated_team.h"
#include "device/kernels/low_rank.h"
#include "device/kernels/quantize.h"
#include "device/kernels/sample.h"
#include "device/kernels/select.h"
#include "device/kernels/sparse_decode.h"
#include "gyre/status_macros.h"

namespace gyre::device {

namespace {

using kernels::Dequantization;
using kernels::DgcStep;
using kernels::DgcTable;
using kernels::LowRankMatrix;
using kernels::LowRankPass;
using kernels::Quantization;
using TileTeam = EmulatedTeam<kernels::kTileThreads>;
using ChooserTeam = EmulatedTeam<1024>;
using SmallChooserTeam = EmulatedTeam<32>;  // makes long lists, and many tiles, of small tensors
using SparseTeam = EmulatedTeam<512>;
using LowRankTeam = EmulatedTeam<kernels::kLowRankThreads>;
using WarpTeam = EmulatedTeam<kernels::kWarp>;

// body(block) for all blocks of a launch, in any order.
template <class Body>
void Launch(int64_t blocks, std::minstd_rand& random, const Body& body) {
  std::vector<int64_t> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::shuffle(order, random);
  for (const int64_t block : order) body(block);
}

// The same where the blocks, of which there are 1 to 8, share out the work: body(block, blocks).
template <class Body>
void Share(std::minstd_rand& random, const Body& body) {
  const auto blocks = static_cast<uint32_t>(1 + random() % 8);
  Launch(blocks, random, [&](int64_t block) { body(static_cast<uint32_t>(block), blocks); });
}

template <class Chooser>
void SetThresholds(const DgcTable& table, std::minstd_rand& random) {
  const auto shared = std::make_unique<kernels::SelectShared<Chooser>>();
  Chooser chooser(random);
  Launch(table.tensor_count, random,
         [&](int64_t tensor) { kernels::SetThreshold(chooser, table, static_cast<uint32_t>(tensor), *shared); });
}

template <class Element>
void Sample(const DgcTable& table, const DgcStep& step, std::minstd_rand& random) {
  for (uint32_t tensor = 0; tensor < table.tensor_count; ++tensor) {
    Share(random, [&](uint32_t thread, uint32_t threads) {
      kernels::DrawShare<Element>(table, step, tensor, thread, threads);
    });
  }
  if (random() % 2 == 0) {
    SetThresholds<ChooserTeam>(table, random);
  } else {
    SetThresholds<SmallChooserTeam>(table, random);
  }
}

template <class Element>
void Accumulate(const DgcTable& table, const DgcStep& step, std::minstd_rand& random) {
  if (table.sampled && step.select) Sample<Element>(table, step, random);
  TileTeam team(random);
  Share(random, [&](uint32_t block, uint32_t blocks) {
    kernels::TileShared shared;
    shared.non_finite = 1234;  // as whatever was there
    if (table.momentum) {
      kernels::AccumulateTiles<Element, true>(team, table, step, block, blocks, shared);
    } else {
      kernels::AccumulateTiles<Element, false>(team, table, step, block, blocks, shared);
    }
  });
}

// Task: Quantization or Dequantization.
template <class Codec, class Task>
void Blocks(const Task& task, std::minstd_rand& random) {
  kernels::MeanShared shared;
  WarpTeam team(random);
  Share(random, [&](uint32_t warp, uint32_t warps) {
    if constexpr (std::is_same_v<Task, Quantization>) {
      kernels::QuantizeShare<Codec>(team, task, warp, warps, shared);
    } else {
      kernels::DequantizeShare<Codec>(team, task, warp, warps);
    }
  });
}

template <class Element, class Task>
void Elements(const Task& task, std::minstd_rand& random) {
  Share(random, [&](uint32_t thread, uint32_t threads) {
    if constexpr (std::is_same_v<Task, Quantization>) {
      kernels::QuantizeFours<Element>(task, thread, threads);
    } else {
      kernels::DequantizeFours<Element>(task, thread, threads);
    }
  });
}

template <class Task>
void As(Quantizer kind, const Task& task, std::minstd_rand& random) {
  switch (kind) {
    case Quantizer::kF32: return Elements<kernels::FloatElement>(task, random);
    case Quantizer::kF16: return Elements<kernels::HalfElement>(task, random);
    case Quantizer::kBF16: return Elements<kernels::BrainElement>(task, random);
    case Quantizer::kFp8E4M3: return Blocks<kernels::E4M3Codec>(task, random);
    case Quantizer::kFp8E5M2: return Blocks<kernels::E5M2Codec>(task, random);
    case Quantizer::kInt8: return Blocks<kernels::Int8Codec>(task, random);
    case Quantizer::kInt4: return Blocks<kernels::Int4Codec>(task, random);
    case Quantizer::kSign: return Blocks<kernels::SignCodec>(task, random);
    case Quantizer::kTernary: return Blocks<kernels::TernaryCodec>(task, random);
  }
}

template <class Chooser>
void Choose(const DgcTable& table, const DgcStep& step, std::minstd_rand& random) {
  const auto shared = std::make_unique<kernels::SelectShared<Chooser>>();
  const auto counted = std::make_unique<kernels::SelectShared<TileTeam>>();
  Chooser chooser(random);
  TileTeam team(random);
  WarpTeam warp(random);
  const auto tensors = [&](const auto& kernel) {
    Launch(table.tensor_count, random, [&](int64_t tensor) { kernel(static_cast<uint32_t>(tensor)); });
  };
  const auto tiles = [&](const auto& kernel) {
    Launch(table.tile_count, random, [&](int64_t tile) { kernel(static_cast<uint32_t>(tile)); });
  };
  tensors([&](uint32_t tensor) { kernels::ChooseKth(chooser, table, step, tensor, *shared); });
  for (int round = 0; round < 3; ++round) {
    Share(random,
          [&](uint32_t block, uint32_t blocks) { kernels::CountKeys(team, table, round, block, blocks, *counted); });
    tensors([&](uint32_t tensor) { kernels::NarrowKth(chooser, table, tensor, *shared); });
  }
  tiles([&](uint32_t tile) { kernels::CountKept(warp, table, tile); });
  tensors([&](uint32_t tensor) { kernels::PlaceKept(chooser, table, tensor, *shared); });
  tiles([&](uint32_t tile) { kernels::EmitKept(warp, table, step, tile); });
}

void Select(const DgcTable& table, DType gradients, const DgcStep& step, std::minstd_rand& random) {
  if (table.tile_count == 0) return;
  switch (gradients) {
    case DType::kF16: Accumulate<kernels::HalfElement>(table, step, random); break;
    case DType::kBF16: Accumulate<kernels::BrainElement>(table, step, random); break;
    default: Accumulate<kernels::FloatElement>(table, step, random); break;
  }
  if (!step.select) return;
  if (random() % 2 == 0) {
    Choose<ChooserTeam>(table, step, random);
  } else {
    Choose<SmallChooserTeam>(table, step, random);
  }
}

// Of chunks one too many, as launches for several tensors have them.
template <class Kernel>
void EachChunk(int64_t count, std::minstd_rand& random, const Kernel& kernel) {
  Launch(kernels::ChunksOf(count) + 1, random, [&](int64_t chunk) { kernel(static_cast<uint32_t>(chunk)); });
}

void Encode(const kernels::SparseEncoding& task, kernels::SparseValues values, std::minstd_rand& random) {
  const auto shared = std::make_unique<kernels::EncodeShared<SparseTeam>>();
  SparseTeam team(random);
  EachChunk(task.count, random, [&](uint32_t chunk) { kernels::EncodeChunk(team, task, values, chunk, *shared); });
}

void DecodeAdd(const kernels::SparseDecoding& task, std::minstd_rand& random) {
  const auto shared = std::make_unique<kernels::DecodeShared<SparseTeam>>();
  SparseTeam team(random);
  EachChunk(task.count, random, [&](uint32_t chunk) { kernels::CheckChunk(team, task, chunk, *shared); });
  EachChunk(task.count, random, [&](uint32_t chunk) { kernels::AddChunk(team, task, chunk, *shared); });
}

void LowRankOf(LowRankPass pass, const LowRankMatrix& m, std::minstd_rand& random) {
  LowRankTeam team(random);
  switch (pass) {
    case LowRankPass::kMakeP: {
      const auto shared = std::make_unique<kernels::DotShared>();
      Share(random, [&](uint32_t block, uint32_t blocks) { kernels::MakePShare(team, m, block, blocks, *shared); });
      Share(random, [&](uint32_t thread, uint32_t threads) { kernels::AddUpP(m, thread, threads); });
      break;
    }
    case LowRankPass::kMakeQ: {
      const auto shared = std::make_unique<kernels::ColumnsShared>();
      Share(random, [&](uint32_t block, uint32_t blocks) { kernels::MakeQShare(team, m, block, blocks, *shared); });
      Share(random, [&](uint32_t thread, uint32_t threads) { kernels::AddUpQ(m, thread, threads); });
      break;
    }
    case LowRankPass::kFinish: {
      const auto shared = std::make_unique<kernels::FinishShared>();
      Share(random, [&](uint32_t block, uint32_t blocks) { kernels::FinishShare(team, m, block, blocks, *shared); });
      break;
    }
  }
}

}  // namespace

absl::Status FakeGpuCodecs::Quantize(Quantizer kind, const float* gradient, float* kept, int64_t count, uint64_t seed,
                                     std::byte* out, Stream stream) {
  RETURN_IF_ERROR(CheckQuantization(gradient, kept, count, out));
  return queue_(stream, [=, this] { As(kind, Quantization{gradient, kept, count, seed, out}, random_); });
}

absl::Status FakeGpuCodecs::DequantizeAdd(Quantizer kind, const std::byte* from, int64_t count, float scale, float* sum,
                                          Stream stream) {
  RETURN_IF_ERROR(CheckDequantization(from));
  return queue_(stream, [=, this] { As(kind, Dequantization{from, sum, count, scale}, random_); });
}

absl::Status FakeGpuCodecs::SelectLargest(const DgcTable& table, DType gradients, const DgcStep& step, Stream stream) {
  RETURN_IF_ERROR(CheckSelection(gradients, step));
  return queue_(stream, [=, this] { Select(table, gradients, step, random_); });
}

absl::Status FakeGpuCodecs::EncodeSparse(std::span<const kernels::SparseEncoding> tensors, kernels::SparseValues values,
                                         Stream stream) {
  for (const auto& tensor : tensors) RETURN_IF_ERROR(CheckSparse(tensor.count));
  const std::vector tasks(tensors.begin(), tensors.end());
  return queue_(stream, [tasks, values, this] {
    for (const auto& task : tasks) Encode(task, values, random_);
  });
}

absl::Status FakeGpuCodecs::DecodeAddSparse(std::span<const kernels::SparseDecoding> payloads, Stream stream) {
  for (const auto& payload : payloads) RETURN_IF_ERROR(CheckSparse(payload.count));
  const std::vector tasks(payloads.begin(), payloads.end());
  return queue_(stream, [tasks, this] {
    for (const auto& task : tasks) DecodeAdd(task, random_);
  });
}

absl::Status FakeGpuCodecs::TakeRandom(const kernels::RandomChoice& choice, float* values, float* to, Stream stream) {
  RETURN_IF_ERROR(CheckRandom(choice));
  return queue_(stream, [=, this] {
    Share(random_, [&](uint32_t thread, uint32_t threads) { kernels::TakeShare(choice, values, to, thread, threads); });
  });
}

absl::Status FakeGpuCodecs::AddRandom(const kernels::RandomChoice& choice, const float* from, float scale, float* sum,
                                      Stream stream) {
  RETURN_IF_ERROR(CheckRandom(choice));
  return queue_(stream, [=, this] {
    Share(random_,
          [&](uint32_t thread, uint32_t threads) { kernels::AddShare(choice, from, scale, sum, thread, threads); });
  });
}

absl::Status FakeGpuCodecs::PutElements(const kernels::ElementList& list, float* to, Stream stream) {
  return queue_(stream, [=, this] {
    Share(random_, [&](uint32_t thread, uint32_t threads) { kernels::PutShare(list, to, thread, threads); });
  });
}

absl::Status FakeGpuCodecs::TakeBack(const kernels::ReturnedList& returned, Stream stream) {
  return queue_(stream, [=, this] {
    Share(random_, [&](uint32_t thread, uint32_t threads) { kernels::TakeBackShare(returned, thread, threads); });
  });
}

absl::Status FakeGpuCodecs::LowRank(LowRankPass pass, std::span<const LowRankMatrix> matrices, Stream stream) {
  RETURN_IF_ERROR(CheckLowRank(matrices));
  const std::vector tasks(matrices.begin(), matrices.end());
  return queue_(stream, [pass, tasks, this] {
    for (const LowRankMatrix& m : tasks) LowRankOf(pass, m, random_);
  });
}

}  // namespace gyre::device
