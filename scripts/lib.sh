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

# debian_source PACKAGE unpacks the source of a package of Debian or Ubuntu into the directory
# PACKAGE, unless it is there. apt gets private lists, because the system's may have no sources.
debian_source() {
  [ ! -d "$1" ] || return 0
  need_package dpkg-source dpkg-dev
  local apt options release id try
  apt=$(go env GOCACHE)/cloche-compat/apt
  mkdir -p "$apt/lists/partial" "$apt/archives/partial"
  release=$(. /etc/os-release && echo "$VERSION_CODENAME")
  id=$(. /etc/os-release && echo "$ID")
  if [ "$id" = ubuntu ]; then
    printf 'deb-src http://archive.ubuntu.com/ubuntu %s main\n' "$release" "$release-updates" "$release-security" >"$apt/sources"
  else
    printf 'deb-src http://deb.debian.org/%s main\n' "debian $release" "debian $release-updates" "debian-security $release-security" >"$apt/sources"
  fi
  options=(-qq -o "Dir::Etc::sourcelist=$apt/sources" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt"
    -o APT::Sandbox::User=root -o Acquire::Retries=3)
  echo "fetching the source of $1" >&2
  # Lists of an earlier day may name files that the mirror no longer has.
  for try in 1 2; do
    rm -rf "$apt/$1" && mkdir "$apt/$1"
    [ $try = 1 ] && [ -n "$(ls "$apt"/lists/*_Sources* 2>/dev/null)" ] || apt-get "${options[@]}" update >&2 || return
    if (cd "$apt/$1" && apt-get "${options[@]}" source "$1" >&2); then break; elif [ $try = 2 ]; then return 1; fi
  done
  mv "$apt/$1"/"$1"-*/ "$1" && rm -rf "${apt:?}/$1"
}
