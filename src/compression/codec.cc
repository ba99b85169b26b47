#include "compression/codec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compression/dense_codec.h"
#include "compression/dgc.h"
#include "compression/payload.h"
#include "compression/quantize.h"
#include "compression/sparse_codec.h"

namespace gyre::compression {

namespace {

// Of one kind of options each.
struct Maker {
  using Made = absl::StatusOr<std::unique_ptr<Codec>>;

  Made operator()(const NoCompression& /*none*/) const { return Dense(PayloadKind::kF32); }
  Made operator()(const Fp16& /*none*/) const { return Dense(PayloadKind::kF16); }
  Made operator()(const Bf16& /*none*/) const { return Dense(PayloadKind::kBF16); }
  Made operator()(const Fp8& fp8) const {
    return Dense(fp8.format == Fp8::Format::kE4M3 ? PayloadKind::kFp8E4M3 : PayloadKind::kFp8E5M2);
  }
  Made operator()(const Int8& /*none*/) const { return Dense(PayloadKind::kInt8); }
  Made operator()(const Int4& /*none*/) const { return Dense(PayloadKind::kInt4); }
  Made operator()(const Sign& /*none*/) const { return Dense(PayloadKind::kSign); }
  Made operator()(const Ternary& ternary) const { return Dense(PayloadKind::kTernary, ternary.seed); }
  Made operator()(const TopK& top) const { return MakeTopK(top, count, options.link_bytes_per_second); }
  Made operator()(const RandomK& random) const { return MakeRandomK(random, count); }
  Made operator()(const PowerSgd& /*power*/) const {
    return absl::InvalidArgumentError("powersgd is no codec of one payload: it has two factors to be reduced");
  }
  Made operator()(const Dgc& dgc) const {
    return std::make_unique<DgcTensor>(dgc, count, options.link_bytes_per_second);
  }

  Made Dense(PayloadKind kind, uint64_t seed = 0) const { return MakeDenseCodec(kind, count, seed); }

  int64_t count;
  const CodecOptions& options;
};

}  // namespace

absl::Status Codec::EncodeAndClear(std::span<float> gradient, int64_t step, std::vector<std::byte>& out) {
  RETURN_IF_ERROR(Encode(gradient, step, out));
  std::ranges::fill(gradient, 0.0f);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const Compression& compression, int64_t count,
                                                 const CodecOptions& options) {
  RETURN_IF_ERROR(Validate(compression));
  if (count < 0 || count > int64_t{UINT32_MAX}) {
    return absl::InvalidArgumentError(absl::StrCat("a tensor of ", count, " elements; there may be 0 to 2^32 - 1"));
  }
  return std::visit(Maker{count, options}, compression);
}

absl::Status Decoder::DecodeAdd(std::span<const std::byte> bytes, float scale, std::span<float> sum) {
  const auto header = LoadHeader(bytes);
  const auto count = static_cast<int64_t>(sum.size());
  if (!header) return absl::DataLossError("payload: the header is none");
  if (header->kind == PayloadKind::kRandom) return DecodeAddRandom(bytes, scale, sum);
  if (header->kind == PayloadKind::kSparse) {
    RETURN_IF_ERROR(sparse_.Decode(bytes, count));
    const auto indices = sparse_.indices();
    const auto values = sparse_.values();
    for (size_t i = 0; i < indices.size(); ++i) sum[indices[i]] += scale * values[i];
    return absl::OkStatus();
  }
  if (header->count != count) {
    return absl::DataLossError(absl::StrCat("payload: of ", header->count, " elements instead of ", count));
  }
  const size_t expected = kPayloadHeaderBytes + static_cast<size_t>(QuantizedBytes(header->kind, count));
  if (header->detail != 0 || bytes.size() != expected) {
    return absl::DataLossError(absl::StrCat("payload: ", bytes.size(), " bytes instead of ", expected));
  }
  DequantizeAdd(header->kind, bytes.data() + kPayloadHeaderBytes, count, scale, sum.data());
  return absl::OkStatus();
}

}  // namespace gyre::compression
