// What a parameter server and its workers tell each other, the machines that hear it, and a manifest from a disk.
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "fuzzers.h"
#include "ps/process/setup.h"
#include "ps/pull_codec.h"
#include "ps/push_codec.h"
#include "ps/rows.h"
#include "ps/server.h"
#include "ps/wire.h"
#include "ps/worker.h"

namespace gyre::fuzz {

namespace {

using ps::Kind;
using ps::Message;

std::vector<uint64_t> Steps(Mutator& random, size_t count) {
  std::vector<uint64_t> steps(count);
  for (uint64_t& step : steps) step = random.OneIn(10) ? random.Number() % ps::kMostSteps : random.Below(8);
  return steps;
}

// `bytes` and `text` are what its views point into.
Message RandomMessage(Mutator& random, std::string& bytes, std::string& text) {
  const auto step = [&] { return Steps(random, 1)[0]; };
  bytes = random.RandomBytes(4 * random.Below(6));
  text = random.RandomBytes(random.Below(30));
  const size_t slots = random.Below(4);
  const uint64_t kind = 1 + random.Below(17);
  return {.kind = static_cast<Kind>(kind > 11 ? kind + 8 : kind),
          .epoch = random.OneIn(10) ? step() : 5,
          .incarnation = 1 + random.Below(3),
          .to = 1 + random.Below(2),
          .layout = random.Number(),
          .flag = random.OneIn(2),
          .member = random.OneIn(2),
          .slot = static_cast<uint32_t>(random.OneIn(10) ? random.Number() : random.Below(3)),
          .sequence = step(),
          .clock = step(),
          .worker = static_cast<int32_t>(random.Number()),
          .packed = static_cast<uint32_t>(random.OneIn(3) ? random.Below(30) : 0),
          .values = AsBytes(bytes),
          .text = text,
          .next = Steps(random, slots),
          .durable = Steps(random, slots),
          .floors = Steps(random, slots)};
}

constexpr compression::PayloadKind kValueKinds[] = {compression::PayloadKind::kF32, compression::PayloadKind::kF16,
                                                    compression::PayloadKind::kBF16, compression::PayloadKind::kInt8};

// Of a partition of the machines below, or nearly: `bytes` are its words.
uint32_t RandomPayload(Mutator& random, std::string& bytes) {
  const Compression kinds[] = {Fp16{}, Int8{}, Int4{}, Sign{}, TopK{.sparsity = 0.5}, RandomK{.sparsity = 0.5}};
  const auto count = static_cast<int64_t>(1 + random.Below(2));
  const auto codec = compression::MakeCodec(kinds[random.Below(std::size(kinds))], count);
  std::vector<std::byte> payload;
  if (!(*codec)->Encode(std::vector<float>(static_cast<size_t>(count), 1.5f), 1, payload).ok()) return 0;
  bytes.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
  if (random.OneIn(2)) bytes = random.Mutated(std::move(bytes));
  const auto packed = static_cast<uint32_t>(bytes.size());
  bytes.resize(ps::WordsOf(packed) * sizeof(float));
  return packed;
}

class Nowhere final : public ps::Network {
 public:
  void Send(int, const Message& message) override { sent += Encode(message).size(); }
  size_t sent = 0;
};

// Forgets all.
class NoDisk final : public ps::Disk {
 public:
  absl::Status Write(std::string_view, std::string_view) override { return absl::OkStatus(); }
  absl::Status Sync(std::string_view) override { return absl::OkStatus(); }
  absl::Status Rename(std::string_view, std::string_view) override { return absl::OkStatus(); }
  absl::Status SyncFolder() override { return absl::OkStatus(); }
  absl::StatusOr<std::string> Read(std::string_view) override { return absl::NotFoundError("none"); }
  absl::Status Remove(std::string_view) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<std::string>> List() override { return std::vector<std::string>(); }
};

class Chance final : public ps::Random {
 public:
  explicit Chance(Mutator& random) : random_(random) {}
  uint64_t Next() override { return random_(); }

 private:
  Mutator& random_;
};

}  // namespace

std::string FuzzPsMessages(Mutator& random) {
  std::string bytes, text;
  std::string payload = Encode(RandomMessage(random, bytes, text));
  const bool valid = random.OneIn(4) && ps::Decode(payload).ok();
  if (!valid) payload = random.Mutated(std::move(payload));
  return CheckDecoder(payload, valid, /*factor=*/2, ps::Decode, [](const Message& m) { return Encode(m); });
}

// Rows or ids of a table of 9 rows and a column, or nearly so.
std::string RandomRows(Mutator& random) {
  std::string words;
  WireWriter writer(words);
  const uint64_t rows = random.Below(4);
  const bool push = random.OneIn(2);
  if (push) writer.U32(static_cast<uint32_t>(random.OneIn(10) ? random.Number() : rows));
  for (uint64_t row = 0, id = random.Below(3); row < rows; ++row, id += random.Below(4)) writer.U64(id);
  if (push) words += random.RandomBytes(4 * rows);
  return words;
}

// A server and a worker hear anything that decodes, from anybody, at any time.
std::string FuzzPsMachines(Mutator& random) {
  ManualClock clock;
  Nowhere network;
  NoDisk disk;
  Chance chance(random);
  const ps::Tensor tensors[] = {{"a", 3}, {"b", 2}};
  const ps::Table tables[] = {{.name = "c", .rows = 9, .columns = 1, .first = UniformRows{}}};
  const auto layout = ps::Layout::Create(tensors, 1, 8, tables);
  const ps::Consistency consistency{static_cast<ps::Mode>(random.Below(3)), random.Below(3)};
  auto server = ps::Server::Start({.epoch = 5,
                                   .incarnation = 2,
                                   .consistency = consistency,
                                   .values_as = kValueKinds[random.Below(std::size(kValueKinds))]},
                                  *layout, clock, network, disk);
  ps::PushCompression compression;
  if (random.OneIn(2)) compression.compression = Int4{};
  auto worker = ps::Worker::Create({.epoch = 5, .local_steps = 2, .compression = compression}, *layout,
                                   std::vector<float>(5), clock, network, chance);
  if (!server.ok() || !worker.ok()) return "does not start";
  bool begun = false;
  for (uint64_t left = random.Below(60); left > 0; --left) {
    std::string bytes, text;
    Message message = RandomMessage(random, bytes, text);
    if (!random.OneIn(3)) message.layout = layout->fingerprint();
    if (!random.OneIn(3)) message.values = AsBytes(bytes = random.RandomBytes(random.OneIn(2) ? 8 : 4));
    if (random.OneIn(3)) {
      message.packed = RandomPayload(random, bytes);
      message.values = AsBytes(bytes);
    }
    if (random.OneIn(3)) {
      message.slot = 3;
      message.values = AsBytes(bytes = RandomRows(random));
    }
    if (!random.OneIn(3)) {
      message.next = Steps(random, 4);
      message.durable = Steps(random, 4);
      message.floors = Steps(random, 4);
    }
    const std::string payload = Encode(message);
    const auto decoded = ps::Decode(payload);
    if (!decoded.ok()) continue;
    (*server)->Receive(static_cast<int>(random.Below(3)), *decoded);
    (*worker)->Receive(static_cast<int>(random.Below(2)), *decoded);
    clock.Advance(std::chrono::milliseconds(random.Below(400)));
    (*server)->Tick();
    (*worker)->Tick();
    if ((*worker)->Begin().ok()) {
      begun = true;
      const int64_t ids[] = {static_cast<int64_t>(random.Below(9)), 4};
      if (!(*worker)->AskRows(0, ids).ok()) return "rows are not asked for";
    }
    std::vector<float> rows(2);
    if (random.OneIn(2) && (*worker)->has_rows()) (*worker)->SpreadRows(rows);
    if (random.OneIn(2)) {
      std::vector<ps::Floats> pushed;
      const int64_t ids[] = {static_cast<int64_t>(random.Below(9)), static_cast<int64_t>(random.Below(9))};
      if (random.OneIn(2)) pushed = *ps::PackRows(tables[0], 1, ids, std::vector<float>(2, 1.0f));
      if ((*worker)->End(std::vector<float>(5, 1.0f), pushed).ok() != std::exchange(begun, false)) {
        return "a step does not end, or one ends that had not begun";
      }
    }
  }
  return network.sent < size_t{1} << 20 ? "" : "answers too much";
}

std::string FuzzPsSetup(Mutator& random) {
  ps::Setup setup{.servers = 3, .workers = 9, .consistency = {ps::Mode::kStale, random.Below(9)}, .rule = Adam{}};
  setup.values_as = kValueKinds[random.Below(std::size(kValueKinds))];
  for (uint64_t left = random.Below(5); left > 0; --left) setup.tensors.push_back({random.RandomBytes(left), 5});
  for (uint64_t left = random.Below(5); left > 0; --left) {
    setup.tables.push_back({.name = random.RandomBytes(left), .rows = 5, .columns = 3, .first = UniformRows{1, left}});
  }
  std::string payload = Encode(setup);
  const bool valid = random.OneIn(4);
  if (!valid) payload = random.Mutated(std::move(payload));
  // A tensor of 12 bytes takes 40, and once more while their list grows.
  return CheckDecoder(payload, valid, /*factor=*/12, ps::DecodeSetup, [](const ps::Setup& s) { return Encode(s); });
}

// Values are replaced by those of a payload of as many, or not at all.
std::string FuzzPsValues(Mutator& random) {
  const size_t count = 20 + random.Below(600);
  const std::vector<float> before(count, 7.0f), sent(count, 1.0f);
  ps::ValueEncoder encoder;
  const auto& encoded =
      encoder.Encode(kValueKinds[1 + random.Below(std::size(kValueKinds) - 1)], sent, 1, ps::MakePrivate);
  std::string bytes(AsText(encoded.words.bytes().first(encoded.bytes)));
  const bool valid = random.OneIn(4);
  if (!valid) bytes = random.Mutated(std::move(bytes));
  std::vector<float> values = before;
  bool read = false;
  const int64_t peak = PeakBytes([&] { read = ps::DecodeValues(AsBytes(bytes), values); });
  if (peak > 0) return "took " + std::to_string(peak) + " bytes";
  if (valid && !read) return "refused what is valid";
  if (valid && !std::ranges::all_of(values, [](float value) { return value > 0.99f && value < 1.01f; })) {
    return "read something else";
  }
  return read || values == before ? "" : "changed values, and refused";
}

std::string FuzzPsManifest(Mutator& random) {
  std::string bytes = ps::EncodeManifest({random.Number(), random.Number(), random.Number(), random.Number(), 7});
  const bool valid = random.OneIn(4);
  if (!valid) bytes = random.Mutated(std::move(bytes));
  return CheckDecoder(bytes, valid, /*factor=*/0, ps::DecodeManifest, ps::EncodeManifest);
}

}  // namespace gyre::fuzz
