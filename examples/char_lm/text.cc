#include "text.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gyre/status_macros.h"
#include "random.h"
#include "xxhash.h"

namespace char_lm {

namespace {

constexpr char kLicences[] = "/usr/share/common-licenses";

absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), " is a directory"));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (file && file.peek() != std::ifstream::traits_type::eof()) content << file.rdbuf();
  if (!file.is_open() || file.bad()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path.string()));
  return std::move(content).str();
}

void AppendSample(const Corpus& corpus, int context, int64_t target, Samples& samples) {
  const auto first = corpus.symbols.begin() + (target - context);
  std::copy_n(first, context + 1, samples.symbols.begin() + static_cast<int64_t>(samples.count) * (context + 1));
  ++samples.count;
}

void Clear(int64_t room, int context, Samples& samples) {
  samples.count = 0;
  samples.symbols.resize(static_cast<size_t>(room) * (context + 1));
}

}  // namespace

absl::StatusOr<std::string> ReadText(const std::string& path) {
  if (!path.empty()) return ReadFile(path);
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kLicences, error)) {
    if (!entry.is_symlink(error) && entry.is_regular_file(error)) files.push_back(entry.path());
  }
  if (files.empty()) return absl::NotFoundError(absl::StrCat("no licence texts in ", kLicences, "; give --text FILE"));
  std::sort(files.begin(), files.end());
  std::string text;
  for (const auto& file : files) {
    ASSIGN_OR_RETURN(const std::string content, ReadFile(file));
    text += content;
  }
  return text;
}

absl::StatusOr<Corpus> MakeCorpus(std::string_view text, double heldout_fraction, int context) {
  const auto size = static_cast<int64_t>(text.size());
  const auto share = static_cast<int64_t>(static_cast<double>(size) * heldout_fraction);
  Corpus corpus;
  corpus.training = size - std::clamp<int64_t>(share, 1, kMaxHeldout);
  if (corpus.training <= context) {
    return absl::InvalidArgumentError(absl::StrCat("the text has ", size, " characters, of which ",
                                                   std::max<int64_t>(corpus.training, 0),
                                                   " are to be trained on; at least ", context + 1, " are needed"));
  }
  std::array<bool, 256> occurs = {};
  for (const char c : text) occurs[static_cast<uint8_t>(c)] = true;
  std::array<uint8_t, 256> symbol_of = {};
  for (int c = 0; c < 256; ++c) {
    if (!occurs[c]) continue;
    symbol_of[c] = static_cast<uint8_t>(corpus.alphabet.size());
    corpus.alphabet.push_back(static_cast<char>(c));
  }
  corpus.symbols.resize(text.size());
  std::transform(text.begin(), text.end(), corpus.symbols.begin(),
                 [&](char c) { return symbol_of[static_cast<uint8_t>(c)]; });
  corpus.hash = XXH3_64bits_withSeed(text.data(), text.size(), static_cast<uint64_t>(corpus.training));
  return corpus;
}

Range Shard(int64_t count, int rank, int size) {
  const int64_t least = count / size, more = count % size;  // the first `more` ranks have one more
  const int64_t first = rank * least + std::min<int64_t>(rank, more);
  return {first, first + least + (rank < more ? 1 : 0)};
}

void DrawSamples(const Corpus& corpus, int context, uint64_t seed, int64_t step, Range range, Samples& samples) {
  Clear(range.size(), context, samples);
  const auto choices = static_cast<uint64_t>(corpus.training - context);
  for (int64_t i = range.first; i < range.last; ++i) {
    const uint64_t choice = RandomBelow(choices, seed, static_cast<uint64_t>(step), static_cast<uint64_t>(i));
    AppendSample(corpus, context, context + static_cast<int64_t>(choice), samples);
  }
}

void TakeSamples(const Corpus& corpus, int context, Range positions, Samples& samples) {
  Clear(positions.size(), context, samples);
  for (int64_t p = positions.first; p < positions.last; ++p) AppendSample(corpus, context, p, samples);
}

}  // namespace char_lm
