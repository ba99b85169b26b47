#include "fusion/registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace gyre::fusion {

namespace {

// Of a line of Describe: "name"<tab>signature.
std::pair<absl::string_view, absl::string_view> SplitLine(absl::string_view line) {
  return absl::StrSplit(line, absl::MaxSplits('\t', 1));
}

std::string HasButNot(absl::string_view line, int with, int without) {
  const auto [name, signature] = SplitLine(line);
  return absl::StrCat("rank ", with, " has \"", name, "\" (", signature, "), rank ", without, " has not");
}

}  // namespace

bool IsGradientDType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 || dtype == DType::kBF16;
}

absl::StatusOr<int> Registry::Add(std::string_view name, std::span<const int64_t> shape, DType dtype) {
  const std::string quoted = absl::StrCat("\"", absl::CHexEscape(ToAbsl(name)), "\"");
  if (!IsGradientDType(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient ", quoted, " cannot be of ", ToAbsl(DTypeName(dtype)), ": f32, f64, f16 or bf16"));
  }
  int64_t count = 1, without_zeros = 1;  // the latter bounds any part of the shape, such as a row
  for (const int64_t dimension : shape) {
    if (dimension < 0 || (dimension > 0 && without_zeros > kMostElements / dimension)) {
      return absl::InvalidArgumentError(
          absl::StrCat("gradient ", quoted, " of shape [", absl::StrJoin(shape, ", "),
                       "]: dimensions must be 0 or more, and those above 0 multiply to at most 2^40"));
    }
    count *= dimension;
    without_zeros *= std::max<int64_t>(dimension, 1);
  }
  if (by_name_.contains(name))
    return absl::InvalidArgumentError(absl::StrCat("there is a gradient ", quoted, " already"));
  const int index = size();
  std::string signature = absl::StrCat(ToAbsl(DTypeName(dtype)), " [", absl::StrJoin(shape, ", "), "]");
  Entry entry{{std::string(name), count, dtype}, {shape.begin(), shape.end()}, std::move(signature), index};
  const auto [at, added] = by_name_.try_emplace(std::string(name), std::move(entry));
  by_index_.push_back(&at->second);
  return index;
}

absl::StatusOr<int> Registry::AddRows(std::string_view name, std::span<const int64_t> shape, DType dtype) {
  if (shape.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient \"", absl::CHexEscape(ToAbsl(name)), "\" has no dimensions, and so no rows"));
  }
  ASSIGN_OR_RETURN(const int index, Add(name, shape, dtype));
  Entry& entry = by_name_.find(name)->second;
  entry.tensor.count = 0;
  entry.signature += " by rows";
  return index;
}

std::vector<TensorInfo> Registry::Tensors() const {
  std::vector<TensorInfo> tensors;
  for (const auto& [name, entry] : by_name_) tensors.push_back(entry.tensor);
  return tensors;
}

std::vector<std::vector<int64_t>> Registry::Shapes() const {
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& [name, entry] : by_name_) shapes.push_back(entry.shape);
  return shapes;
}

std::vector<int> Registry::Places() const {
  std::vector<int> places(by_index_.size());
  int place = 0;
  for (const auto& [name, entry] : by_name_) places[static_cast<size_t>(entry.index)] = place++;
  return places;
}

std::string Registry::Describe(std::string_view options) const {
  std::string text(options);
  for (const auto& [name, entry] : by_name_) {
    absl::StrAppend(&text, "\n", absl::CHexEscape(name), "\t", entry.signature);
  }
  return text;
}

std::string Difference(std::string_view one, int one_rank, std::string_view other, int other_rank) {
  const std::vector<absl::string_view> ones = absl::StrSplit(ToAbsl(one), '\n');
  const std::vector<absl::string_view> others = absl::StrSplit(ToAbsl(other), '\n');
  if (ones[0] != others[0]) {
    return absl::StrCat("rank ", one_rank, " has \"", ones[0], "\", rank ", other_rank, " has \"", others[0], "\"");
  }
  size_t at = 1;
  while (at < ones.size() && at < others.size() && ones[at] == others[at]) ++at;
  if (at == ones.size() && at == others.size()) return "there is no difference";
  if (at == ones.size()) return HasButNot(others[at], other_rank, one_rank);
  if (at == others.size()) return HasButNot(ones[at], one_rank, other_rank);
  const auto [one_name, one_signature] = SplitLine(ones[at]);
  const auto [other_name, other_signature] = SplitLine(others[at]);
  if (one_name == other_name) {
    return absl::StrCat("\"", one_name, "\" is ", one_signature, " on rank ", one_rank, " and ", other_signature,
                        " on rank ", other_rank);
  }
  // Of two lists of different names in order, the one that comes first is missing in the other list.
  const bool one_first = std::ranges::find_if(others.begin() + 1, others.end(), [name = one_name](auto line) {
                           return SplitLine(line).first == name;
                         }) == others.end();
  return one_first ? HasButNot(ones[at], one_rank, other_rank) : HasButNot(others[at], other_rank, one_rank);
}

absl::Status CheckPlanFits(const SavedPlan& saved, std::span<const TensorInfo> tensors) {
  const auto named = [](const TensorInfo& tensor) {
    return absl::StrCat("\"", absl::CHexEscape(tensor.name), "\" (", ToAbsl(DTypeName(tensor.dtype)), ", ",
                        tensor.count, " elements)");
  };
  const size_t both = std::min(saved.tensors.size(), tensors.size());
  for (size_t i = 0; i < both; ++i) {
    if (saved.tensors[i] == tensors[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat("the saved plan is for other gradients: it has ",
                                                   named(saved.tensors[i]), ", this reducer ", named(tensors[i])));
  }
  if (saved.tensors.size() == tensors.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the saved plan is for ", saved.tensors.size(), " gradients, this reducer has ", tensors.size()));
}

}  // namespace gyre::fusion
