#!/bin/bash
# Measures what encryption at rest costs, in one run: two stores on this machine, one with and one without,
# in turns, with every write synced. Their cache of rows and their memtables are small, so that GET reads
# RocksDB's files, too. Prints medians of requests per second, and the CPU time of the store per request.
#
#   bench-encryption.sh STEELYARD [ROUNDS] [REQUESTS]
set -euo pipefail
steelyard=$1 rounds=${2:-3} requests=${3:-20000}
dir=$(mktemp -d /tmp/steelyard-rest-XXXXXX)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT

(umask 077 && od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >"$dir/key")
base=$((12000 + RANDOM % 3000 * 3)) # below the ports of outgoing connections
declare -A port pid
for mode in plain encrypted; do
	[ $mode = plain ] && port[$mode]=$base || port[$mode]=$((base + 3))
	flags=()
	[ $mode = encrypted ] && flags=(--encryption-key-file "$dir/key")
	"$steelyard" serve --port "${port[$mode]}" --peer-port $((port[$mode] + 1)) --admin-port $((port[$mode] + 2)) \
		--probe no --reserve 16mb --io-threads 1 --maxmemory 64mb "${flags[@]}" --dir "$dir/$mode" \
		>"$dir/$mode.log" 2>&1 &
	pids+=($!)
	pid[$mode]=$!
	until redis-cli -p "${port[$mode]}" set warm up 2>/dev/null | grep -q OK; do sleep 0.1; done
	# Rows that do not fit in RAM.
	redis-benchmark -p "${port[$mode]}" -c 50 -P 16 -n $((requests * 10)) -r 200000 -d 500 -t set -q >/dev/null
done

# Prints the CPU time of the store of a mode, in ticks of 10 ms.
ticks() { awk '{print $14 + $15}' "/proc/${pid[$1]}/stat"; }

for round in $(seq "$rounds"); do
	for load in set get; do
		for pipeline in 1 16; do
			for mode in plain encrypted; do
				count=$((requests * (pipeline > 1 ? 5 : 1)))
				before=$(ticks $mode)
				rate=$(redis-benchmark -p "${port[$mode]}" -c 50 -P $pipeline -n $count -r 200000 -d 500 -t $load --csv |
					awk -F'"' '/^"(SET|GET)"/ {print $4}')
				echo "$load $pipeline $mode $rate $(($(ticks $mode) - before)) $count" >>"$dir/figures"
			done
		done
	done
	echo "round $round of $rounds" >&2
done

# Prints the median of a figure: of the rate, or of the CPU time of a request in microseconds.
median() {
	awk -v load="$1" -v pipeline="$2" -v mode="$3" -v what="$4" \
		'$1 == load && $2 == pipeline && $3 == mode {print what == "rate" ? $4 : $5 * 10000 / $6}' "$dir/figures" |
		sort -n | awk '{all[NR] = $1} END {print all[int((NR + 1) / 2)]}'
}
printf "%-16s %12s %12s %7s %14s %14s\n" load "requests/s" encrypted ratio "CPU us/request" encrypted
for load in set get; do
	for pipeline in 1 16; do
		awk -v name="$load, pipeline $pipeline" -v a="$(median $load $pipeline plain rate)" \
			-v b="$(median $load $pipeline encrypted rate)" -v x="$(median $load $pipeline plain cpu)" \
			-v y="$(median $load $pipeline encrypted cpu)" \
			'BEGIN {printf "%-16s %12.0f %12.0f %7.2f %14.1f %14.1f\n", name, a, b, b / a, x, y}'
	done
done
