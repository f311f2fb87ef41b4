#!/bin/bash
# Compares what TLS costs with redis-server and with Steelyard, in one run: redis-benchmark with fifty
# connections, each server with and without TLS, in turns. Then GETs over 50, 1,000 and 5,000 connections,
# or other numbers of them, that begin at once, with TLS, and the memory that each server takes for them.
# Prints the medians and ratios.
#
#   bench-tls.sh STEELYARD [ROUNDS] [REQUESTS] [CONNECTIONS ...]
set -euo pipefail
steelyard=$1 rounds=${2:-3} requests=${3:-200000}
numbers=("${@:4}")
[ ${#numbers[@]} -gt 0 ] || numbers=(50 1000 5000)
dir=$(mktemp -d /tmp/steelyard-tls-XXXXXX)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1 \
	-addext subjectAltName=IP:127.0.0.1 -keyout "$dir/key" -out "$dir/crt" 2>/dev/null
base=$((20000 + RANDOM % 10000)) # the four ports for clients are base to base + 3
mkdir "$dir/redis"
redis-server --port $base --maxclients 10100 --tls-port $((base + 1)) --tls-cert-file "$dir/crt" --tls-key-file "$dir/key" \
	--tls-auth-clients no --save "" --appendonly yes --appendfsync no --dir "$dir/redis" >"$dir/redis.log" 2>&1 &
pids+=($!)
"$steelyard" serve --port $((base + 2)) --peer-port $((base + 4)) --admin-port $((base + 5)) \
	--tls-port $((base + 3)) --tls-cert-file "$dir/crt" --tls-key-file "$dir/key" --tls-auth-clients no \
	--maxclients 10100 --maxmemory 3gb --fsync no --probe no --dir "$dir/steelyard" >"$dir/steelyard.log" 2>&1 &
pids+=($!)
for port in $base $((base + 2)); do
	until redis-cli -p "$port" set warm up 2>/dev/null | grep -q OK; do sleep 0.1; done
done

for round in $(seq "$rounds"); do
	for pipeline in 1 16; do
		for server in redis steelyard; do
			for mode in plain tls; do
				port=$base flags=()
				[ $server = steelyard ] && port=$((port + 2))
				[ $mode = tls ] && port=$((port + 1)) && flags=(--tls --cacert "$dir/crt")
				redis-benchmark -p $port "${flags[@]}" -c 50 -n "$requests" -P $pipeline -r 100000 -d 100 -t set,get --csv |
					awk -F'"' -v k="$server $mode $pipeline" '/^"(SET|GET)"/ {print $2, k, $4}' >>"$dir/figures"
			done
		done
	done
	echo "round $round of $rounds" >&2
done

sort -k1,4 -k5n "$dir/figures" | awk '
	{ key = $1 " " $2 " " $3 " " $4; n[key]++; value[key, n[key]] = $5 }
	END {
		for (key in n) median[key] = value[key, int((n[key] + 1) / 2)]
		printf "%-4s %8s %12s %12s %8s %12s %12s %8s %10s\n", "", "pipeline", "redis", "redis TLS", "ratio",
			"steelyard", "steel. TLS", "ratio", "TLS: s/r"
		split("SET GET", commands, " "); split("1 16", pipelines, " ")
		for (c = 1; c <= 2; c++) for (p = 1; p <= 2; p++) {
			k = commands[c]; q = pipelines[p]
			a = median[k " redis plain " q]; b = median[k " redis tls " q]
			x = median[k " steelyard plain " q]; y = median[k " steelyard tls " q]
			printf "%-4s %8s %12.0f %12.0f %8.2f %12.0f %12.0f %8.2f %10.2f\n", k, q, a, b, b / a, x, y, y / x, y / b
		}
	}'

declare -A rss
for round in $(seq "$rounds"); do
	for connections in "${numbers[@]}"; do
		for server in 0 1; do
			# While the clients are connected, the peak of the server's memory is sampled.
			(while sleep 0.2; do awk '/VmRSS/ {print $2}' /proc/${pids[$server]}/status; done >"$dir/rss") &
			sampler=$!
			# Without the limit, it would wait for ever for connections that a server has ended.
			{ timeout 120 redis-benchmark -p $((base + 2 * server + 1)) --tls --cacert "$dir/crt" -c $connections \
				-n "$requests" -r 100000 -d 100 -t get --csv || echo "$connections clients did not get through" >&2; } |
				awk -F'"' -v k="$connections $server" '/^"GET"/ {print k, $4}' >>"$dir/many"
			kill $sampler
			wait $sampler 2>/dev/null || true
			peak=$(sort -n "$dir/rss" | tail -1)
			key=$connections-$server
			[ "${rss[$key]:-0}" -ge "$peak" ] || rss[$key]=$peak
		done
	done
done
echo
echo "GET over TLS, pipeline 1; MiB is the peak of the server's RSS"
printf "%12s %12s %8s %12s %8s %10s\n" connections redis MiB steelyard MiB "TLS: s/r"
for connections in "${numbers[@]}"; do
	for server in 0 1; do
		rate[$server]=$(awk -v k="$connections $server" '$1 " " $2 == k {print $3}' "$dir/many" | sort -n |
			awk '{v[NR] = $1} END {print NR ? v[int((NR + 1) / 2)] : 0}')
	done
	awk -v c=$connections -v a="${rate[0]}" -v b="${rate[1]}" -v ra="${rss[$connections-0]}" -v rb="${rss[$connections-1]}" \
		'BEGIN {printf "%12d %12.0f %8.0f %12.0f %8.0f %10.2f\n", c, a, ra / 1024, b, rb / 1024, (a > 0 ? b / a : 0)}'
done
