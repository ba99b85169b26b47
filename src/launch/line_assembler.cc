#include "launch/line_assembler.h"

namespace gyre::launch {

void LineAssembler::Feed(std::string_view bytes, const Emit& emit) {
  const size_t end = bytes.find_last_of("\r\n");
  if (end != std::string_view::npos) {
    const std::string_view whole = bytes.substr(0, end + 1);
    bytes.remove_prefix(end + 1);
    if (pending_.empty()) {
      emit(whole);
    } else {
      pending_.append(whole);
      emit(pending_);
      pending_.clear();
    }
  }
  pending_.append(bytes);
  if (pending_.size() >= longest_) Finish(emit);
}

void LineAssembler::Finish(const Emit& emit) {
  if (!pending_.empty()) emit(pending_);
  pending_.clear();
}

}  // namespace gyre::launch
