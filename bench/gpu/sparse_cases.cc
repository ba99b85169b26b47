// Cases of sparse payloads, of ResNet-50's number of elements. What they move is little, and lies in the GPU's cache
// from run to run, as it does when it was chosen just before.
#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "compression/codec.h"
#include "compression/sparse.h"
#include "device/gpu_codecs.h"
#include "gpu/cases.h"
#include "gpu/check.h"
#include "gyre/status_macros.h"

namespace gyre::bench::gpu {

namespace {

namespace kernels = device::kernels;

// One tensor's chosen elements, and their payload.
class Sparse {
 public:
  Sparse(Cases& cases, int64_t count, ValueType type) : cases_(cases), count_(count), type_(type) {}

  // One of each of `entries` runs is chosen; their positions go as `code`. Writes the payload once, to learn its size.
  absl::Status Make(int64_t entries, uint8_t code);

  absl::Status Encode() { return cases_.gpu().codecs().EncodeSparse({&encoding_, 1}, values(), cases_.stream()); }
  absl::Status DecodeAdd() { return cases_.gpu().codecs().DecodeAddSparse({&decoding_, 1}, cases_.stream()); }
  absl::Status CheckEncode(const Run& run);
  absl::Status CheckDecodeAdd(const Run& run);

  // Positions and values are read, and what is lost is written: instead of values and, of 16 bits, to the tensor.
  int64_t encoded_bytes() const { return payload_bytes() + entries() * (type_ == ValueType::kF32 ? 12 : 16); }
  int64_t decoded_bytes() const { return payload_bytes() + entries() * 8; }  // sums are read and written

 private:
  int64_t entries() const { return std::ssize(indices_); }
  int64_t payload_bytes() const { return static_cast<int64_t>(decoding_.bytes); }
  kernels::SparseValues values() const { return static_cast<kernels::SparseValues>(type_); }
  std::vector<float> Chosen() const { return Noise(entries(), 3); }
  absl::StatusOr<std::vector<std::byte>> Payload();

  Cases& cases_;
  const int64_t count_;
  const ValueType type_;
  uint8_t code_ = 0;
  std::vector<uint32_t> indices_;
  kernels::SparseEncoding encoding_ = {};
  kernels::SparseDecoding decoding_ = {};
};

absl::Status Sparse::Make(int64_t entries, uint8_t code) {
  code_ = code;
  std::minstd_rand random(1);
  for (int64_t i = 0; i < entries; ++i) {
    const int64_t begin = count_ * i / entries, end = count_ * (i + 1) / entries;
    indices_.push_back(static_cast<uint32_t>(begin + static_cast<int64_t>(random()) % (end - begin)));
  }
  const int64_t most = device::MostSparseBytes(count_, entries, values());
  ASSIGN_OR_RETURN(std::byte* const indices, cases_.Allocate(entries * kFloatBytes));
  ASSIGN_OR_RETURN(std::byte* const chosen, cases_.Allocate(entries * kFloatBytes));
  ASSIGN_OR_RETURN(std::byte* const selected, cases_.Allocate(sizeof(uint32_t)));
  ASSIGN_OR_RETURN(std::byte* const tensor, cases_.Allocate(count_ * kFloatBytes));
  ASSIGN_OR_RETURN(std::byte* const out, cases_.Allocate(most));
  ASSIGN_OR_RETURN(std::byte* const bytes, cases_.Allocate(sizeof(uint64_t)));
  ASSIGN_OR_RETURN(std::byte* const fault, cases_.Allocate(sizeof(uint32_t)));
  RETURN_IF_ERROR(cases_.Put(indices, indices_));
  RETURN_IF_ERROR(cases_.Put(chosen, Chosen()));
  RETURN_IF_ERROR(cases_.Put(selected, std::vector{static_cast<uint32_t>(entries)}));
  encoding_ = {.indices = reinterpret_cast<const uint32_t*>(indices),
               .values = reinterpret_cast<float*>(chosen),
               .selected = reinterpret_cast<const uint32_t*>(selected),
               .count = count_,
               .residual = reinterpret_cast<float*>(tensor),
               .out = out,
               .bytes = reinterpret_cast<uint64_t*>(bytes)};
  RETURN_IF_ERROR(Encode());
  ASSIGN_OR_RETURN(const auto written, cases_.Get<uint64_t>(bytes, 1));
  decoding_ = {.from = out,
               .bytes = written[0],
               .count = count_,
               .sum = reinterpret_cast<float*>(tensor),
               .fault = reinterpret_cast<uint32_t*>(fault),
               .scale = 0.5f};
  return absl::OkStatus();
}

// What lies there, which must be as long as the one that was written first, and of the code that is to be measured.
absl::StatusOr<std::vector<std::byte>> Sparse::Payload() {
  ASSIGN_OR_RETURN(const auto written, cases_.Get<uint64_t>(encoding_.bytes, 1));
  RETURN_IF_ERROR(CheckSame("a payload's size", written, {decoding_.bytes}));
  ASSIGN_OR_RETURN(auto payload, cases_.Get<std::byte>(encoding_.out, payload_bytes()));
  const size_t at = kernels::kSparseHeader + 8;
  if (payload.size() > at && payload[at] == std::byte{code_}) return payload;
  return absl::DataLossError("positions are in another code");
}

absl::Status Sparse::CheckEncode(const Run& run) {
  std::vector<float> left = Chosen();
  RETURN_IF_ERROR(cases_.Put(encoding_.values, left));
  RETURN_IF_ERROR(cases_.Zero(encoding_.out, payload_bytes()));
  RETURN_IF_ERROR(cases_.Zero(encoding_.bytes, sizeof(uint64_t)));
  RETURN_IF_ERROR(cases_.Zero(encoding_.residual, count_ * kFloatBytes));
  RETURN_IF_ERROR(run());
  ASSIGN_OR_RETURN(const auto payload, Payload());
  // The host may choose another code: what is read must be the same.
  std::vector<std::byte> expected;
  compression::EncodeSparse(indices_, left, count_, {.values = type_}, expected);
  compression::SparseDecoder here, there;
  RETURN_IF_ERROR(here.Decode(expected, count_));
  RETURN_IF_ERROR(there.Decode(payload, count_));
  const auto copy = [](const auto& span) { return std::vector(span.begin(), span.end()); };
  RETURN_IF_ERROR(CheckSame("positions", copy(there.indices()), copy(here.indices())));
  RETURN_IF_ERROR(CheckSame("values", copy(there.values()), copy(here.values())));
  ASSIGN_OR_RETURN(const auto lost, cases_.Get<float>(encoding_.values, entries()));
  RETURN_IF_ERROR(CheckSame("what is lost", lost, left));
  std::vector<float> residual(static_cast<size_t>(count_));
  for (size_t i = 0; type_ != ValueType::kF32 && i < left.size(); ++i) residual[indices_[i]] = left[i];
  ASSIGN_OR_RETURN(const auto got, cases_.Get<float>(encoding_.residual, count_));
  return CheckSame("the tensor", got, residual);
}

absl::Status Sparse::CheckDecodeAdd(const Run& run) {
  RETURN_IF_ERROR(cases_.Put(encoding_.values, Chosen()));
  RETURN_IF_ERROR(Encode());
  ASSIGN_OR_RETURN(const auto payload, Payload());
  std::vector<float> expected(static_cast<size_t>(count_));
  RETURN_IF_ERROR(compression::Decoder().DecodeAdd(payload, decoding_.scale, expected));
  RETURN_IF_ERROR(cases_.Zero(decoding_.sum, count_ * kFloatBytes));
  RETURN_IF_ERROR(run());
  ASSIGN_OR_RETURN(const auto fault, cases_.Get<uint32_t>(decoding_.fault, 1));
  RETURN_IF_ERROR(CheckSame("a payload's fault", fault, {uint32_t{kernels::kNoFault}}));
  ASSIGN_OR_RETURN(const auto got, cases_.Get<float>(decoding_.sum, count_));
  return CheckSame("the sum", got, expected);
}

}  // namespace

absl::Status AddSparse(Cases& cases) {
  struct Density {
    const char* name;
    int64_t of;  // one of so many is chosen
    uint8_t code;
  };
  const int64_t count = cases.Scaled(25'600'000);
  for (const Density& density :
       {Density{"0.1 % in blocks", 1000, kernels::kBlocksCode}, Density{"10 % as bitmaps", 10, kernels::kBitmapCode}}) {
    for (const auto& [type, type_name] : {std::pair(ValueType::kF32, "f32"), std::pair(ValueType::kF16, "f16")}) {
      Sparse* const sparse = cases.Keep(std::make_unique<Sparse>(cases, count, type));
      RETURN_IF_ERROR(sparse->Make(count / density.of, density.code));
      const std::string what = absl::StrCat(density.name, " of 25.6 M elements, ", type_name);
      cases.Add({"sparse payloads", absl::StrCat("encode ", what), sparse->encoded_bytes(),
                 [sparse] { return sparse->Encode(); }, [sparse](const Run& run) { return sparse->CheckEncode(run); }});
      cases.Add({"sparse payloads", absl::StrCat("add up ", what), sparse->decoded_bytes(),
                 [sparse] { return sparse->DecodeAdd(); },
                 [sparse](const Run& run) { return sparse->CheckDecodeAdd(run); }});
    }
  }
  return absl::OkStatus();
}

}  // namespace gyre::bench::gpu
