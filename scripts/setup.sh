#!/bin/sh
# Prepares a Debian machine to build and test, then prints the environment that the build needs as
# shell assignments on stdout. Everything meant for a person goes to stderr.
#   eval "$(scripts/setup.sh)"
set -eu
say() { printf 'setup: %s\n' "$*" >&2; }

missing=
need() { # package, reason, test command...
    package=$1 reason=$2
    shift 2
    "$@" >/dev/null 2>&1 && return 0
    missing="$missing $package"
    say "$package is missing: $reason"
}
need librocksdb-dev "RocksDB, linked instead of compiled" test -e /usr/include/rocksdb/c.h
need libclang-dev "bindgen reads RocksDB's header with it" sh -c 'ls /usr/lib/llvm-*/lib/libclang*.so* | grep -v libclang-cpp'
need gcc "linking, and the C parts of dependencies" command -v gcc
need g++ "RocksDB is C++" command -v g++
need cmake "protoc of the Raft crate is compiled with it" command -v cmake
need redis-server "the oracle of the differential test" command -v redis-server
need redis-tools "redis-cli and redis-benchmark" command -v redis-cli
need strace "the tests that make a sync of the log fail" command -v strace

root=
[ "$(id -u)" = 0 ] || root=sudo
if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null; then
        say "no apt-get here; install by hand:$missing"
    elif [ -n "$root" ] && ! command -v sudo >/dev/null; then
        say "not root and no sudo; install by hand:$missing"
    else
        say "installing:$missing"
        # A redis-server that the package would start takes port 6379, and nobody asked for it.
        was_running=no
        pidof redis-server >/dev/null 2>&1 && was_running=yes
        $root apt-get update -qq >&2 || say "apt-get update failed; trying with the lists that are here"
        for package in $missing; do
            $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2 ||
                say "$package could not be installed"
        done
        case "$missing" in *redis-server*)
            if [ "$was_running" = no ] && command -v service >/dev/null; then
                $root service redis-server stop >&2 || true
            fi ;;
        esac
    fi
fi

if [ -e /usr/include/rocksdb/c.h ]; then
    # The linker's own search path differs between architectures; ask the compiler.
    library=$(gcc -print-file-name=librocksdb.so)
    echo "export ROCKSDB_LIB_DIR='$(cd "$(dirname "$library")" && pwd)'"
    echo "export ROCKSDB_INCLUDE_DIR='/usr/include'"
else
    say "no librocksdb-dev: RocksDB's bundled source will be compiled, about half an hour on two cores"
    echo "export CXXFLAGS='-include cstdint'"
fi
echo "export CARGO_TARGET_DIR='${CARGO_TARGET_DIR:-$HOME/.cache/steelyard-target}'"
