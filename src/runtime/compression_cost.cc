#include "runtime/compression_cost.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <vector>

#include "compression/codec.h"
#include "compression/power_sgd.h"
#include "compression/split_sum.h"
#include "runtime/compressed_exchange.h"

namespace gyre::internal {

namespace {

constexpr double kDenseEntryBytes = sizeof(float);
constexpr double kSparseEntryBytes = 6;  // a position and a value of a sparse payload, rather more than less

struct Share {
  double operator()(const NoCompression& /*none*/) const { return 1; }
  double operator()(const Fp16& /*none*/) const { return 0.5; }
  double operator()(const Bf16& /*none*/) const { return 0.5; }
  double operator()(const Fp8& /*none*/) const { return 0.254; }
  double operator()(const Int8& /*none*/) const { return 0.254; }
  double operator()(const Int4& /*none*/) const { return 0.129; }
  double operator()(const Sign& /*none*/) const { return 0.036; }
  double operator()(const Ternary& /*none*/) const { return 0.16; }  // of both rounds: 0.067 and 0.254
  double operator()(const TopK& top) const { return (1 - top.sparsity) * kSparseEntryBytes / kDenseEntryBytes; }
  double operator()(const RandomK& random) const { return 1 - random.sparsity; }
  double operator()(const Dgc& dgc) const { return (1 - dgc.sparsity) * kSparseEntryBytes / kDenseEntryBytes; }
  double operator()(const PowerSgd& power) const {
    return static_cast<double>(power.rank * (rows + columns)) / static_cast<double>(rows * columns);
  }

  int64_t rows, columns;
};

template <typename Body>
double SecondsOf(Body body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Of an allreduce of so many bytes a host: bandwidth-optimal between hosts.
double AllReduceSeconds(double bytes, const NetworkShape& network) {
  const double others = static_cast<double>(network.hosts - 1) / network.hosts;
  return 2 * others * bytes / network.bytes_per_second + 2 * network.latency * std::bit_width(unsigned(network.hosts));
}

}  // namespace

bool IsSparse(const Compression& compression) {
  return std::holds_alternative<Dgc>(compression) || std::holds_alternative<TopK>(compression) ||
         std::holds_alternative<RandomK>(compression);
}

double PayloadShare(const Compression& compression, int64_t rows, int64_t columns) {
  return std::min(1.0, std::visit(Share{rows, columns}, compression));
}

double CompressedSeconds(const Compression& compression, int64_t covered, int64_t plain, double share,
                         const CodecSpeed& speed, const NetworkShape& network) {
  const double bytes = static_cast<double>(covered) * kDenseEntryBytes * share,
               rest = static_cast<double>(plain) * kDenseEntryBytes;
  const double elements = static_cast<double>(covered), ranks = network.ranks;
  const double elsewhere = ranks - network.most_local;  // ranks that are not on the largest host
  if (std::holds_alternative<PowerSgd>(compression)) {
    return elements * (speed.encode + speed.decode) + AllReduceSeconds(bytes / 2 + rest, network) +
           AllReduceSeconds(bytes / 2, network);
  }
  if (IsSparse(compression)) {
    const double encode = elements * speed.encode / network.encoders, plain = AllReduceSeconds(rest, network);
    if (SplitsSums(compression, network.ranks, network.most_gathered)) {
      // Two alltoalls and two allgathers: an entry goes to who adds it up, and the sum, of all ranks' choices, to all.
      // For a global choice a third allgather, of little.
      const double chosen = share * kDenseEntryBytes / kSparseEntryBytes;
      const double left =
          IsGlobal(compression) ? std::min(chosen, 1.0) : compression::UnionDensity(chosen, network.ranks);
      const double sums = elements * std::min(kDenseEntryBytes, kSparseEntryBytes * left);
      const double gathers = IsGlobal(compression) ? 3 : 2;
      const double latency = network.latency * (2 * network.hosts + gathers * std::bit_width(unsigned(network.hosts)));
      const double scattered = network.most_local * elsewhere / ranks * bytes;
      return encode + 2 * elements * speed.decode + (scattered + sums) / network.bytes_per_second + latency + plain;
    }
    return encode + elements * ranks * speed.decode + elsewhere * bytes / network.bytes_per_second +
           2 * network.latency * std::bit_width(unsigned(network.hosts)) + plain;
  }
  // Each rank sends its slices to the others, and the sums of its own: the latter cross hosts once for each host.
  const double scattered = network.most_local * elsewhere / ranks * (bytes + rest);
  const double gathered = static_cast<double>(network.hosts - 1) / network.hosts * (bytes + rest);
  return elements * (speed.encode * (1 + 1 / ranks) + 2 * speed.decode) +
         (scattered + gathered) / network.bytes_per_second + 2 * network.latency * network.hosts;
}

bool StaysOrTurnsCompressed(bool compressed_now, double compressed_seconds, double dense_seconds) {
  constexpr double kNoReason = 0.1;
  return compressed_seconds < dense_seconds * (compressed_now ? 1 + kNoReason : 1 - kNoReason);
}

CodecSpeed MeasureSpeed(const Compression& compression) {
  constexpr int64_t kSide = 360, kCount = kSide * kSide;
  constexpr int kSamples = 5;
  std::vector<float> gradient(kCount), sum(kCount);
  uint32_t lot = 1;
  for (float& value : gradient) {
    lot = lot * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(lot)) * 0x1p-31f;
  }
  double encode = 1, decode = 1;
  if (const auto* const power = std::get_if<PowerSgd>(&compression)) {
    auto matrix = compression::PowerSgdTensor::Create(*power, kSide, kSide, 1);
    for (int i = 0; i < kSamples && matrix.ok(); ++i) {
      encode = std::min(encode, SecondsOf([&] {
                          matrix->MakeP(gradient);
                          matrix->MakeQ();
                        }));
      decode = std::min(decode, SecondsOf([&] { matrix->Finish(sum); }));
    }
    return {encode / kCount, decode / kCount};
  }
  const auto codec = compression::MakeCodec(compression, kCount);
  compression::Decoder decoder;
  std::vector<std::byte> payload;
  for (int i = 0; i < kSamples && codec.ok(); ++i) {
    encode = std::min(encode, SecondsOf([&] { (*codec)->Encode(gradient, i, payload).IgnoreError(); }));
    decode = std::min(decode, SecondsOf([&] { decoder.DecodeAdd(payload, 1, sum).IgnoreError(); }));
  }
  return {encode / kCount, decode / kCount};
}

}  // namespace gyre::internal
