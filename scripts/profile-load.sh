#!/bin/bash
# Serves the load for the profile of `make dist`: the tests of redis-benchmark and a script on one store, in pipelines
# and without, and the same on three stores in cluster mode. The program writes its counts when it ends.
#
#   profile-load.sh STEELYARD
set -euo pipefail
steelyard=$1
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/steelyard-profile-XXXXXX")
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT
fail() { # keeps the logs
	echo "profile-load: $*; see $dir" >&2
	trap - EXIT
	kill "${pids[@]}" 2>/dev/null || true
	exit 1
}
end() {
	kill "${pids[@]}" && wait "${pids[@]}" || fail "the stores did not end by themselves"
	pids=()
}

# Ports that nobody listens at: of clients, and 10,000 and 20,000 above them of the playground's stores. All are below
# the ports of outgoing connections, of which the load has many.
for _ in $(seq 50); do
	base=$((10000 + RANDOM % 2700))
	for port in $(seq $base $((base + 9))); do
		for beside in 0 10000 20000; do
			(: <"/dev/tcp/127.0.0.1/$((port + beside))") 2>/dev/null && continue 3
		done
	done
	break
done
await() { # a new cluster's version rises a few seconds after its start
	for _ in $(seq 600); do
		kill -0 "${pids[@]}" 2>/dev/null || fail "the stores have ended"
		redis-cli -c -p $base sadd warm up 2>/dev/null | grep -qx "[01]" && return
		sleep 0.1
	done
	fail "the stores do not serve"
}
load() { redis-benchmark -p $base -c 50 -r 100000 -q "$@" >"$dir/load.log" 2>&1 || fail "a load failed: $*"; }

"$steelyard" serve --port $base --peer-port $((base + 1)) --admin-port $((base + 2)) --fsync always --probe no \
	--dir "$dir/one" >"$dir/one.log" 2>&1 &
pids+=($!)
await
for test in ping_mbulk set get incr lpush rpush lpop rpop sadd hset spop zadd zpopmin mset; do load -n 60000 -t $test; done
load -n 15000 -t lrange_100,lrange_300
for test in set get; do load -n 60000 -d 1024 -t $test; done
load -n 300000 -P 16 -d 1024 -t set
load -n 500000 -P 16 -d 1024 -t get
load -n 200000 -P 16 -t set,get,incr,sadd,hset,spop,lpush,lpop,zadd,zpopmin
load -n 30000 -P 4 eval "return redis.call('incr',KEYS[1])" 1 script:__rand_int__
end

"$steelyard" playground --stores 3 --regions 3 --cluster-enabled --port $base --dir "$dir/three" >"$dir/three.log" 2>&1 &
pids+=($!)
await
for clients in 64 512; do load --cluster -c $clients -r 10000000 -d 1024 -n 100000 -t set; done
load --cluster -c 64 -n 60000 -t set,get,incr,hset,zadd
end
