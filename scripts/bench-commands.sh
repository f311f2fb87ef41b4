#!/bin/bash
# Compares the commands of redis-benchmark's default list on Steelyard and on redis-server with `appendfsync always`, in
# one run: both serve each test in turns. Prints a Markdown table of the medians and their ratios.
#
#   bench-commands.sh STEELYARD [ROUNDS] [REQUESTS]
set -euo pipefail
steelyard=$1 rounds=${2:-3} requests=${3:-100000}
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/steelyard-commands-XXXXXX")
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT

base=$((20000 + RANDOM % 10000))
mkdir "$dir/redis"
redis-server --port $base --save "" --appendonly yes --appendfsync always --dir "$dir/redis" >"$dir/redis.log" 2>&1 &
pids+=($!)
"$steelyard" serve --port $((base + 1)) --peer-port $((base + 2)) --admin-port $((base + 3)) --fsync always --probe no \
	--dir "$dir/steelyard" >"$dir/steelyard.log" 2>&1 &
pids+=($!)
# A new cluster's version rises a few seconds after its start.
for port in $base $((base + 1)); do
	until redis-cli -p "$port" sadd warm up 2>/dev/null | grep -qx "[01]"; do sleep 0.1; done
done

tests="ping_mbulk set get incr lpush rpush lpop rpop sadd hset spop zadd zpopmin lrange_100 lrange_300 lrange_500 lrange_600 mset"
for round in $(seq "$rounds"); do
	for test in $tests; do
		for server in redis steelyard; do
			port=$base
			[ $server = steelyard ] && port=$((port + 1))
			n=$requests
			case $test in lrange_*) n=$((requests / 4)) ;; esac
			# The last line is the test's own; LRANGE pushes elements first.
			rate=$(redis-benchmark -p $port -c 50 -n "$n" -r 100000 -t $test --csv | tail -n 1 | awk -F'"' '{print $4}')
			echo "$test $server $rate" >>"$dir/figures"
		done
	done
	redis-cli -p $base flushall >/dev/null
	redis-cli -p $((base + 1)) flushall >/dev/null
	echo "round $round of $rounds" >&2
done

echo "| test | Redis, \`appendfsync always\` | Steelyard | ratio |"
echo "|---|--:|--:|--:|"
for test in $tests; do
	sort -k2,2 -k3n "$dir/figures" | awk -v test="$test" '
		$1 == test { n[$2]++; value[$2, n[$2]] = $3 }
		END {
			r = value["redis", int((n["redis"] + 1) / 2)]; s = value["steelyard", int((n["steelyard"] + 1) / 2)]
			printf "| `%s` | %.0f/s | %.0f/s | %.2f |\n", toupper(test), r, s, s / r
		}'
done
