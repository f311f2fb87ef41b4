#!/bin/bash
# Builds the programs for use, into dist/ of cargo's target directory: fat LTO, and a profile of how often each branch is
# taken. The compiler measures the profile with a build that counts, which serves a load for about a minute
# (profile-load.sh). So it compiles twice. PROFILE=no leaves the profile out.
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:?scripts/setup.sh prints it}"
say() { printf 'dist: %s\n' "$*" >&2; }

plain() {
	rm -f "$target/dist/PROFILED"
	exec cargo build --profile dist --locked -p steelyard -p steelyard-lab -p steelyard-devshim
}
[ "${PROFILE:-yes}" != no ] || plain

host=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
merger() {
	local own
	own="$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata"
	[ -x "$own" ] && echo "$own" && return
	command -v "llvm-profdata-$llvm"
}
if ! merger >/dev/null && command -v rustup >/dev/null; then
	say "adding the component llvm-tools to the Rust toolchain: it merges the profile"
	rustup component add llvm-tools >&2 || say "it could not be added"
fi
if ! merger >/dev/null; then
	say "no llvm-profdata of LLVM $llvm (rustup component add llvm-tools, or the package llvm-$llvm): building without a profile"
	plain
fi

# What the programs depend on. The same sources are not compiled again.
sources=$( (rustc -vV; echo "${ROCKSDB_LIB_DIR:-}"; find Cargo.toml Cargo.lock crates vendor scripts -type f -print0 | sort -z | xargs -0 sha256sum) |
	sha256sum | cut -c1-16)
built="$target/dist-profiled"
programs() { (cd "$target/dist" && echo "$sources" && sha256sum steelyard steelyard-lab) 2>/dev/null; }
if ! [ -e "$target/dist/PROFILED" ] || [ "$(programs)" != "$(cat "$target/dist/PROFILED")" ]; then
	rm -f "$target/dist/PROFILED"
	counts="$target/dist-counts"
	rm -rf "$counts" && mkdir -p "$counts"
	say "1/3 compiling the programs that count (about eight minutes on two cores)"
	RUSTFLAGS="-Cprofile-generate=$counts" CARGO_TARGET_DIR="$target/dist-counting" \
		cargo build --profile dist --locked -p steelyard --target "$host"
	say "2/3 serving a load for about a minute"
	scripts/profile-load.sh "$target/dist-counting/$host/dist/steelyard" >&2
	"$(merger)" merge -o "$counts/$sources.profdata" "$counts"/*.profraw
	say "3/3 compiling the programs with the profile (about eight minutes)"
	RUSTFLAGS="-Cprofile-use=$counts/$sources.profdata" CARGO_TARGET_DIR="$built" \
		cargo build --profile dist --locked -p steelyard -p steelyard-lab --target "$host"
	cargo build --profile dist --locked -p steelyard-devshim
	for program in steelyard steelyard-lab; do
		cp -f "$built/$host/dist/$program" "$target/dist/.$program"
		mv -f "$target/dist/.$program" "$target/dist/$program"
	done
	programs >"$target/dist/PROFILED"
fi
