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

# automake_results DIR prints the results that automake's test driver left in a directory.
automake_results() {
  local f name
  for f in "$1"/*.trs; do
    name=$(basename "$f" .trs)
    case $(sed -n 's/^:test-result: //p' "$f" | head -1) in
    PASS) echo "ok - $name" ;;
    SKIP) echo "ok - $name # skip" ;;
    *)
      echo "not ok - $name"
      cat "${f%.trs}.log" >&2
      ;;
    esac
  done
}
