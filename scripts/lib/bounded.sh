# shellcheck shell=bash
# Runs that end by a deadline, and the verdict on all of them. Sourced after common.sh, never run.
failed=() left_out=() parts_wanted=() parts_unwanted=()

# begin_report FOLDER WORK SECONDS: report.txt and output.txt in FOLDER begin anew; logs of runs go to WORK; all is to
# end SECONDS after the script began.
begin_report() {
  report=$1/report.txt output=$1/output.txt work=$2 deadline=$3
  : >"$report"
  : >"$output"
}
tell() { printf '%s\n' "$*" | tee -a "$report"; }
left() { echo $((deadline - SECONDS)); }
# at_most SECONDS: those, or what is left of the time if that is less; for `timeout`, to which 0 is no limit.
at_most() { local most; most=$(left); echo $((most < 1 ? 1 : most < $1 ? most : $1)); }
leave_out() { left_out+=("$1"); tell "left out: $1"; }
fail() { failed+=("$1"); tell "FAILED: $1"; }

# ask_for LIST PART...: of the parts that there are those that LIST names, by commas.
ask_for() {
  local part asked=,$1,
  shift
  for part in "$@"; do
    if [[ $asked = *,$part,* ]]; then parts_wanted+=("$part"); else parts_unwanted+=("$part"); fi
  done
  for part in ${asked//,/ }; do
    [[ " $* " = *" $part "* ]] || wrong_usage "no part is called '$part': there are $*"
  done
  [ ${#parts_wanted[@]} -gt 0 ] || wrong_usage "no part is asked for: there are $*"
}
wants() { [[ " ${parts_wanted[*]} " = *" $1 "* ]]; }

# What GoogleTest, CTest and compute-sanitizer's tools print as soon as something has failed. Not what the tools say of
# a program that was ended, nor what racecheck takes for a warning.
failures='^\[  FAILED  \]|:[0-9]+: Failure$|\*\*\*(Failed|Timeout|Exception)|^========= ('
failures+='Invalid |Uninitialized |Misaligned |Leaked |Barrier error|Malloc/Free |Host API (memory|uninit)'
failures+='|(Error|ERROR): (Race|Potential) |(ERROR|LEAK) SUMMARY: [1-9]|RACECHECK SUMMARY: .*\([1-9][0-9]* error)'

# head_output TEXT: what follows in output.txt is of that.
head_output() { printf '\n$ %s\n' "$*" >>"$output"; }

# timed LOG LIMIT COMMAND...: leaves in LOG.end its exit code, its seconds, and for how many of them it had said
# nothing.
timed() {
  local log=$1 limit=$2 started=$SECONDS code=0
  shift 2
  timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null || code=$?
  echo $code $((SECONDS - started)) $(($(date +%s) - $(stat -c %Y "$log"))) >"$log.end"
}

# judge NAME LOG LIMIT [SILENCE]: says what became of what was timed. LIMIT: of its seconds, if it was the deadline that
# made it, for then to be cut off is no fault, as long as nothing had failed, and it had said something in the last
# SILENCE seconds (default: 60); else empty.
judge() {
  local name=$1 log=$2 limit=$3 silence=${4:-60} code took still found
  read -r code took still <"$log.end"
  cat "$log" >>"$output"
  found=$(grep -a -m 1 -E "$failures" "$log" || true)
  if [ "$code" -eq 0 ] && [ -z "$found" ]; then
    tell "$name: ok, $took s"
  elif [ -z "$found" ] && [ -n "$limit" ] && [ "$took" -ge "$limit" ] && [[ $code = 124 || $code = 137 ]] &&
    [ "$still" -lt "$silence" ]; then
    leave_out "$name, which had not ended after $took s, and had said nothing for $still s: there is no time for more"
  else
    failed+=("$name")
    tell "$name: FAILED with exit code $code after $took s, the last $still of them silent${found:+: $found}"
    tell "$(tail -n 15 "$log")"
  fi
}

# run NAME SECONDS COMMAND...: into WORK/last.log, where there is time.
run() {
  local name=$1 limit=$2 cut=''
  shift 2
  : >"$work/last.log"
  if [ "$(left)" -lt 5 ]; then leave_out "$name, for which no time was left"; return 0; fi
  if [ "$limit" -gt "$(left)" ]; then limit=$(left) cut=$limit; fi
  head_output "$*"
  timed "$work/last.log" "$limit" "$@"
  judge "$name" "$work/last.log" "$cut"
}

# listed WHAT TEXT...: says them, one a line; or that there are none.
listed() { if [ $# -eq 1 ]; then tell "$1: nothing"; else tell "$1:"; tell "$(printf '   %s\n' "${@:2}")"; fi; }

# end_with_verdict: ends the script with 1 if something failed, else with 2 if something was left out, else with 0.
end_with_verdict() {
  say "Verdict"
  tell "$SECONDS s in all"
  listed "failed" "${failed[@]}"
  listed "left out" "${left_out[@]}"
  [ ${#parts_unwanted[@]} -eq 0 ] || listed "not asked for" "${parts_unwanted[@]}"
  [ ${#failed[@]} -eq 0 ] || exit 1
  [ ${#left_out[@]} -eq 0 ] || exit 2
  exit 0
}
