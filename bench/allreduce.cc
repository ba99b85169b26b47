#include "allreduce.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gyre/gyre.h"
#include "gyre/status_macros.h"
#include "report.h"
#include "sizes.h"

namespace gyre::bench {

namespace {

using Clock = std::chrono::steady_clock;

// How often: `samples` samples of `calls` calls each, so that reading the clock does not show in short operations.
struct Effort {
  int warmup;
  int samples;
  int calls;
};

Effort EffortFor(int64_t bytes, int iterations) {
  Effort effort{.warmup = 3, .samples = 10, .calls = 1};
  if (bytes <= (64 << 10)) {
    effort = {.warmup = 100, .samples = 200, .calls = 50};
  } else if (bytes <= (1 << 20)) {
    effort = {.warmup = 20, .samples = 200, .calls = 2};
  } else if (bytes <= (16 << 20)) {
    effort = {.warmup = 5, .samples = 40, .calls = 1};
  }
  if (iterations > 0) effort.samples = iterations;
  return effort;
}

// Small integers, different on every rank, that every dtype holds: rank r's element i.
int ValueOf(int rank, int64_t index) {
  return static_cast<int>((index + rank) % 3);
}

void WriteValue(DType dtype, void* at, int value) {
  const auto store = [at](auto typed) { std::memcpy(at, &typed, sizeof(typed)); };
  switch (dtype) {
    case DType::kU8: return store(static_cast<uint8_t>(value));
    case DType::kI8: return store(static_cast<int8_t>(value));
    case DType::kI16: return store(static_cast<int16_t>(value));
    case DType::kU16: return store(static_cast<uint16_t>(value));
    case DType::kI32: return store(static_cast<int32_t>(value));
    case DType::kI64: return store(static_cast<int64_t>(value));
    case DType::kF16: return store(Float16(static_cast<float>(value)));
    case DType::kBF16: return store(BFloat16(static_cast<float>(value)));
    case DType::kF32: return store(static_cast<float>(value));
    case DType::kF64: return store(static_cast<double>(value));
    case DType::kBool: return store(value != 0);
  }
}

int ExpectedValue(DType dtype, ReduceOp op, int ranks, int64_t index) {
  int result = ValueOf(0, index);
  for (int r = 1; r < ranks; ++r) {
    const int value = ValueOf(r, index);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage: result += value; break;
      case ReduceOp::kMin: result = std::min(result, value); break;
      case ReduceOp::kMax: result = std::max(result, value); break;
      case ReduceOp::kProduct: result *= value; break;
    }
  }
  return dtype == DType::kBool ? std::min(result, 1) : result;
}

class Benchmark {
 public:
  Benchmark(Communicator& world, const AllReduceOptions& options, DType dtype, ReduceOp op)
      : world_(world), options_(options), dtype_(dtype), op_(op) {}

  // Elements that came out wrong, over all ranks.
  absl::StatusOr<int64_t> CountWrong(Contender& contender, int64_t count, bool in_place) {
    const int64_t size = DTypeSize(dtype_);
    auto* const from = static_cast<char*>(in_place ? contender.out() : contender.in());
    for (int64_t i = 0; i < count; ++i) WriteValue(dtype_, from + i * size, ValueOf(world_.rank(), i));
    RETURN_IF_ERROR(contender.Run(in_place));
    int64_t wrong = 0;
    const auto* const result = static_cast<const char*>(contender.out());
    for (int64_t i = 0; i < count; ++i) {
      char expected[8] = {};
      WriteValue(dtype_, expected, ExpectedValue(dtype_, op_, world_.size(), i));
      wrong += std::memcmp(result + i * size, expected, static_cast<size_t>(size)) != 0 ? 1 : 0;
    }
    RETURN_IF_ERROR(world_.AllReduce(std::span(&wrong, 1)));
    return wrong;
  }

  // All contenders in turn, sample by sample, so that what the machine does meanwhile hits them alike. One time a
  // sample and contender, the slowest rank's.
  absl::StatusOr<std::vector<std::vector<double>>> Measure(const std::vector<Contender*>& contenders, int64_t bytes,
                                                           bool in_place) {
    const Effort effort = EffortFor(bytes, options_.iterations);
    std::vector<std::vector<double>> times(contenders.size());
    for (Contender* contender : contenders) {
      for (int i = 0; i < effort.warmup; ++i) RETURN_IF_ERROR(contender->Run(in_place));
    }
    for (int sample = 0; sample < effort.samples; ++sample) {
      for (size_t c = 0; c < contenders.size(); ++c) {
        RETURN_IF_ERROR(world_.Barrier());
        RETURN_IF_ERROR(contenders[c]->Run(in_place));  // in step, and its code and lines in the caches
        const auto start = Clock::now();
        for (int i = 0; i < effort.calls; ++i) RETURN_IF_ERROR(contenders[c]->Run(in_place));
        const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
        times[c].push_back(elapsed.count() / effort.calls);
      }
    }
    for (auto& samples : times) RETURN_IF_ERROR(world_.AllReduce(samples, {.op = ReduceOp::kMax}));
    return times;
  }

  absl::Status RunSize(const std::vector<Contender*>& contenders, int64_t bytes, Buffers buffers, Report* report) {
    const int64_t count = bytes / DTypeSize(dtype_);
    std::vector<Measurement> rows[2];  // out of place, in place
    for (const bool in_place : {false, true}) {
      for (Contender* contender : contenders) {
        RETURN_IF_ERROR(contender->Prepare({count, dtype_, op_, buffers}));
        Measurement m{.lib = contender->name(),
                      .op = "allreduce",
                      .redop = std::string(ReduceOpName(op_)),
                      .ranks = world_.size(),
                      .hosts = world_.node_count(),
                      .bytes = count * DTypeSize(dtype_),
                      .count = count,
                      .dtype = std::string(DTypeName(dtype_)),
                      .buffers = contender->name() == "gyre" && buffers == Buffers::kArena ? "arena" : "plain",
                      .in_place = in_place,
                      .times = {},
                      .wrong = std::nullopt};
        if (options_.check && op_ != ReduceOp::kAverage) {
          ASSIGN_OR_RETURN(m.wrong, CountWrong(*contender, count, in_place));
        }
        // Zeros stay zeros, however often they are summed in place.
        std::memset(contender->in(), 0, static_cast<size_t>(m.bytes));
        std::memset(contender->out(), 0, static_cast<size_t>(m.bytes));
        rows[in_place ? 1 : 0].push_back(std::move(m));
      }
      ASSIGN_OR_RETURN(auto times, Measure(contenders, bytes, in_place));
      for (size_t c = 0; c < contenders.size(); ++c) rows[in_place ? 1 : 0][c].times = Summarize(std::move(times[c]));
    }
    for (const auto& row : rows) {
      for (const Measurement& m : row) wrong_ += m.wrong.value_or(0);
    }
    if (report == nullptr) return absl::OkStatus();
    for (size_t c = 0; c < contenders.size(); ++c) {
      const auto ratio = c == 0 ? std::nullopt : std::optional(rows[1][c].times.median / rows[1][0].times.median);
      report->Row(rows[0][c], rows[1][c], ratio);
    }
    return absl::OkStatus();
  }

  int64_t wrong() const { return wrong_; }

 private:
  Communicator& world_;
  const AllReduceOptions& options_;
  const DType dtype_;
  const ReduceOp op_;
  int64_t wrong_ = 0;
};

}  // namespace

absl::Status RunAllReduce(const AllReduceOptions& options, const std::string& command) {
  ASSIGN_OR_RETURN(const int64_t begin, ParseSize(options.begin));
  ASSIGN_OR_RETURN(const int64_t end, ParseSize(options.end));
  const auto dtype = ParseDType(options.dtype);
  const auto op = ParseReduceOp(options.op);
  if (!dtype) return absl::InvalidArgumentError(absl::StrCat("unknown dtype '", options.dtype, "'"));
  if (!op) return absl::InvalidArgumentError(absl::StrCat("unknown reduction '", options.op, "'"));

  std::unique_ptr<MpiSession> mpi;  // before the runtime, and ended after it
  std::vector<std::unique_ptr<Contender>> owned;
  if (std::ranges::find(options.against, "mpi") != options.against.end()) {
    ASSIGN_OR_RETURN(mpi, MpiSession::Start());
  }
  ASSIGN_OR_RETURN(auto runtime, Runtime::Create());
  owned.push_back(MakeGyre(*runtime));
  if (mpi != nullptr) owned.push_back(mpi->MakeContender());
  std::vector<Contender*> contenders;
  for (const auto& contender : owned) contenders.push_back(contender.get());

  std::unique_ptr<Report> report;
  if (runtime->world().rank() == 0) {
    ASSIGN_OR_RETURN(report, Report::Open(options.json));
    report->Header(command, runtime->world().size(), runtime->world().node_count());
  }
  Benchmark benchmark(runtime->world(), options, *dtype, *op);
  for (const int64_t bytes : SizeRange(std::max(begin, DTypeSize(*dtype)), end, options.factor)) {
    for (const Buffers buffers : {Buffers::kArena, Buffers::kPlain}) {
      const char* const name = buffers == Buffers::kArena ? "arena" : "plain";
      if (options.buffers != name && options.buffers != "both") continue;
      RETURN_IF_ERROR(benchmark.RunSize(contenders, bytes, buffers, report.get()));
    }
  }
  if (benchmark.wrong() == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(benchmark.wrong(), " elements came out wrong"));
}

}  // namespace gyre::bench
