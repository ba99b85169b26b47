// Lists in messages that stay readable however long the list is.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

namespace gyre {

// What `text_of` makes of the first `most` things, and how many more there are: "a, b and 3 more".
template <typename Things, typename Text>
std::string FirstAndMore(const Things& things, size_t most, const Text& text_of) {
  std::string list;
  size_t told = 0;
  for (const auto& thing : things) {
    if (told == most) break;
    absl::StrAppend(&list, told == 0 ? "" : ", ", text_of(thing));
    ++told;
  }
  if (told < things.size()) absl::StrAppend(&list, " and ", things.size() - told, " more");
  return list;
}

}  // namespace gyre
