#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "compression.h"
#include "compression/codec.h"
#include "gyre/compression.h"
#include "gyre/status_macros.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "noise.h"

namespace gyre::bench {

namespace {

// Bytes that a rank sends of one step's gradients.
struct Sent {
  int64_t paper = 0;  // Lin et al. 2018: a value of 32 bits and a run of 16 for each entry; 1-D gradients as they are
  int64_t f32 = 0, f16 = 0;  // ours: values of 32 and 16 bits, and 1-D gradients of the same width
  int64_t f16_plain = 0;     // values of 16 bits, 1-D gradients as they are: what a GradientReducer does
};

// What a codec makes of noise: of what else does not matter, as positions cost what they cost for any that are spread.
absl::StatusOr<int64_t> PayloadBytes(std::span<const float> gradient, ValueType values, double sparsity, double link) {
  const Dgc dgc{.sparsity = sparsity, .values = values};
  ASSIGN_OR_RETURN(const auto codec,
                   compression::MakeCodec(dgc, static_cast<int64_t>(gradient.size()), {.link_bytes_per_second = link}));
  std::vector<std::byte> payload;
  RETURN_IF_ERROR(codec->Encode(gradient, 1, payload));
  return static_cast<int64_t>(payload.size());
}

absl::StatusOr<Sent> SentOf(const Model& model, const CompressionOptions& options) {
  const Dgc limits;
  const double link = options.link * 1e9 / 8;
  Sent sent;
  std::vector<float> noise;
  for (const Parameter& each : model.parameters) {
    const int64_t count = each.count();
    if (static_cast<int>(each.shape.size()) < limits.min_dimensions || count < limits.min_elements) {
      for (int64_t* bytes : {&sent.paper, &sent.f32, &sent.f16_plain}) *bytes += 4 * count;
      sent.f16 += 2 * count;
      continue;
    }
    noise.resize(static_cast<size_t>(count));
    FillNormal(noise, static_cast<uint64_t>(count));
    sent.paper += 6 * compression::KeptCount(options.sparsity, count);
    ASSIGN_OR_RETURN(const int64_t f32, PayloadBytes(noise, ValueType::kF32, options.sparsity, link));
    ASSIGN_OR_RETURN(const int64_t f16, PayloadBytes(noise, ValueType::kF16, options.sparsity, link));
    sent.f32 += f32;
    sent.f16 += f16;
    sent.f16_plain += f16;
  }
  return sent;
}

}  // namespace

absl::Status MeasureModels(const CompressionOptions& options, std::FILE* json) {
  absl::PrintF("# the sender's ratio: float32 gradients over what a rank sends of them, at a sparsity of %g\n",
               options.sparsity);
  absl::PrintF("#%-11s %12s %10s %10s %10s %22s\n", "model", "elements", "paper's", "f32", "f16",
               "f16, 1-D as they are");
  for (const std::string_view name : ModelNames()) {
    ASSIGN_OR_RETURN(const Model model, MakeModel(name));
    ASSIGN_OR_RETURN(const Sent sent, SentOf(model, options));
    const auto ratio = [bytes = 4.0 * static_cast<double>(model.count())](int64_t part) {
      return bytes / static_cast<double>(part);
    };
    absl::PrintF("%-12s %12d %10.1f %10.1f %10.1f %22.1f\n", model.name, model.count(), ratio(sent.paper),
                 ratio(sent.f32), ratio(sent.f16), ratio(sent.f16_plain));
    if (json == nullptr) continue;
    const nlohmann::ordered_json line = {{"lib", "gyre"},
                                         {"op", "dgc_model"},
                                         {"model", model.name},
                                         {"elements", model.count()},
                                         {"sparsity", options.sparsity},
                                         {"ratio_paper", ratio(sent.paper)},
                                         {"ratio_f32", ratio(sent.f32)},
                                         {"ratio_f16", ratio(sent.f16)},
                                         {"ratio_f16_plain", ratio(sent.f16_plain)}};
    absl::FPrintF(json, "%s\n", line.dump());
  }
  return absl::OkStatus();
}

}  // namespace gyre::bench
