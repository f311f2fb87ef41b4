#!/bin/bash
# Measures what encryption at rest costs, in one run: two stores on this machine, one with and one without it,
# in turns. Prints medians of requests per second and of the store's CPU time for each request:
#   SET  1 KiB, with syncs (`fsync always`) and without
#   GET  of values in RAM, and of values that only flash has (four fifths of them; no page cache)
#
#   bench-encryption.sh STEELYARD [ROUNDS] [REQUESTS]
set -euo pipefail
steelyard=$1 rounds=${2:-5} requests=${3:-100000}
keys=400000 # of 1 KiB each, five times the memory
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/steelyard-encryption-XXXXXX")
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT

head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/master"
chmod 600 "$dir/master"
base=$((20000 + RANDOM % 10000))
declare -A port pid
# Starts a store: its name, its mode, then other flags.
start() {
	local name=$1 mode=$2 flags=()
	shift 2
	[ "$mode" = encrypted ] && flags=(--encryption-key-file "$dir/master")
	port[$name]=$base
	"$steelyard" serve --port $base --peer-port $((base + 1)) --admin-port $((base + 2)) --probe no --io-threads 1 \
		--maxmemory 256mb "$@" "${flags[@]}" --dir "$dir/$name" >"$dir/$name.log" 2>&1 &
	pid[$name]=$!
	pids+=($!)
	base=$((base + 3))
	until redis-cli -p "${port[$name]}" set warm up 2>/dev/null | grep -q OK; do sleep 0.1; done
}
for mode in plain encrypted; do
	start $mode-always $mode --fsync always
	start $mode-no $mode --fsync no --rocksdb-profile redis-on-flash
done

# Prints the CPU time of a store, in ticks of 10 ms.
ticks() {
	awk '{print $14 + $15}' "/proc/${pid[$1]}/stat"
}

# Waits until no store works in the background, for at most ten seconds.
settle() {
	local before after
	for _ in $(seq 20); do
		before=$(cat /proc/{"${pids[0]}","${pids[1]}","${pids[2]}","${pids[3]}"}/stat | awk '{sum += $14 + $15} END {print sum}')
		sleep 0.5
		after=$(cat /proc/{"${pids[0]}","${pids[1]}","${pids[2]}","${pids[3]}"}/stat | awk '{sum += $14 + $15} END {print sum}')
		[ $((after - before)) -gt 4 ] || return 0
	done
}

# Runs a load and notes its figures: the name, the mode, the store, then options of redis-benchmark.
load() {
	local what=$1 mode=$2 name=$3 before rate
	shift 3
	settle
	before=$(ticks "$name")
	rate=$(redis-benchmark -p "${port[$name]}" -c 50 -d 1024 --csv "$@" | awk -F'"' '/^"(SET|GET)"/ {print $4}')
	echo "$what|$mode|$rate|$(($(ticks "$name") - before))|${count:-$requests}" >>"$dir/figures"
}

for mode in plain encrypted; do
	# Every key once, then time to write rows to flash.
	for number in $(seq 0 $((keys - 1))); do printf 'SET key:%012d %01024d\r\n' "$number" "$number"; done |
		redis-cli -p "${port[$mode-no]}" --pipe >/dev/null
done
for round in $(seq "$rounds"); do
	# Another one begins each round.
	[ $((round % 2)) = 1 ] && modes="plain encrypted" || modes="encrypted plain"
	for mode in $modes; do load "SET, synced" $mode $mode-always -t set -n "$requests" -r 50000; done
	for mode in $modes; do
		count=$((requests * 4)) load "SET, synced, pipeline 16" $mode $mode-always -t set -P 16 -n $((requests * 4)) -r 50000
	done
	for mode in $modes; do load "GET from RAM" $mode $mode-always -t get -n "$requests" -r 1000; done
	for mode in $modes; do load "GET from flash" $mode $mode-no -t get -n "$requests" -r $keys; done
	for mode in $modes; do
		count=$((requests * 4)) load "SET, not synced, pipeline 16" $mode $mode-no -t set -P 16 -n $((requests * 4)) -r $keys
	done
	echo "round $round of $rounds" >&2
done

# Prints the median of a figure: of the rate, or of the CPU time of a request in microseconds.
median() {
	awk -F'|' -v what="$1" -v mode="$2" -v figure="$3" \
		'$1 == what && $2 == mode {print figure == "rate" ? $3 : $4 * 10000 / $5}' "$dir/figures" | sort -n |
		awk '{all[NR] = $1} END {print all[int((NR + 1) / 2)]}'
}
grep -m1 -o -w aes /proc/cpuinfo | sed 's/.*/The processor has instructions for AES./' || echo "The processor has no instructions for AES."
began=$(date +%s%N)
dd if=/dev/zero of="$dir/probe" bs=4k count=500 oflag=dsync status=none
echo "A synchronous write of 4 KiB takes $((($(date +%s%N) - began) / 500000)) us."
printf "%-30s %10s %10s %7s %15s %10s %11s\n" load plain encrypted ratio "CPU us/request" encrypted difference
while read -r what; do
	awk -v w="$what" -v a="$(median "$what" plain rate)" -v b="$(median "$what" encrypted rate)" \
		-v x="$(median "$what" plain cpu)" -v y="$(median "$what" encrypted cpu)" \
		'BEGIN {printf "%-30s %10.0f %10.0f %7.2f %15.1f %10.1f %11.1f\n", w, a, b, b / a, x, y, y - x}'
done < <(cut -d'|' -f1 "$dir/figures" | awk '!seen[$0]++')
