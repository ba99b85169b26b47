#include "runtime/gpu_codec_speed.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "runtime/compressed_exchange.h"
#include "runtime/gpu_codec_device.h"

namespace gyre::internal {

namespace {

constexpr int64_t kRows = 1024, kCount = kRows * kRows;
constexpr int kSamples = 3;                       // after one that takes the memory
constexpr int64_t kFirstStep = int64_t{1} << 40;  // after any warm-up

double SecondsSince(TimePoint begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<float> Noise() {
  std::vector<float> noise(kCount);
  uint32_t lot = 1;
  for (float& value : noise) {
    lot = lot * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(lot)) * 0x1p-31f;
  }
  return noise;
}

// A rank that is alone with a gradient.
class Alone {
 public:
  Alone(std::shared_ptr<GpuCodecDevice> device, TimePoint deadline) : device_(std::move(device)), deadline_(deadline) {}

  absl::StatusOr<CodecSpeed> Measure(const Compression& compression) {
    ASSIGN_OR_RETURN(gradient_, device_->Keep(kCount));
    const ExchangeTensor tensor{.name = "noise", .shape = {kRows, kRows}, .count = kCount, .covered = true};
    ASSIGN_OR_RETURN(exchange_, MakeCompressedExchange(compression, {.tensors = {tensor}}, device_));
    CodecSpeed best{1, 1};
    for (int sample = 0; sample <= kSamples; ++sample) {
      ASSIGN_OR_RETURN(const Times times, Run(kFirstStep + sample));
      if (sample == 0) continue;
      // Quantised, sums are encoded as well, and decoded once more; so they are where the choice is global, at the cost
      // of decoding.
      const bool quantised = !IsSparse(compression) && !std::holds_alternative<PowerSgd>(compression);
      const double once = IsGlobal(compression) ? times.rest / 2 : times.rest;
      const double decode = quantised ? std::max(0.0, times.rest - times.first) / 2 : once;
      best.encode = std::min(best.encode, times.first / kCount);
      best.decode = std::min(best.decode, decode / kCount);
    }
    return best;
  }

 private:
  struct Times {
    double first = 0, rest = 0;  // seconds: until the first call, and from then on
  };

  absl::StatusOr<Times> Run(int64_t step) {
    RETURN_IF_ERROR(
        device_->gpu().Copy(gradient_.data(), noise_.data(), kCount * int64_t{sizeof(float)}, device_->stream()));
    RETURN_IF_ERROR(device_->AwaitQueued(deadline_));
    exchange_->BeginStep(step, 0);
    Times times;
    const TimePoint begin = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(exchange_->Begin({.tensors = {0}, .values = {gradient_}}));
    for (;;) {
      RETURN_IF_ERROR(Await());
      ASSIGN_OR_RETURN(const auto call, exchange_->Next());
      RETURN_IF_ERROR(Await());
      if (times.first == 0) times.first = SecondsSince(begin);
      if (!call) break;
      std::memmove(call->out.data, call->in.data, static_cast<size_t>(call->in.bytes()));  // they may be the same
    }
    RETURN_IF_ERROR(device_->AwaitQueued(deadline_));
    times.rest = SecondsSince(begin) - times.first;
    return times;
  }

  absl::Status Await() {
    for (;;) {
      ASSIGN_OR_RETURN(const bool ready, exchange_->Ready());
      if (ready) return absl::OkStatus();
      if (std::chrono::steady_clock::now() >= deadline_) return absl::DeadlineExceededError(exchange_->Awaited());
      sched_yield();
    }
  }

  const std::vector<float> noise_ = Noise();  // copies of it may be queued until the device is gone
  const std::shared_ptr<GpuCodecDevice> device_;
  const TimePoint deadline_;
  std::span<float> gradient_;
  std::unique_ptr<CompressedExchange> exchange_;
};

}  // namespace

CodecSpeed MeasureSpeedOnGpu(const OpenedGpu& opened, const Compression& compression,
                             std::chrono::milliseconds timeout) {
  constexpr CodecSpeed kNever{1, 1};
  const auto stream = opened.gpu->CreateStream();
  if (!stream.ok()) return kNever;
  const TimePoint deadline = DeadlineAfter(std::chrono::steady_clock::now(), timeout);
  const std::string name = absl::StrCat("GPU ", opened.gpu->ordinal());
  const auto speed =
      Alone(std::make_shared<GpuCodecDevice>(opened, *stream, name, timeout), deadline).Measure(compression);
  opened.gpu->DestroyStream(*stream);
  return speed.value_or(kNever);
}

}  // namespace gyre::internal
