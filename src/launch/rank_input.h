// RankInput: the standard input of a rank, as it comes from the launcher. Not thread-safe; never blocks.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "launch/output_sink.h"
#include "launch/poller.h"

namespace gyre::launch {

class RankInput {
 public:
  // Returns the end that the rank reads.
  absl::StatusOr<UniqueFd> Open();

  void Put(std::string_view bytes);
  void End() { ended_ = true; }

  // Writes what the rank takes now, and waits for the rest; returns how much is done with since the last call. What a
  // rank does not want any more is done with, too.
  size_t Flush(Poller& poller);

 private:
  void Close(Poller& poller);

  UniqueFd pipe_;  // the writing end
  std::unique_ptr<OutputSink> sink_;
  size_t put_ = 0;  // bytes not yet returned by Flush
  bool ended_ = false;
  bool watched_ = false;
};

}  // namespace gyre::launch
