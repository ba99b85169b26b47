// The decoders that see what came from a network, each with a function that feeds it one input: valid, mutated, or
// mutated and sealed with a right checksum, so that what lies behind the checksum is reached too.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "allocation_meter.h"
#include "support/mutator.h"

namespace gyre::fuzz {

using support::Mutator;

// Each returns what is wrong with the outcome; empty: all is well.
using Round = std::string (*)(Mutator& random);

struct Fuzzer {
  std::string_view name;
  int share;  // of a campaign's rounds, in thousandths
  Round round;
};

std::string FuzzFrames(Mutator& random);
std::string FuzzHandshake(Mutator& random);
std::string FuzzEndpoint(Mutator& random);
std::string FuzzStoreMessages(Mutator& random);
std::string FuzzStoreState(Mutator& random);
std::string FuzzControlFrames(Mutator& random);
std::string FuzzControlLink(Mutator& random);
std::string FuzzStepHeader(Mutator& random);
std::string FuzzExecutor(Mutator& random);
std::string FuzzRankPlace(Mutator& random);
std::string FuzzNetworkReport(Mutator& random);
std::string FuzzAgentMessages(Mutator& random);
std::string FuzzPreamble(Mutator& random);
std::string FuzzPsMessages(Mutator& random);
std::string FuzzPsMachines(Mutator& random);
std::string FuzzPsManifest(Mutator& random);
std::string FuzzPsSetup(Mutator& random);
std::string FuzzPsValues(Mutator& random);
std::string FuzzPayload(Mutator& random);
std::string FuzzIndexCode(Mutator& random);

// Decodes `bytes`, within 4 KiB and `factor` times the size of the bytes; and if that works, what was decoded must be
// what encoding and decoding it once more gives. `valid`: it must work and give the same bytes again.
template <typename Decode, typename Encode>
std::string CheckDecoder(const std::string& bytes, bool valid, int64_t factor, Decode decode, Encode encode) {
  bool decoded = false;
  const int64_t peak = PeakBytes([&] { decoded = decode(bytes).ok(); });
  const int64_t allowed = (int64_t{4} << 10) + factor * static_cast<int64_t>(bytes.size());
  if (peak > allowed) return "took " + std::to_string(peak) + " bytes, " + std::to_string(allowed) + " are allowed";
  if (!decoded) return valid ? "refused what is valid" : "";
  const std::string once = encode(*decode(bytes));
  const auto again = decode(once);
  if (!again.ok()) return "refused what it had encoded";
  if (encode(*again) != once) return "did not decode what it had encoded";
  return valid && once != bytes ? "did not decode what was encoded" : "";
}

}  // namespace gyre::fuzz
