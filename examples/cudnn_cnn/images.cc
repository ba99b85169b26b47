#include "images.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numbers>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gyre/status_macros.h"
#include "random.h"

namespace cudnn_cnn {

namespace {

constexpr int kClasses = 10, kColours = 3;

struct Idx {
  std::vector<int64_t> dimensions;
  std::vector<uint8_t> data;
};

absl::Status Wrong(const std::string& file, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", what));
}

absl::StatusOr<std::vector<uint8_t>> ReadAll(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return absl::ErrnoToStatus(errno, file);
  std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (stream.bad()) return absl::ErrnoToStatus(errno, file);
  return bytes;
}

absl::StatusOr<Idx> ReadIdxFile(const std::string& file) {
  ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadAll(file));
  if (bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) return Wrong(file, "is compressed: gunzip it first");
  if (bytes.size() < 4 || bytes[0] != 0 || bytes[1] != 0) return Wrong(file, "is no IDX file");
  if (bytes[2] != 8) return Wrong(file, absl::StrCat("has elements of type ", bytes[2], ", not bytes (8)"));
  const size_t rank = bytes[3], header = 4 + 4 * rank;
  if (bytes.size() < header) return absl::DataLossError(absl::StrCat(file, ": ends within its header"));
  Idx idx;
  uint64_t elements = 1;
  for (size_t at = 4; at < header; at += 4) {
    const uint32_t size = uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 | uint32_t{bytes[at + 2]} << 8 |
                          uint32_t{bytes[at + 3]};
    idx.dimensions.push_back(size);
    // Beyond what any file here can have, and far from overflowing.
    elements = std::min<uint64_t>(elements * std::min<uint64_t>(size, uint64_t{1} << 31), uint64_t{1} << 32);
  }
  if (bytes.size() - header != elements) {
    return absl::DataLossError(
        absl::StrCat(file, ": has ", bytes.size() - header, " bytes of data, and its header says ", elements));
  }
  idx.data.assign(bytes.begin() + static_cast<int64_t>(header), bytes.end());
  return idx;
}

void DrawImage(uint64_t seed, int index, int side, uint8_t* pixels, int32_t& label) {
  Random random(seed, static_cast<uint64_t>(index));
  label = static_cast<int32_t>(random.Below(kClasses));
  const double turn = static_cast<double>(label) / kClasses;
  const double angle = std::numbers::pi * turn, wave = 2 * std::numbers::pi / 6;  // of 6 pixels
  const double across = wave * std::cos(angle), down = wave * std::sin(angle);
  const double phase = 2 * std::numbers::pi * random.Uniform();
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      for (int colour = 0; colour < kColours; ++colour) {
        const double value = std::sin(across * x + down * y + phase + 4 * std::numbers::pi * turn * colour);
        const double noise = 1.5 * (random.Uniform() + random.Uniform() + random.Uniform() + random.Uniform() - 2);
        *pixels++ = static_cast<uint8_t>(std::clamp(std::lround(128 + 40 * (value + noise)), 0L, 255L));
      }
    }
  }
}

}  // namespace

Images GenerateImages(uint64_t seed, int count, int side) {
  Images images{.count = count,
                .height = side,
                .width = side,
                .channels = kColours,
                .classes = kClasses,
                .pixels = {},
                .labels = {}};
  const size_t bytes = static_cast<size_t>(side) * static_cast<size_t>(side) * kColours;
  images.pixels.resize(bytes * static_cast<size_t>(count));
  images.labels.resize(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    DrawImage(seed, i, side, &images.pixels[at * bytes], images.labels[at]);
  }
  return images;
}

absl::StatusOr<Images> ReadIdx(const std::string& image_file, const std::string& label_file) {
  ASSIGN_OR_RETURN(Idx pixels, ReadIdxFile(image_file));
  ASSIGN_OR_RETURN(const Idx labels, ReadIdxFile(label_file));
  const std::vector<int64_t>& sizes = pixels.dimensions;
  if (sizes.size() != 3 && sizes.size() != 4)
    return Wrong(image_file, absl::StrCat("has ", sizes.size(), " dimensions"));
  if (labels.dimensions.size() != 1) return Wrong(label_file, "has not one dimension");
  if (sizes[0] != labels.dimensions[0]) {
    return Wrong(label_file, absl::StrCat("has ", labels.dimensions[0], " labels of ", sizes[0], " images"));
  }
  const int64_t channels = sizes.size() == 4 ? sizes[3] : 1;
  if (sizes[0] == 0 || std::min(sizes[1], sizes[2]) < 8 || std::max(sizes[1], sizes[2]) > 512 || channels < 1 ||
      channels > 8) {
    return Wrong(image_file, "needs images of 8 to 512 pixels each way, and 1 to 8 channels");
  }
  Images images{.count = static_cast<int>(sizes[0]),
                .height = static_cast<int>(sizes[1]),
                .width = static_cast<int>(sizes[2]),
                .channels = static_cast<int>(channels),
                .classes = 1 + *std::ranges::max_element(labels.data),
                .pixels = std::move(pixels.data),
                .labels = {labels.data.begin(), labels.data.end()}};
  return images;
}

Sampler::Sampler(uint64_t seed, int count, int batch)
    : seed_(seed), batch_(batch), steps_of_epoch_(count / batch), order_(static_cast<size_t>(count)) {}

// Fisher and Yates' shuffle.
void Sampler::Shuffle(int64_t epoch) {
  epoch_ = epoch;
  std::iota(order_.begin(), order_.end(), 0);
  Random random(~seed_, static_cast<uint64_t>(epoch));
  for (size_t left = order_.size(); left > 1; --left) std::swap(order_[left - 1], order_[random.Below(left)]);
}

std::vector<int32_t> Sampler::Draw(int64_t step, int rank, int ranks) {
  if (const int64_t epoch = step / steps_of_epoch_; epoch != epoch_) Shuffle(epoch);
  const int64_t share = batch_ / ranks;
  const auto first = order_.begin() + step % steps_of_epoch_ * batch_ + rank * share;
  return {first, first + share};
}

}  // namespace cudnn_cnn
