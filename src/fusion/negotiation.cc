#include "fusion/negotiation.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/bytes.h"

namespace gyre::internal {

namespace {

void Write(WireWriter& writer, double number) {
  writer.U64(std::bit_cast<uint64_t>(number));
}

void Write(WireWriter& writer, const NamedSignature& signature) {
  writer.U8(static_cast<uint8_t>(signature.kind));
  writer.U8(static_cast<uint8_t>(signature.dtype));
  writer.U8(static_cast<uint8_t>(signature.op));
  writer.I32(signature.root);
  writer.U64(static_cast<uint64_t>(signature.count));
  Write(writer, signature.prescale);
  Write(writer, signature.postscale);
  writer.U64(signature.group);
  writer.I32(signature.group_size);
  writer.I32(signature.group_index);
  writer.U8(signature.on_gpu);
}

NamedSignature ReadSignature(WireReader& reader) {
  NamedSignature signature;
  signature.kind = static_cast<NamedKind>(reader.U8());
  signature.dtype = static_cast<DType>(reader.U8());
  signature.op = static_cast<ReduceOp>(reader.U8());
  signature.root = reader.I32();
  signature.count = static_cast<int64_t>(reader.U64());
  signature.prescale = std::bit_cast<double>(reader.U64());
  signature.postscale = std::bit_cast<double>(reader.U64());
  signature.group = reader.U64();
  signature.group_size = reader.I32();
  signature.group_index = reader.I32();
  signature.on_gpu = reader.U8() != 0;
  return signature;
}

bool Valid(const NamedSignature& signature) {
  return signature.kind >= NamedKind::kAllReduce && signature.kind <= NamedKind::kRefused &&
         static_cast<int>(signature.dtype) < kDTypeCount && signature.op <= ReduceOp::kAdasum && signature.count >= 0 &&
         signature.group_size >= 1 && signature.group_index >= 0 && signature.group_index < signature.group_size;
}

// Items that follow a u32 with their number. They are taken as they come: memory follows what is there.
template <typename Read>
void ReadMany(WireReader& reader, Read read) {
  for (uint32_t left = reader.U32(); left > 0 && reader.ok(); --left) read();
}

void Write(WireWriter& writer, const NamedCall& call) {
  writer.Text(call.name);
  Write(writer, call.signature);
  writer.U32(static_cast<uint32_t>(call.counts.size()));
  for (const int64_t count : call.counts) writer.U64(static_cast<uint64_t>(count));
}

void Write(WireWriter& writer, const Decision& decision) {
  writer.U8(static_cast<uint8_t>(decision.kind));
  writer.U64(decision.generation);
  Write(writer, NamedCall{decision.name, decision.signature, decision.counts});
  writer.U32(static_cast<uint32_t>(decision.ranks.size()));
  for (const int32_t rank : decision.ranks) writer.I32(rank);
  writer.I32(static_cast<int32_t>(decision.code));
  writer.Text(decision.text);
  writer.U64(decision.number);
}

Decision ReadDecision(WireReader& reader) {
  Decision decision;
  decision.kind = static_cast<DecisionKind>(reader.U8());
  decision.generation = reader.U64();
  decision.name = reader.Text();
  decision.signature = ReadSignature(reader);
  ReadMany(reader, [&] { decision.counts.push_back(static_cast<int64_t>(reader.U64())); });
  ReadMany(reader, [&] { decision.ranks.push_back(reader.I32()); });
  decision.code = static_cast<absl::StatusCode>(reader.I32());
  decision.text = reader.Text();
  decision.number = reader.U64();
  return decision;
}

bool Valid(const Decision& decision) {
  const bool counts = std::ranges::all_of(decision.counts, [](int64_t count) { return count >= 0; });
  return counts && decision.kind >= DecisionKind::kRun && decision.kind <= DecisionKind::kLeft &&
         Valid(decision.signature);
}

}  // namespace

bool Agree(const NamedSignature& one, const NamedSignature& other) {
  if (one.kind == NamedKind::kRefused) return false;
  const bool counts = one.kind == NamedKind::kAllGather || one.count == other.count;
  const auto rest = [](const NamedSignature& s) {
    return std::tuple(s.kind, s.dtype, s.op, s.root, std::bit_cast<uint64_t>(s.prescale),
                      std::bit_cast<uint64_t>(s.postscale), s.group, s.group_size, s.group_index, s.on_gpu);
  };
  return counts && rest(one) == rest(other);
}

std::string Describe(const NamedSignature& signature) {
  std::string text;
  const std::string elements = absl::StrCat(ToAbsl(DTypeName(signature.dtype)), ", ", signature.count, " elements",
                                            signature.on_gpu ? " on a GPU" : "");
  switch (signature.kind) {
    case NamedKind::kAllReduce:
      text = absl::StrCat("allreduce(", elements, ", ", ToAbsl(ReduceOpName(signature.op)));
      if (signature.prescale != 1.0) absl::StrAppend(&text, ", prescale ", signature.prescale);
      if (signature.postscale != 1.0) absl::StrAppend(&text, ", postscale ", signature.postscale);
      break;
    case NamedKind::kAllGather: text = absl::StrCat("allgather(", elements); break;
    case NamedKind::kRefused: return "a call with wrong arguments";
    case NamedKind::kBroadcast: text = absl::StrCat("broadcast(", elements, ", root ", signature.root); break;
  }
  text += ")";
  if (signature.group == 0) return text;
  return absl::StrCat(text, " as number ", signature.group_index, " of the ", signature.group_size, " of group ",
                      absl::Hex(signature.group));
}

std::string Quoted(const std::string& name, const NamedSignature& signature) {
  return absl::StrCat("'", name, "' (", Describe(signature), ")");
}

uint64_t GroupOf(const std::vector<std::string>& names) {
  const std::string bytes = Written([&](WireWriter& writer) {
    for (const std::string& name : names) writer.Text(name);
  });
  return XXH3_64bits(bytes.data(), bytes.size()) | 1;
}

uint64_t HashOf(const NamedCall& call) {
  const std::string bytes = Written([&](WireWriter& writer) { Write(writer, call); });
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string Encode(const Report& report) {
  return Written([&](WireWriter& writer) {
    writer.U64(report.generation);
    writer.U32(static_cast<uint32_t>(report.announcements.size()));
    for (const Announcement& announcement : report.announcements) {
      writer.Text(announcement.name);
      Write(writer, announcement.signature);
      writer.U64(static_cast<uint64_t>(announcement.left_us));
    }
    writer.U8(report.join);
    writer.U8(report.leave);
    writer.U8(report.goodbye);
    writer.U8(report.stalled);
    writer.U64(report.position);
    writer.U64(report.frozen_cycles);
    writer.Text(report.deviation);
  });
}

absl::StatusOr<Report> DecodeReport(std::string_view bytes) {
  WireReader reader(bytes);
  Report report;
  bool valid = true;
  report.generation = reader.U64();
  ReadMany(reader, [&] {
    Announcement announcement;
    announcement.name = reader.Text();
    announcement.signature = ReadSignature(reader);
    announcement.left_us = static_cast<int64_t>(reader.U64());
    valid = valid && Valid(announcement.signature);
    report.announcements.push_back(std::move(announcement));
  });
  report.join = reader.U8() != 0;
  report.leave = reader.U8() != 0;
  report.goodbye = reader.U8() != 0;
  report.stalled = reader.U8() != 0;
  report.position = reader.U64();
  report.frozen_cycles = reader.U64();
  report.deviation = reader.Text();
  if (!valid || !reader.AtEnd()) return absl::DataLossError("a report about named operations is malformed");
  return report;
}

std::string Encode(const std::vector<Decision>& decisions) {
  return Written([&](WireWriter& writer) {
    writer.U32(static_cast<uint32_t>(decisions.size()));
    for (const Decision& decision : decisions) Write(writer, decision);
  });
}

absl::StatusOr<std::vector<Decision>> DecodeDecisions(std::string_view bytes) {
  WireReader reader(bytes);
  std::vector<Decision> decisions;
  bool valid = true;
  ReadMany(reader, [&] {
    decisions.push_back(ReadDecision(reader));
    valid = valid && Valid(decisions.back());
  });
  if (!valid || !reader.AtEnd()) return absl::DataLossError("a decision about named operations is malformed");
  return decisions;
}

}  // namespace gyre::internal
