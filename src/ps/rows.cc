#include "ps/rows.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::ps {

namespace {

constexpr size_t kIdBytes = sizeof(int64_t), kWord = sizeof(float);
constexpr size_t kIdWords = kIdBytes / kWord;

void PutId(std::span<float> words, size_t index, int64_t id) {
  std::memcpy(words.data() + kIdWords * index, &id, kIdBytes);
}

// An id and where it was.
using Place = std::pair<int64_t, size_t>;

// In rising order; equal ids as they came.
absl::StatusOr<std::vector<Place>> InOrder(const Table& table, std::span<const int64_t> ids) {
  std::vector<Place> places;
  places.reserve(ids.size());
  for (const int64_t id : ids) {
    if (id < 0 || id >= table.rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", table.name, " of ", table.rows, " rows has no row ", id));
    }
    places.emplace_back(id, places.size());
  }
  std::ranges::sort(places);
  return places;
}

absl::Status CheckFits(const Table& table, size_t rows, int server) {
  if (static_cast<int64_t>(1 + rows * (kIdWords + static_cast<size_t>(table.columns))) <= kMostRowWords) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("table ", table.name, ": ", rows, " different rows for server ",
                                                 server, " are more than the ", kMostRowWords * 4 >> 20,
                                                 " MiB that go at once"));
}

}  // namespace

std::optional<size_t> CountIds(Bytes ids, const Table& table) {
  if (ids.size() % kIdBytes != 0) return std::nullopt;
  const size_t count = ids.size() / kIdBytes;
  int64_t before = -1;
  for (size_t i = 0; i < count; ++i) {
    const int64_t id = IdAt(ids, i);
    if (id <= before || id >= table.rows) return std::nullopt;
    before = id;
  }
  return count;
}

int64_t IdAt(Bytes ids, size_t index) {
  int64_t id;
  std::memcpy(&id, ids.data() + index * kIdBytes, kIdBytes);
  return id;
}

bool AreRows(Bytes words, const Table& table) {
  uint32_t count;
  if (words.size() < sizeof(count)) return false;
  std::memcpy(&count, words.data(), sizeof(count));
  const size_t row = kIdBytes + static_cast<size_t>(table.columns) * kWord;
  if ((words.size() - kWord) % row != 0 || (words.size() - kWord) / row != count) return false;
  return CountIds(words.subspan(kWord, count * kIdBytes), table).has_value();
}

RowsReader::RowsReader(std::span<const float> words, int64_t columns) : columns_(static_cast<size_t>(columns)) {
  uint32_t count;
  std::memcpy(&count, words.data(), sizeof(count));
  count_ = count;
  ids_ = std::as_bytes(words.subspan(1, kIdWords * count_));
  values_ = words.subspan(1 + kIdWords * count_);
}

Floats NoRows() {
  Floats none(1);
  none.writable()[0] = 0;  // whose bits are those of the number 0
  return none;
}

absl::StatusOr<std::vector<Floats>> PackRows(const Table& table, int servers, std::span<const int64_t> ids,
                                             std::span<const float> gradients) {
  const auto columns = static_cast<size_t>(table.columns);
  if (gradients.size() != ids.size() * columns) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table.name, ": ", gradients.size(), " gradients for ",
                                                   ids.size(), " rows of ", columns));
  }
  ASSIGN_OR_RETURN(const std::vector<Place> places, InOrder(table, ids));
  const uint64_t key = KeyOf(table);
  std::vector<size_t> counts(static_cast<size_t>(servers)), filled(counts.size());
  std::vector<int> holders;  // of each different id
  for (size_t i = 0; i < places.size(); ++i) {
    if (i > 0 && places[i].first == places[i - 1].first) continue;
    holders.push_back(ServerOf(key, places[i].first, servers));
    ++counts[static_cast<size_t>(holders.back())];
  }
  std::vector<Floats> packed;
  for (size_t server = 0; server < counts.size(); ++server) {
    RETURN_IF_ERROR(CheckFits(table, counts[server], static_cast<int>(server)));
    packed.emplace_back(1 + counts[server] * (kIdWords + columns));
    const auto count = static_cast<uint32_t>(counts[server]);
    std::memcpy(packed.back().writable().data(), &count, sizeof(count));
  }
  size_t next = 0;
  for (size_t i = 0; i < places.size(); ++next) {
    const auto server = static_cast<size_t>(holders[next]);
    const std::span<float> words = packed[server].writable().subspan(1);
    const size_t at = filled[server]++;
    const int64_t id = places[i].first;
    PutId(words, at, id);
    const std::span<float> sum = words.subspan(kIdWords * counts[server] + at * columns, columns);
    std::memcpy(sum.data(), gradients.data() + places[i].second * columns, columns * kWord);
    for (++i; i < places.size() && places[i].first == id; ++i) {
      const float* const more = gradients.data() + places[i].second * columns;
      for (size_t c = 0; c < columns; ++c) sum[c] += more[c];
    }
  }
  return packed;
}

absl::StatusOr<RowRequest> RowRequest::Create(const Table& table, int servers, std::span<const int64_t> ids) {
  ASSIGN_OR_RETURN(const std::vector<Place> places, InOrder(table, ids));
  const uint64_t key = KeyOf(table);
  RowRequest request;
  request.columns_ = static_cast<size_t>(table.columns);
  request.places_.resize(ids.size());
  std::vector<std::vector<int64_t>> by_server(static_cast<size_t>(servers));
  for (size_t i = 0; i < places.size(); ++i) {
    const auto [id, place] = places[i];
    if (i > 0 && places[i - 1].first == id) {
      request.places_[place] = request.places_[places[i - 1].second];
      continue;
    }
    const int server = ServerOf(key, id, servers);
    std::vector<int64_t>& own = by_server[static_cast<size_t>(server)];
    request.places_[place] = {server, own.size()};
    own.push_back(id);
  }
  for (int server = 0; server < servers; ++server) {
    const std::vector<int64_t>& own = by_server[static_cast<size_t>(server)];
    RETURN_IF_ERROR(CheckFits(table, own.size(), server));
    request.ids_.push_back(Floats::CopyOf(std::as_bytes(std::span(own))));
  }
  return request;
}

void RowRequest::Spread(std::span<const Floats> answers, std::span<float> values) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    const auto [server, index] = places_[i];
    const std::span<const float> row = answers[static_cast<size_t>(server)].span().subspan(index * columns_, columns_);
    std::memcpy(values.data() + i * columns_, row.data(), row.size_bytes());
  }
}

}  // namespace gyre::ps
