# Servers for the tests of clients: sourced by `run` and `redis_py_suite/run`, which set `steelyard`
# and `work`. Every process is ended by its id.
say() { printf 'clients: %s\n' "$*"; }

rm -f "$work/playground.err"
started=
playground=
finish() {
    status=$?
    for pid in $started $playground; do kill "$pid" 2>/dev/null || true; done
    for pid in $started $playground; do wait "$pid" 2>/dev/null || true; done
    [ "$status" = 0 ] || [ ! -s "$work/playground.err" ] || tail -20 "$work/playground.err" >&2
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

# Prints a port after which there is room for COUNT servers, for their forward ports and for their
# side ports.
free_ports() { # count
    python3 - "$1" <<'PY'
import os, socket, sys
def free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False
count = int(sys.argv[1])
for base in range(7200 + os.getpid() % 50 * 10, 9000, 10):
    if all(free(base + i + side) for i in range(count) for side in (0, 100, 10_000, 20_000)):
        print(base)
        sys.exit()
sys.exit("no free ports")
PY
}

start() { # playground flags...
    rm -f "$work/ready.$$"
    mkfifo "$work/ready.$$"
    "$steelyard" playground --port "$port" "$@" >"$work/ready.$$" 2>"$work/playground.err" &
    playground=$!
    ready=no
    : >"$work/stores"
    while read -r line; do
        say "$line"
        printf '%s\n' "$line" >>"$work/stores"
        if [ "$line" = ready ]; then
            ready=yes
            break
        fi
    done <"$work/ready.$$"
    rm "$work/ready.$$"
    [ "$ready" = yes ] || { say "the playground does not start"; exit 1; }
}

stop() {
    kill "$playground"
    wait "$playground" || true
    playground=
}

start_redis() { # port, flags...
    redis_port=$1
    shift
    rm -rf "$work/redis-$redis_port"
    mkdir -p "$work/redis-$redis_port"
    redis-server --port "$redis_port" --dir "$work/redis-$redis_port" --save '' --bind 127.0.0.1 \
        --enable-debug-command local "$@" >"$work/redis-$redis_port/log" 2>&1 &
    started="$started $!"
    for _ in $(seq 100); do
        [ "$(redis-cli -p "$redis_port" ping 2>/dev/null)" != PONG ] || return 0
        sleep 0.1
    done
    say "redis-server does not start"
    exit 1
}

start_redis_cluster() { # first of three ports
    for n in 0 1 2; do start_redis "$(($1 + n))" --cluster-enabled yes; done
    redis-cli --cluster create "127.0.0.1:$1" "127.0.0.1:$(($1 + 1))" "127.0.0.1:$(($1 + 2))" \
        --cluster-yes >"$work/redis-cluster.out" || { cat "$work/redis-cluster.out"; exit 1; }
    for n in 0 1 2; do
        for _ in $(seq 100); do
            ! redis-cli -p "$(($1 + n))" cluster info | grep -q cluster_state:ok || continue 2
            sleep 0.1
        done
        say "the Redis Cluster does not get ready"
        exit 1
    done
}

stop_redis() {
    for pid in $started; do kill "$pid"; done
    for pid in $started; do wait "$pid" || true; done
    started=
}
