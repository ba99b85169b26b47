# shellcheck shell=bash
# What the scripts share: sourced, never run. Leaves the caller in the repository's root.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck disable=SC2034  # the scripts that source this use it
ROOT=$PWD
JOBS=$(nproc)

say() { printf '\n== %s\n' "$*"; }
note() { printf '   %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# wrong_usage TEXT: ends a wrong call with exit code 64.
wrong_usage() { printf '%s: %s\n%s: see scripts/%s --help\n' "$(basename "$0")" "$1" "$(basename "$0")" "$(basename "$0")" >&2; exit 64; }

# help: prints the caller's opening comment.
print_help() { sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$0"; }

# run_quietly LOG COMMAND...: its output goes to LOG; shown (the end of it) only if the command fails.
run_quietly() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  if "$@" >"$log" 2>&1 </dev/null; then return 0; fi
  tail -n 60 "$log" >&2
  printf '%s failed (all of it is in %s)\n' "$*" "$log" >&2
  return 1
}

# configure PRESET and build PRESET TARGET...: every script configures a preset in the same way, so that what one has
# compiled is compiled for all.
configure() { run_quietly "build/$1/configure.log" cmake --preset "$1"; }
build() {
  local preset=$1
  shift
  run_quietly "build/$preset/build.log" cmake --build --preset "$preset" -j "$JOBS" --target "$@"
}
