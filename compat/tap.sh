# Shared by the suites that report in the Test Anything Protocol; sourced, not run.

# t NAME COMMAND… runs the command as one case. Its output goes to standard error.
t() {
  local name=$1
  shift
  if "$@" >&2 </dev/null; then echo "ok - $name"; else echo "not ok - $name"; fi
}

# has TEXT COMMAND… succeeds if the command's output has the text.
has() {
  local text=$1 out
  shift
  out=$("$@" 2>&1)
  echo "$out"
  grep -qF -- "$text" <<<"$out"
}

# soon COMMAND… runs the command until it succeeds, for at most ten seconds.
soon() {
  local i
  for ((i = 0; i < 100; i++)); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  "$@"
}
