// gyre-bench compression: what codecs cost on one core, without any communication.
#include "compression.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compression/codec.h"
#include "compression/power_sgd.h"
#include "gyre/status_macros.h"
#include "nlohmann/json.hpp"
#include "noise.h"
#include "output_file.h"
#include "sizes.h"
#include "timing.h"

namespace gyre::bench {

namespace {

struct Speeds {
  std::string name;
  int64_t count;
  double encode_seconds, decode_seconds;
  int64_t payload_bytes;
};

// Gradient bytes a second: 4 an element, in and out alike.
void PrintSpeeds(const Speeds& speeds, std::FILE* json) {
  const auto bytes = static_cast<double>(speeds.count) * sizeof(float);
  const double ratio = bytes / static_cast<double>(speeds.payload_bytes);
  const double encode = bytes / speeds.encode_seconds * 1e-9, decode = bytes / speeds.decode_seconds * 1e-9;
  absl::PrintF("%-16s %12d %14d %10.2f %10.2f %10.2f\n", speeds.name, speeds.count, speeds.payload_bytes, ratio, encode,
               decode);
  std::fflush(stdout);
  if (json == nullptr) return;
  const nlohmann::ordered_json line = {{"lib", "gyre"},
                                       {"op", "codec"},
                                       {"compression", speeds.name},
                                       {"elements", speeds.count},
                                       {"payload_bytes", speeds.payload_bytes},
                                       {"ratio", ratio},
                                       {"encode_gbs", encode},
                                       {"decode_gbs", decode}};
  absl::FPrintF(json, "%s\n", line.dump());
}

// Two gradients by turns, so that what is kept does not settle.
absl::Status MeasureCodec(const std::string& name, const Compression& compression, const CompressionOptions& options,
                          int64_t count, std::FILE* json) {
  const double link = options.link * 1e9 / 8;
  ASSIGN_OR_RETURN(const auto codec, compression::MakeCodec(compression, count, {.link_bytes_per_second = link}));
  std::vector<float> gradients[2];
  for (uint64_t i = 0; i < 2; ++i) {
    gradients[i].resize(static_cast<size_t>(count));
    FillNormal(gradients[i], i + 1);
  }
  std::vector<float> sum(static_cast<size_t>(count));
  std::vector<std::byte> payload;
  compression::Decoder decoder;
  std::vector<double> encode, decode;
  absl::Status status;
  constexpr int kWarmup = 3;
  for (int step = 0; step < kWarmup + options.samples && status.ok(); ++step) {
    const double encoding = SecondsOf([&] { status = codec->Encode(gradients[step % 2], step, payload); });
    RETURN_IF_ERROR(status);
    const double decoding = SecondsOf([&] { status = decoder.DecodeAdd(payload, 0.5f, sum); });
    if (step < kWarmup) continue;
    encode.push_back(encoding);
    decode.push_back(decoding);
  }
  RETURN_IF_ERROR(status);
  PrintSpeeds({name, count, Summarize(encode).median, Summarize(decode).median, static_cast<int64_t>(payload.size())},
              json);
  return absl::OkStatus();
}

// A square matrix. What is sent is both factors; encoding makes them, decoding multiplies them and keeps the rest.
absl::Status MeasurePowerSgd(const std::string& name, const PowerSgd& power, const CompressionOptions& options,
                             int64_t count, std::FILE* json) {
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(count)));
  ASSIGN_OR_RETURN(auto tensor, compression::PowerSgdTensor::Create(power, side, side, 1));
  std::vector<float> gradient(static_cast<size_t>(side * side)), out(gradient.size());
  FillNormal(gradient, 1);
  std::vector<double> encode, decode;
  for (int step = 0; step < options.samples; ++step) {
    encode.push_back(SecondsOf([&] {
      tensor.MakeP(gradient);
      tensor.MakeQ();
    }));
    decode.push_back(SecondsOf([&] { tensor.Finish(out); }));
  }
  const auto sent = static_cast<int64_t>(sizeof(float)) * 2 * side * tensor.rank();
  PrintSpeeds({name, side * side, Summarize(encode).median, Summarize(decode).median, sent}, json);
  return absl::OkStatus();
}

absl::Status MeasureAll(const CompressionOptions& options, std::FILE* json) {
  ASSIGN_OR_RETURN(const int64_t bytes, ParseSize(options.size));
  bool head = false;
  for (const std::string& method : options.methods) {
    if (method == "dgc-pass" || method == "index-codes") continue;
    ASSIGN_OR_RETURN(const Compression compression, ParseCompression(method));
    if (!std::exchange(head, true)) {
      absl::PrintF("# GB/s of float32 gradient, one core, medians of %d; a link of %g Gbit/s\n", options.samples,
                   options.link);
      absl::PrintF("#%-15s %12s %14s %10s %10s %10s\n", "codec", "elements", "payload (B)", "ratio", "compress",
                   "decompress");
    }
    const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
    if (const auto* power = std::get_if<PowerSgd>(&compression)) {
      RETURN_IF_ERROR(MeasurePowerSgd(method, *power, options, count, json));
    } else {
      RETURN_IF_ERROR(MeasureCodec(method, compression, options, count, json));
    }
  }
  return absl::OkStatus();
}

bool Asked(const CompressionOptions& options, const char* method) {
  return std::ranges::find(options.methods, method) != options.methods.end();
}

}  // namespace

absl::Status RunCompression(const CompressionOptions& options, const std::string& command) {
  ASSIGN_OR_RETURN(const OutputFile json, OpenOutputFile(options.json));
  absl::PrintF("# %s\n", command);
  if (options.models) return MeasureModels(options, json.get());
  RETURN_IF_ERROR(MeasureAll(options, json.get()));
  if (Asked(options, "index-codes")) RETURN_IF_ERROR(MeasureIndexCodes(options, json.get()));
  if (Asked(options, "dgc-pass")) RETURN_IF_ERROR(MeasurePass(options, json.get()));
  return absl::OkStatus();
}

}  // namespace gyre::bench
