#!/bin/bash
# Measures what TLS between stores costs, in one run: two clusters of three stores on this machine, one
# with and one without, in turns, without syncs, and beside them two redis-servers with two replicas each,
# with and without tls-replication. With one connection each SET is an entry of its own; with fifty, entries
# hold several. Prints medians of requests per second, and the CPU time of the three processes per request.
#
#   bench-tls-stores.sh STEELYARD [ROUNDS] [REQUESTS]
set -euo pipefail
steelyard=$1 rounds=${2:-3} requests=${3:-20000}
dir=$(mktemp -d /tmp/steelyard-tls-XXXXXX)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT

"$steelyard" ctl tls init --dir "$dir/tls" --stores 3 >/dev/null
base=$((12000 + RANDOM % 3000 * 3)) # below the ports of outgoing connections
declare -A leader processes
for mode in plain tls; do
	[ $mode = plain ] && port=$base || port=$((base + 9))
	list="0=127.0.0.1:$port:$((port + 3)):$((port + 6)),1=127.0.0.1:$((port + 1)):$((port + 4)):$((port + 7)),2=127.0.0.1:$((port + 2)):$((port + 5)):$((port + 8))"
	for id in 0 1 2; do
		flags=()
		[ $mode = tls ] && flags=(--tls-cluster yes --tls-ca-cert-file "$dir/tls/ca.crt"
			--tls-cert-file "$dir/tls/store-$id.crt" --tls-key-file "$dir/tls/store-$id.key")
		"$steelyard" serve --store-id $id --stores "$list" --fsync no --probe no --reserve 16mb --io-threads 1 \
			"${flags[@]}" --dir "$dir/$mode-$id" >"$dir/$mode-$id.log" 2>&1 &
		pids+=($!)
		processes[steelyard-$mode]="${processes[steelyard-$mode]:-} $!"
	done
	until redis-cli -p "$port" set warm up 2>/dev/null | grep -q OK; do sleep 0.1; done
	# The clients ask the leader.
	id=$("$steelyard" ctl regions --json --admin 127.0.0.1:$((port + 6)) |
		awk '/"id": 1,/ {found = 1} found && /"leader":/ {gsub(/[^0-9]/, ""); print; exit}')
	leader[steelyard-$mode]=$((port + id))
done
for mode in plain tls; do
	[ $mode = plain ] && port=$((base + 18)) || port=$((base + 24))
	for id in 0 1 2; do
		flags=()
		[ $mode = tls ] && flags=(--tls-replication yes --tls-port $((port + id + 3)) --tls-ca-cert-file "$dir/tls/ca.crt"
			--tls-cert-file "$dir/tls/store-$id.crt" --tls-key-file "$dir/tls/store-$id.key")
		master=$port
		[ $mode = tls ] && master=$((port + 3))
		[ $id = 0 ] || flags+=(--replicaof 127.0.0.1 $master)
		mkdir "$dir/redis-$mode-$id"
		redis-server --port $((port + id)) --save "" --appendonly yes --appendfsync no --repl-diskless-sync-delay 0 \
			"${flags[@]}" --dir "$dir/redis-$mode-$id" >"$dir/redis-$mode-$id.log" 2>&1 &
		pids+=($!)
		processes[redis-$mode]="${processes[redis-$mode]:-} $!"
	done
	until redis-cli -p "$port" info replication 2>/dev/null | grep -c 'state=online' | grep -q 2; do sleep 0.1; done
	leader[redis-$mode]=$port
done

# Prints the CPU time of three processes, in ticks of 10 ms.
ticks() {
	local total=0 pid
	for pid in ${processes[$1]}; do
		total=$((total + $(awk '{print $14 + $15}' "/proc/$pid/stat")))
	done
	echo $total
}

for round in $(seq "$rounds"); do
	for clients in 1 50; do
		for of in steelyard-plain steelyard-tls redis-plain redis-tls; do
			count=$requests
			[ "$clients" = 50 ] && count=$((requests * 5))
			before=$(ticks $of)
			rate=$(redis-benchmark -p "${leader[$of]}" -c "$clients" -n "$count" -r 100000 -d 100 -t set --csv |
				awk -F'"' '/^"SET"/ {print $4}')
			# The replicas of Redis are behind the answers.
			sleep 0.5
			echo "$clients $of $rate $(($(ticks $of) - before)) $count" >>"$dir/figures"
		done
	done
	echo "round $round of $rounds" >&2
done

# Prints the median of a figure: of the rate, or of the CPU time of a request in microseconds.
median() {
	awk -v clients="$1" -v of="$2" -v what="$3" \
		'$1 == clients && $2 == of {print what == "rate" ? $3 : $4 * 10000 / $5}' "$dir/figures" | sort -n |
		awk '{all[NR] = $1} END {print all[int((NR + 1) / 2)]}'
}
printf "%-10s %-12s %10s %10s %7s %14s %14s %14s %7s\n" "" connections "SET/s" "with TLS" ratio "CPU us/request" "with TLS" \
	difference ratio
for server in steelyard redis; do
	for clients in 1 50; do
		awk -v s=$server -v c=$clients -v a="$(median $clients $server-plain rate)" -v b="$(median $clients $server-tls rate)" \
			-v x="$(median $clients $server-plain cpu)" -v y="$(median $clients $server-tls cpu)" \
			'BEGIN {printf "%-10s %-12s %10.0f %10.0f %7.2f %14.1f %14.1f %14.1f %7.2f\n", s, c, a, b, b / a, x, y, y - x, y / x}'
	done
done
