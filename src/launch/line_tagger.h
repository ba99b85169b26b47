// LineTagger: puts a tag and a time before each line of one stream. Pure; not thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace gyre::launch {

class LineTagger {
 public:
  // `tag` may be empty (no tag).
  LineTagger(std::string tag, bool timestamp) : tag_(std::move(tag)), timestamp_(timestamp) {}

  // Appends `block` (from LineAssembler) to `out`: unchanged if there is neither tag nor time stamp; else each line
  // after them, and an unfinished line gets a '\n', since what comes next may be another rank's. `time` is the text
  // of the time stamp.
  void Append(std::string_view block, std::string_view time, std::string& out);

 private:
  const std::string tag_;
  const bool timestamp_;
  bool after_return_ = false;  // the last block ended in '\r': a '\n' that follows belongs to that line
};

// "[3]<stdout>:"; with a host, "[3@host]<stdout>:".
std::string RankTag(int rank, std::string_view stream, std::string_view host = {});

// The local time now, "2026-01-31T12:34:56.789".
std::string TimeText();

}  // namespace gyre::launch
