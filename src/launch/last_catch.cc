#include "launch/last_catch.h"

#include <exception>
#include <new>

#include "absl/strings/str_cat.h"
#include "launch/exit_code.h"
#include "launch/output_sink.h"
#include "launch/report.h"

namespace gyre::launch {

int RunWithLastCatch(const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    Say("there is no memory left; try: a higher limit (ulimit -v, or the container's)");
  } catch (const std::exception& error) {
    Say(absl::StrCat("this should not happen: ", OneLine(error.what()), "; try: reporting it as a fault of gyrerun"));
  }
  return kExitInternal;
}

}  // namespace gyre::launch
