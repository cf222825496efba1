# Shared by the scripts beside it; sourced, not run.

# as_root runs a command as root: directly, or with sudo.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# need_package COMMAND PACKAGE installs a package unless the command is there.
need_package() {
  command -v "$1" >/dev/null 2>&1 && return
  echo "installing $2" >&2
  if command -v apt-get >/dev/null 2>&1; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$2" >/dev/null 2>&1 ||
      { as_root apt-get update -q >/dev/null && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$2" >/dev/null; }
  elif command -v dnf >/dev/null 2>&1; then
    as_root dnf install -y -q "$2"
  elif command -v pacman >/dev/null 2>&1; then
    as_root pacman -S --noconfirm "$2"
  else
    echo "install $2 with your system's package manager, then run this again" >&2
    return 1
  fi
}

# need_test_user makes the ordinary user that root runs tests as, unless there is one.
need_test_user() {
  id cloche-test >/dev/null 2>&1 || useradd --system --create-home --shell /bin/sh cloche-test
}

# go_tool MODULE@VERSION installs a Go tool once for each version and prints its path.
go_tool() {
  local dir name
  name=$(basename "${1%@*}")
  dir=$(go env GOCACHE)/cloche-tools/${1##*@}
  [ -x "$dir/$name" ] || CGO_ENABLED=0 GOBIN=$dir go install "$1" >&2
  echo "$dir/$name"
}
