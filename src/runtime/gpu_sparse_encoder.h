// GpuSparseEncoder: the codecs of a sparse exchange on a GPU, a part at a time. What its ranks send is chosen and
// encoded there, and comes to the host in one copy, which is as long as it may become at most: so nobody waits for
// lengths first. What ranks have sent goes back in one copy, and is added up there; where the choice is global, it is
// added up by the host, and results and what comes back to this rank go there in one copy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/gpu.h"
#include "device/gpu_dgc.h"
#include "runtime/gpu_codec_device.h"
#include "runtime/gpu_sum_lists.h"
#include "runtime/sparse_encoder.h"

namespace gyre::internal {

// Not thread-safe. Of a TopK, a RandomK, or a Dgc; no rank reduces within its host. REQUIRES: parts of
// the same gradients have their elements where they had them the first time.
class GpuSparseEncoder final : public SparseEncoder {
 public:
  // `device` outlives it. kResourceExhausted: no room for what is kept.
  static absl::StatusOr<std::unique_ptr<SparseEncoder>> Create(GpuCodecDevice& device, const Compression& compression,
                                                               const ExchangeSettings& settings,
                                                               const HostPieces& pieces);
  ~GpuSparseEncoder() override;

  absl::Status Flush(const ExchangePart& part) override;
  absl::Status Begin(const SparseEncoding& to) override;
  absl::StatusOr<bool> Ready() override;
  std::string Awaited() const override { return device_.Awaited(); }
  bool prepares() const override { return false; }
  bool EncodeNext(SparseEncoding& to) override;  // what Begin has encoded
  absl::Status Add(std::span<const SparseAddend> all) override;
  absl::Status DeliverPlain(const ExchangePart& part, const PlainPart& plain) override;
  void Place(const SparseSplit::Results& results) override { sums_.Place(results); }
  absl::Status TakeBack(const SparseEncoding& from, const SparseSplit& split) override;
  compression::StateArrays ArraysOf(int tensor) override { return arrays_[static_cast<size_t>(tensor)]; }

 private:
  using Table = std::unique_ptr<device::Gpu::Table>;

  // What the GPU has of a part, from its first exchange on.
  struct Known {
    std::vector<size_t> covered;               // places in the part
    std::unique_ptr<device::GpuDgc> selector;  // of these; null: there are none
    Table plain, plain_kept;                   // of the others, and what is kept of them; null: nothing
    int64_t plain_count = 0;                   // elements
  };

  // Where what is encoded lies in `outgoing_`: gradients that go plain, what is kept of them, a u64 for the size of
  // each payload, the payloads.
  struct Places {
    int64_t kept = 0, sizes = 0, end = 0;
    std::vector<int64_t> payloads = {};
  };

  GpuSparseEncoder(GpuCodecDevice& device, const Compression& compression, const ExchangeSettings& settings,
                   const HostPieces& pieces);
  absl::Status Open();
  absl::StatusOr<Known*> Know(const ExchangePart& part);
  absl::Status MakeSelector(const ExchangePart& part, Known& known);
  absl::Status MakeTables(const ExchangePart& part, Known& known);
  absl::StatusOr<Table> Upload(const std::vector<std::span<float>>& tensors);
  Places PlacesOf(const ExchangePart& part, const Known& known) const;
  device::kernels::DgcStep StepOf(bool selects) const;
  absl::Status FlushVelocities(const ExchangePart& part);
  int64_t MostBytes(int tensor) const;
  absl::Status Encode(const Known& known);
  absl::Status EncodeRandom(const ExchangePart& part, const Known& known);
  absl::Status Collect(SparseEncoding& to) const;
  absl::Status AddRandom(std::span<const SparseAddend> all);
  absl::Status CheckFaults();

  GpuCodecDevice& device_;
  const device::kernels::SparseValues values_;
  const bool global_;                             // whether u may come back
  const bool sampled_;                            // as TopK's: up to twice as many are chosen
  std::optional<RandomK> random_;                 // elements are drawn by lot, and not chosen
  std::vector<compression::StateArrays> arrays_;  // by place
  std::map<std::vector<int>, Known> known_;       // by tensors of the part
  Places places_;                                 // of what Begin has begun
  std::vector<std::pair<int, int>> unchecked_;    // rank and tensor of each payload that is being added
  GpuSumLists sums_;
  const std::unique_ptr<Parcel> outgoing_, incoming_, plain_results_, faults_;
};

}  // namespace gyre::internal
