#include "runtime/compressed_exchange.h"

#include <algorithm>
#include <utility>

#include "runtime/compression_cost.h"

namespace gyre::internal {

namespace {

// Of codecs whose options have no limits of their own: as Dgc's defaults.
constexpr int kMinDimensions = 2;
constexpr int64_t kMinElements = 1024;

// Positions are 32 bits.
constexpr int64_t kMostElements = int64_t{UINT32_MAX};

// The factors must be smaller than the matrix.
bool IsThinned(const PowerSgd& power, const ExchangeTensor& tensor) {
  const int64_t rows = tensor.shape[0], columns = tensor.count / rows;
  return (rows + columns) * power.rank < tensor.count;
}

}  // namespace

bool IsGlobal(const Compression& compression) {
  if (const auto* const dgc = std::get_if<Dgc>(&compression)) return dgc->global;
  const auto* const top = std::get_if<TopK>(&compression);
  return top != nullptr && top->global;
}

bool SplitsSums(const Compression& compression, int ranks, int most_gathered) {
  if (IsGlobal(compression)) return true;
  return ranks > most_gathered && IsSparse(compression) && !std::holds_alternative<RandomK>(compression);
}

bool IsCovered(const Compression& compression, const ExchangeTensor& tensor) {
  if (std::holds_alternative<NoCompression>(compression) || tensor.count > kMostElements) return false;
  const auto* const dgc = std::get_if<Dgc>(&compression);
  const int dimensions = dgc != nullptr ? dgc->min_dimensions : kMinDimensions;
  const int64_t elements = std::max<int64_t>(dgc != nullptr ? dgc->min_elements : kMinElements, 1);
  if (static_cast<int>(tensor.shape.size()) < dimensions || tensor.count < elements) return false;
  if (const auto* const power = std::get_if<PowerSgd>(&compression)) return IsThinned(*power, tensor);
  return dgc == nullptr || std::ranges::none_of(dgc->dense_names, [&](const std::string& part) {
           return tensor.name.find(part) != std::string::npos;
         });
}

absl::StatusOr<std::unique_ptr<CompressedExchange>> MakeCompressedExchange(const Compression& compression,
                                                                           ExchangeSettings settings,
                                                                           std::shared_ptr<CodecDevice> device) {
  if (const auto* const power = std::get_if<PowerSgd>(&compression)) {
    return MakeLowRankExchange(*power, std::move(settings), std::move(device));
  }
  if (IsSparse(compression)) return MakeSparseExchange(compression, std::move(settings), std::move(device));
  return MakeQuantizedExchange(compression, std::move(settings), std::move(device));
}

}  // namespace gyre::internal
