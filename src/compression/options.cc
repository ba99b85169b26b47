#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gyre/compression.h"

namespace gyre {

namespace {

absl::Status CheckSparsity(double sparsity) {
  if (sparsity >= 0 && sparsity < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sparsity is ", sparsity, "; it must be at least 0 and below 1"));
}

absl::Status Check(const TopK& options) {
  return CheckSparsity(options.sparsity);
}
absl::Status Check(const RandomK& options) {
  return CheckSparsity(options.sparsity);
}
absl::Status Check(const PowerSgd& options) {
  if (options.rank >= 1 && options.rank <= 64) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rank is ", options.rank, "; it must be 1 to 64"));
}
absl::Status Check(const Dgc& options) {
  RETURN_IF_ERROR(CheckSparsity(options.sparsity));
  for (const double sparsity : options.warmup) RETURN_IF_ERROR(CheckSparsity(sparsity));
  if (!(options.momentum >= 0 && options.momentum < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("momentum is ", options.momentum, "; it must be in [0, 1)"));
  }
  if (!(options.clip >= 0 && std::isfinite(options.clip))) {
    return absl::InvalidArgumentError(absl::StrCat("clip is ", options.clip, "; it must be finite and at least 0"));
  }
  if (options.warmup_steps < 0) return absl::InvalidArgumentError("warmup_steps is negative");
  return absl::OkStatus();
}
template <typename Other>
absl::Status Check(const Other& /*has no ranges*/) {
  return absl::OkStatus();
}

constexpr std::array<std::string_view, std::variant_size_v<Compression>> kNames = {
    "none", "fp16", "bf16", "fp8", "int8", "int4", "sign", "ternary", "topk", "randomk", "powersgd", "dgc"};

template <size_t i = 0>
bool MakeNamed(std::string_view name, Compression& made) {
  if constexpr (i < kNames.size()) {
    if (name != kNames[i]) return MakeNamed<i + 1>(name, made);
    made.emplace<i>();
    return true;
  }
  return false;
}

// Takes `number` for what the codec's most important option is. False if it has none.
bool SetNumber(Compression& compression, double number) {
  if (auto* top = std::get_if<TopK>(&compression)) {
    top->sparsity = number;
  } else if (auto* random = std::get_if<RandomK>(&compression)) {
    random->sparsity = number;
  } else if (auto* dgc = std::get_if<Dgc>(&compression)) {
    dgc->sparsity = number;
  } else if (auto* power = std::get_if<PowerSgd>(&compression)) {
    power->rank = number >= 1 && number <= 64 && number == std::floor(number) ? static_cast<int>(number) : 0;
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string_view CompressionName(const Compression& compression) {
  return kNames[compression.index()];
}

absl::Status Validate(const Compression& compression) {
  const absl::Status status = std::visit([](const auto& options) { return Check(options); }, compression);
  return Annotate(status, CompressionName(compression));
}

absl::StatusOr<Compression> ParseCompression(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  Compression compression;
  if (name == "fp8-e5m2") {
    compression = Fp8{.format = Fp8::Format::kE5M2};
  } else if (name == "topk-sampled") {
    compression = TopK{.sampled = true};
  } else if (name == "topk-global") {
    compression = TopK{.global = true};
  } else if (name == "dgc-global") {
    compression = Dgc{.global = true};
  } else if (!MakeNamed(name, compression)) {
    std::string known;
    for (const std::string_view each : kNames) absl::StrAppend(&known, known.empty() ? "" : ", ", ToAbsl(each));
    return absl::InvalidArgumentError(absl::StrCat("'", ToAbsl(name), "' is no compression; there are ", known));
  }
  if (colon != std::string_view::npos) {
    double number = 0;
    const std::string_view digits = text.substr(colon + 1);
    if (!absl::SimpleAtod(ToAbsl(digits), &number) || !std::isfinite(number)) {
      return absl::InvalidArgumentError(absl::StrCat("'", ToAbsl(digits), "' in '", ToAbsl(text), "' is no number"));
    }
    if (!SetNumber(compression, number)) {
      return absl::InvalidArgumentError(absl::StrCat("'", ToAbsl(name), "' takes no number"));
    }
  }
  RETURN_IF_ERROR(Validate(compression));
  return compression;
}

}  // namespace gyre
