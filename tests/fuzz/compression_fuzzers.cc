// Payloads of gradients: decoders must add what was encoded, or refuse and leave the sum alone.
#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "compression/codec.h"
#include "compression/index_code.h"
#include "compression/payload.h"
#include "fuzzers.h"
#include "net/bytes.h"

namespace gyre::fuzz {

namespace {

using compression::Codec;
using compression::Decoder;

constexpr const char* kCodecs[] = {"none",    "fp16", "bf16",         "fp8",     "int8",    "int4",   "sign",
                                   "ternary", "topk", "topk-sampled", "randomk", "dgc:0.5", "dgc:0.9"};

std::string Payload(Mutator& random, int64_t count) {
  const auto options = ParseCompression(kCodecs[random.Below(std::size(kCodecs))]).value();
  const std::unique_ptr<Codec> codec = compression::MakeCodec(options, count).value();
  std::vector<float> gradient(static_cast<size_t>(count));
  for (float& value : gradient) value = static_cast<float>(static_cast<int32_t>(random.Number()));
  std::vector<std::byte> payload;
  if (!codec->Encode(gradient, static_cast<int64_t>(random.Below(100)), payload).ok()) return "";
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(
      a, b, {}, [](float x) { return std::bit_cast<uint32_t>(x); }, [](float x) { return std::bit_cast<uint32_t>(x); });
}

}  // namespace

std::string FuzzPayload(Mutator& random) {
  const auto count = static_cast<int64_t>(random.OneIn(10) ? random.Below(70'000) : random.Below(600));
  std::string bytes = Payload(random, count);
  const bool valid = random.OneIn(4);
  // Of another size, too, as long as the header says so: then what lies behind it is reached.
  if (!valid) {
    const std::string header = bytes.substr(0, compression::kPayloadHeaderBytes);
    bytes = random.Mutated(std::move(bytes));
    if (random.OneIn(2)) bytes.replace(0, std::min(bytes.size(), header.size()), header);
  }
  const std::vector<float> before(static_cast<size_t>(count), 1.0f);
  std::vector<float> sum = before;
  absl::Status status;
  const int64_t peak = PeakBytes([&] { status = Decoder().DecodeAdd(AsBytes(bytes), 1, sum); });
  const int64_t allowed = (int64_t{4} << 10) + 8 * static_cast<int64_t>(bytes.size());
  if (peak > allowed) return "took " + std::to_string(peak) + " bytes, " + std::to_string(allowed) + " are allowed";
  if (status.ok()) return "";
  if (valid) return "refused what is valid: " + std::string(status.message());
  if (!absl::IsDataLoss(status)) return "refused with another status";
  return SameBits(sum, before) ? "" : "changed the sum, and refused";
}

// Positions that are accepted are the ones that the bytes stand for: encoding them again gives the same bytes.
std::string FuzzIndexCode(Mutator& random) {
  const auto range = static_cast<uint32_t>(1 + random.Below(random.OneIn(10) ? 200'000 : 500));
  std::vector<uint32_t> indices;
  for (uint64_t at = random.Below(range); at < range; at += 1 + random.Below(1 + range / 8)) {
    indices.push_back(static_cast<uint32_t>(at));
  }
  const auto code = static_cast<compression::IndexCode>(random.Below(compression::kIndexCodeCount));
  const int parameter = compression::IndexParameter(code, static_cast<int64_t>(indices.size()), range);
  std::vector<std::byte> encoded;
  compression::EncodeIndices(code, parameter, indices, range, encoded);
  std::string bytes(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  const bool valid = random.OneIn(4);
  if (!valid) bytes = random.Mutated(std::move(bytes));
  std::vector<uint32_t> decoded(indices.size());
  if (!compression::DecodeIndices(code, parameter, AsBytes(bytes), range, decoded)) {
    return valid ? "refused what is valid" : "";
  }
  if (valid && decoded != indices) return "decoded other positions";
  std::vector<std::byte> again;
  compression::EncodeIndices(code, parameter, decoded, range, again);
  return std::ranges::equal(again, AsBytes(bytes)) ? "" : "two encodings of the same positions";
}

}  // namespace gyre::fuzz
