#!/bin/sh
# Builds the init and the launcher for each architecture into the folder given, or into
# this one. The same compiler gives the same bytes; init.toolchain names the
# compilers that the files in this folder were built with.
# Debian: apt-get install gcc gcc-aarch64-linux-gnu
set -eu
src=$(cd "$(dirname "$0")" && pwd)
out=${1:-$src}
export LC_ALL=C SOURCE_DATE_EPOCH=0

# identify COMPILER: the exact versions of a compiler and its linker.
identify() {
	"$1" --version | head -n 1
	"$1" -Wl,--version -nostdlib 2>/dev/null | head -n 1
}

# build ARCH COMPILER [FLAG...]
build() {
	for program in init launch; do
		compile $program "$@"
	done
}

# compile PROGRAM ARCH COMPILER [FLAG...]
compile() {
	program=$1 arch=$2 cc=$3
	shift 3
	"$cc" -std=gnu11 -Os -Wall -Wextra -Werror "$@" \
		-ffreestanding -fno-stack-protector -fno-pie -fno-ident \
		-fno-asynchronous-unwind-tables -fno-unwind-tables \
		-fno-tree-loop-distribute-patterns \
		-nostdlib -static -no-pie -s \
		-Wl,--build-id=none -Wl,-z,noexecstack -Wl,-z,noseparate-code \
		-o "$out/${program}_$arch.elf" "$src/$program.c"
	chmod 0644 "$out/${program}_$arch.elf"
}

build amd64 "${CC_AMD64:-x86_64-linux-gnu-gcc}" -fcf-protection=none
build arm64 "${CC_ARM64:-aarch64-linux-gnu-gcc}" -mbranch-protection=none -mno-outline-atomics
{
	identify "${CC_AMD64:-x86_64-linux-gnu-gcc}"
	identify "${CC_ARM64:-aarch64-linux-gnu-gcc}"
} >"$out/init.toolchain"
