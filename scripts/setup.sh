#!/bin/sh
# Prepares a Debian machine to build and test, then prints the environment that the build needs as
# shell assignments on stdout. Everything meant for a person goes to stderr.
#   eval "$(scripts/setup.sh)"
# A target that needs more names itself, and what it needs is installed as well:
#   eval "$(scripts/setup.sh bench-peers)"     # or test-faults, test-clients, test-redis-py
set -eu
say() { printf 'setup: %s\n' "$*" >&2; }

# Where `service` is, which users other than root have in no search path.
PATH=$PATH:/usr/sbin:/sbin

missing=
need() { # package, reason, test command...
    package=$1 reason=$2
    shift 2
    case " $missing " in *" $package "*) return 0 ;; esac
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
need zookeeper "the tests of elections whose candidates ZooKeeper chooses" test -e /usr/share/java/zookeeper.jar
need iproute2 "the tests that cut networks" command -v ip

need_go() { # reason
    need golang-go "$1" command -v go
    need ca-certificates "Go modules are fetched over HTTPS" test -e /etc/ssl/certs/ca-certificates.crt
}
for target in "$@"; do
    case "$target" in
        bench-peers)
            need etcd-server "the neighbour that three stores are measured beside" command -v etcd
            need_go "go-ycsb, which asks both sides, is built with it" ;;
        test-faults)
            need_go "Porcupine, which judges every history again, is built with it" ;;
        test-clients)
            need python3-venv "redis-py is installed into a directory of its own" python3 -c 'import ensurepip, venv'
            need nodejs "ioredis runs on it" command -v node
            need npm "installs ioredis" command -v npm
            need maven "fetches Jedis" command -v mvn
            need default-jdk-headless "compiles and runs the program that uses Jedis" command -v javac
            need_go "go-redis is built with it" ;;
        test-redis-py)
            need python3-venv "redis-py is installed into a directory of its own" python3 -c 'import ensurepip, venv' ;;
        *)
            say "'$target' is no target that needs more: bench-peers, test-faults, test-clients, test-redis-py"
            exit 2 ;;
    esac
done

# The service that a package starts when it is installed.
service_of() { # package
    case "$1" in
        redis-server) echo redis-server ;;
        etcd-server) echo etcd ;;
    esac
}
is_running() { # service
    command -v service >/dev/null && service "$1" status >/dev/null 2>&1
}

root=
[ "$(id -u)" = 0 ] || root=sudo
install_package() { # package
    service=$(service_of "$1")
    was_running=no
    [ -z "$service" ] || ! is_running "$service" || was_running=yes
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >&2 ||
        say "$1 could not be installed"
    # It would take its port, and nobody asked for it.
    if [ -n "$service" ] && [ "$was_running" = no ] && is_running "$service"; then
        say "stopping the service $service, which the installation started"
        $root service "$service" stop >&2 || say "the service $service could not be stopped"
    fi
}
if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null; then
        say "no apt-get here; install by hand:$missing"
    elif [ -n "$root" ] && ! command -v sudo >/dev/null; then
        say "not root and no sudo; install by hand:$missing"
    else
        say "installing:$missing"
        $root apt-get update -qq >&2 || say "apt-get update failed; trying with the lists that are here"
        for package in $missing; do
            install_package "$package"
        done
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
