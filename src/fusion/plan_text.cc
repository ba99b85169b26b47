// Plans as text:
//
//   gyre-plan 1 <tensors> <buckets>
//   tensor <dtype> <elements> <name, escaped as in C>      one line a tensor
//   bucket <tensor> <tensor> ...                           one line a bucket; its layout follows from its tensors
//   turn <bucket> <first element> <elements>               one line a turn, where a plan has turns: its first line is
//                                                          then "gyre-plan 2 <tensors> <buckets> <turns>"
//   end <xxh3 of all before this line, in hexadecimal>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "fusion/plan.h"
#include "xxhash.h"

namespace gyre::fusion {

namespace {

// No sum of so many tensors of so many elements leaves 64 bits.
constexpr int64_t kMostTensors = 1 << 20;
constexpr int64_t kMostTurns = 2 * kMostTensors;

absl::Status Bad(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("not a saved plan: ", what));
}

std::string Checksum(absl::string_view text) {
  return absl::StrCat(absl::Hex(XXH3_64bits(text.data(), text.size()), absl::kZeroPad16));
}

bool ParseNumber(absl::string_view text, int64_t most, int64_t& number) {
  return absl::SimpleAtoi(text, &number) && number >= 0 && number <= most;
}

// Takes lines off the front of a text.
class Lines {
 public:
  explicit Lines(absl::string_view text) : rest_(text) {}

  // The next line's words, at most `most`: the last one has the line's rest.
  absl::StatusOr<std::vector<absl::string_view>> Next(absl::string_view first_word, int most) {
    const size_t end = rest_.find('\n');
    if (end == absl::string_view::npos) return Bad("it ends early");
    std::vector<absl::string_view> words = absl::StrSplit(rest_.substr(0, end), absl::MaxSplits(' ', most - 1));
    rest_.remove_prefix(end + 1);
    if (words[0] != first_word) return Bad(absl::StrCat("no line that begins with \"", first_word, "\" in its place"));
    words.erase(words.begin());
    return words;
  }

  bool done() const { return rest_.empty(); }

 private:
  absl::string_view rest_;
};

absl::StatusOr<TensorInfo> ReadTensor(Lines& lines) {
  ASSIGN_OR_RETURN(const auto words, lines.Next("tensor", 4));
  if (words.size() != 3) return Bad("a tensor without dtype, elements and name");
  TensorInfo tensor;
  const auto dtype = ParseDType({words[0].data(), words[0].size()});
  if (!dtype) return Bad(absl::StrCat("unknown dtype \"", absl::CHexEscape(words[0].substr(0, 16)), "\""));
  tensor.dtype = *dtype;
  if (!ParseNumber(words[1], kMostElements, tensor.count)) return Bad("a tensor's number of elements");
  if (!absl::CUnescape(words[2], &tensor.name)) return Bad("a tensor's name");
  return tensor;
}

absl::StatusOr<Bucket> ReadBucket(Lines& lines, const std::vector<TensorInfo>& tensors, std::vector<bool>& seen) {
  ASSIGN_OR_RETURN(const auto words, lines.Next("bucket", std::numeric_limits<int>::max()));
  if (words.empty()) return Bad("an empty bucket");
  std::vector<int> members;
  for (const absl::string_view word : words) {
    int64_t index = 0;
    if (!ParseNumber(word, std::ssize(tensors) - 1, index)) return Bad("a bucket with a tensor that does not exist");
    const auto at = static_cast<size_t>(index);
    if (seen[at]) return Bad("a tensor in two places");
    seen[at] = true;
    if (!members.empty() && tensors[at].dtype != tensors[static_cast<size_t>(members[0])].dtype) {
      return Bad("a bucket of several dtypes");
    }
    members.push_back(static_cast<int>(index));
  }
  return MakeBucket(tensors, std::move(members));
}

absl::StatusOr<Turn> ReadTurn(Lines& lines, const Plan& plan) {
  ASSIGN_OR_RETURN(const auto words, lines.Next("turn", 4));
  int64_t bucket = 0;
  Turn turn;
  if (words.size() != 3 || !ParseNumber(words[0], std::ssize(plan.buckets) - 1, bucket) ||
      !ParseNumber(words[1], kMostTensors * kMostElements, turn.begin) ||
      !ParseNumber(words[2], kMostTensors * kMostElements, turn.count)) {
    return Bad("a turn's numbers");
  }
  turn.bucket = static_cast<int>(bucket);
  return turn;
}

}  // namespace

std::string ToText(const SavedPlan& saved) {
  const bool has_turns = !saved.plan.turns.empty();
  std::string text =
      absl::StrCat("gyre-plan ", has_turns ? 2 : 1, " ", saved.tensors.size(), " ", saved.plan.buckets.size());
  absl::StrAppend(&text, has_turns ? absl::StrCat(" ", saved.plan.turns.size()) : "", "\n");
  for (const TensorInfo& tensor : saved.tensors) {
    absl::StrAppend(&text, "tensor ", ToAbsl(DTypeName(tensor.dtype)), " ", tensor.count, " ",
                    absl::CHexEscape(tensor.name), "\n");
  }
  for (const Bucket& bucket : saved.plan.buckets) {
    absl::StrAppend(&text, "bucket");
    for (const int tensor : bucket.tensors) absl::StrAppend(&text, " ", tensor);
    absl::StrAppend(&text, "\n");
  }
  for (const Turn& turn : saved.plan.turns) {
    absl::StrAppend(&text, "turn ", turn.bucket, " ", turn.begin, " ", turn.count, "\n");
  }
  return absl::StrCat(text, "end ", Checksum(text), "\n");
}

absl::StatusOr<SavedPlan> FromText(std::string_view text) {
  const absl::string_view all = ToAbsl(text);
  const size_t end = all.rfind("end ");
  if (end == absl::string_view::npos) return Bad("it has no end");
  if (all.substr(end) != absl::StrCat("end ", Checksum(all.substr(0, end)), "\n")) return Bad("its checksum differs");
  Lines lines(all.substr(0, end));
  ASSIGN_OR_RETURN(const auto head, lines.Next("gyre-plan", 5));
  int64_t tensors = 0, buckets = 0, turns = 0;
  const bool has_turns = head.size() == 4 && head[0] == "2";
  if (!has_turns && (head.size() != 3 || head[0] != "1")) return Bad("another version than 1 or 2");
  if (!ParseNumber(head[1], kMostTensors, tensors) || !ParseNumber(head[2], tensors, buckets) ||
      (has_turns && !ParseNumber(head[3], kMostTurns, turns))) {
    return Bad("its numbers of tensors, buckets and turns");
  }
  SavedPlan saved;
  for (int64_t i = 0; i < tensors; ++i) {
    ASSIGN_OR_RETURN(TensorInfo tensor, ReadTensor(lines));
    saved.tensors.push_back(std::move(tensor));
  }
  std::vector<bool> seen(saved.tensors.size());
  for (int64_t i = 0; i < buckets; ++i) {
    ASSIGN_OR_RETURN(Bucket bucket, ReadBucket(lines, saved.tensors, seen));
    saved.plan.buckets.push_back(std::move(bucket));
  }
  for (int64_t i = 0; i < turns; ++i) {
    ASSIGN_OR_RETURN(const Turn turn, ReadTurn(lines, saved.plan));
    saved.plan.turns.push_back(turn);
  }
  if (!lines.done()) return Bad("more lines than it says");
  for (size_t i = 0; i < seen.size(); ++i) {
    if (!seen[i]) return Bad(absl::StrCat("tensor ", i, " is in no bucket"));
  }
  if (!HasRightTurns(saved.plan)) return Bad("turns that are not of all buckets, each from its beginning to its end");
  return saved;
}

}  // namespace gyre::fusion
