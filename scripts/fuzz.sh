#!/bin/sh
# Fuzzes the targets of fuzz/ one after the other, guided by coverage, for MINUTES in all, or one
# TARGET. Prints a table, and fails after a crash with the path of the input. Expects the build's
# environment, see setup.sh.
#   scripts/fuzz.sh MINUTES [TARGET]
set -eu
minutes=$1 target=${2:-}
cd "$(dirname "$0")/../fuzz"
all=$(sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.toml | grep -v -e '^steelyard-fuzz$' -e '^seeds$')
case "$target" in
    '') targets=$all ;;
    *)
        targets=$(echo "$all" | grep -x -e "$target") || {
            echo "fuzz: no target '$target': $(echo $all)" >&2
            exit 2
        } ;;
esac

# The crates are compiled with checks of overflow and with what libFuzzer needs to see edges and
# comparisons. These are options of the stable compiler. Build scripts are left as they are, because
# a target triple is named.
export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/fuzz" CARGO_INCREMENTAL=0
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
triple=$(rustc -vV | sed -n 's/^host: //p')
bins="--bin seeds"
for name in $targets; do bins="$bins --bin $name"; done
features=
case "$targets" in *store_* | *snapshot_* | *admin_* | *own_*) features="--features server" ;; esac
cargo build --release --locked --target "$triple" $features $bins
programs="$CARGO_TARGET_DIR/$triple/release" made="$CARGO_TARGET_DIR/seeds"
STEELYARD_SEEDS="$made" "$programs/seeds" >"$CARGO_TARGET_DIR/seeds.log" 2>&1 || {
    tail -20 "$CARGO_TARGET_DIR/seeds.log" >&2
    exit 1
}

seconds=$((minutes * 60 / $(echo "$targets" | wc -l)))
[ "$seconds" -gt 0 ] || seconds=1
printf '| target | executions | per second | edges | crashes |\n|---|---|---|---|---|\n'
crashed=
for name in $targets; do
    corpus="$CARGO_TARGET_DIR/corpus/$name" crashes="$CARGO_TARGET_DIR/crashes/$name"
    log="$CARGO_TARGET_DIR/$name.log"
    mkdir -p "$corpus" "$crashes"
    set -- "$corpus"
    for seeds in "seeds/$name" "$made/$name"; do [ ! -d "$seeds" ] || set -- "$@" "$seeds"; done
    for words in "$made/$name.dict" "$name.dict"; do [ ! -f "$words" ] || set -- "$@" "-dict=$words"; done
    # These have no dictionary of their own.
    case "$name" in resp_*) set -- "$@" -dict=resp.dict ;; esac
    # The longest script takes less than this timeout.
    if nice "$programs/$name" "$@" -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=3072 \
        -entropic_scale_per_exec_time=1 -print_final_stats=1 -artifact_prefix="$crashes/" >"$log" 2>&1; then
        found=0
    else
        found=1
        crashed="$crashed $(sed -n 's/.*Test unit written to //p' "$log" | tail -1)"
    fi
    count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    speed=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
    edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
    printf '| `%s` | %s | %s | %s | %s |\n' "$name" "${count:--}" "${speed:--}" "${edges:--}" "$found"
done
[ -z "$crashed" ] || {
    echo "fuzz: crashed on$crashed" >&2
    exit 1
}
