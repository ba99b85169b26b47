// LineAssembler: turns the bytes of one stream, as they come, into blocks of whole lines.
//
// A line ends at '\n', and at '\r' too, so that progress bars move. Bytes are never changed. A line longer than
// `longest` comes in pieces, so memory stays bounded. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace gyre::launch {

class LineAssembler {
 public:
  // A block of one or more whole lines; it ends without a line end only where a line was too long, or at Finish.
  using Emit = std::function<void(std::string_view block)>;

  explicit LineAssembler(size_t longest = size_t{1} << 20) : longest_(longest) {}

  void Feed(std::string_view bytes, const Emit& emit);
  void Finish(const Emit& emit);  // the stream has ended: hands out the unfinished line, if any

 private:
  const size_t longest_;
  std::string pending_;  // begins at a line's beginning, or inside a line of which pieces went out already
};

}  // namespace gyre::launch
