# `test` and `clippy` share the profile `quick`, which compiles sooner. `dist` and the benches beside others use `dist`,
# the rest `release`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# $(call ENV,TARGET) installs what TARGET needs beside what all need.
ENV = settings=$$(scripts/setup.sh $(1)); eval "$$settings";

.PHONY: help build dist demo test test-large soak endure fuzz test-faults test-clients test-redis-py test-upgrade bench-peers bench-cases bench-commands bench-tls bench-encryption bench-plan fmt fmt-check clippy

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

build: ## the programs steelyard and steelyard-lab, and the device preload library
	@$(ENV) cargo build --release --workspace --lib --bins

dist: ## the same for use, faster to run: fat LTO and a profile, compiled twice; PROFILE=no for once and no profile
	@$(ENV) PROFILE=$${PROFILE:-yes} scripts/dist.sh

demo: build ## six unequal stores on this machine, under load
	@$(ENV) "$$CARGO_TARGET_DIR/release/steelyard" demo

# Each command selects the whole workspace, so that no dependency is compiled twice for its features. Most tests wait
# for processes, so more of them run at once than there are cores.
test: ## all tests; random cases from seed PROPTEST_RNG_SEED=n
	@$(ENV) export PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-1} RUST_TEST_THREADS=$${RUST_TEST_THREADS:-4}; cargo build --profile quick --workspace --lib --bins --tests && \
	cargo test --profile quick --workspace --lib --bins --tests && \
	cargo test --profile quick --workspace --features steelyard-sim/failpoints,steelyard-wal/failpoints --test failpoints

test-large: build ## logs of gigabytes, killed and robbed of power while they are overwritten; bounded memory; two hours or more
	@$(ENV) cargo test --release --workspace --test log -- --ignored more_than && \
	STEELYARD_WAL_ROUNDS=$${ROUNDS:-300}00 cargo test --release --workspace --test crashes -- --nocapture && \
	STEELYARD_LOG_ROUNDS=$${ROUNDS:-300} cargo test --release --workspace --test power && \
	cargo test --release --workspace --test faults -- --ignored --nocapture --test-threads=1 _of_log _600_mb && \
	cargo test --release --workspace --test membership --test demo -- --ignored --nocapture && \
	ulimit -n $$(ulimit -Hn) && \
	cargo test --release --workspace --test memory -- --ignored --nocapture --test-threads=1

soak: ## simulated clusters for HOURS=n, from seed FROM=n on; prints the counts
	@$(ENV) STEELYARD_COMMIT=$$(git describe --always --dirty) cargo build --release --workspace --bin steelyard-sim && \
	"$$CARGO_TARGET_DIR/release/steelyard-sim" --seeds "$${FROM:-1000000}..18446744073709551615" --hours "$${HOURS:-1}"

test-faults: ## faults on real processes, ROUNDS=20 of each, every history judged twice
	@$(call ENV,test-faults) histories=$$(mktemp -d); trap 'rm -rf "$$histories"' EXIT; export STEELYARD_HISTORIES="$$histories"; \
	cargo test --release --workspace --lib linearizable && \
	STEELYARD_FAULT_ROUNDS=$${ROUNDS:-20} cargo test --release --workspace --test faults -- --nocapture && \
	cd tests/porcupine && go test . && go run . "$$histories"

endure: ## three stores under load with a fault every ten seconds, for MINUTES=60, from SEED=1; every history judged
	@$(ENV) cargo build --release --workspace --lib --bins && \
	STEELYARD_MINUTES=$${MINUTES:-60} STEELYARD_SEED=$${SEED:-1} \
	cargo test --release --workspace --test faults -- --ignored --nocapture endurance

fuzz: ## coverage-guided fuzzing of what strangers can send, MINUTES=60 for all targets, or for TARGET=name
	@$(ENV) scripts/fuzz.sh "$${MINUTES:-60}" "$${TARGET:-}"

test-upgrade: ## clusters whose programs are replaced store by store: that of commit FROM by this one, this one by one with a newer version
	@$(ENV) programs="$$CARGO_TARGET_DIR/upgrade"; scripts/upgrade-programs.sh "$$programs" "$${FROM:-7417ca5}" && \
	STEELYARD_OLDER="$$programs/older" STEELYARD_NEWER="$$programs/newer" \
	cargo test --release --workspace --test upgrade -- --include-ignored --nocapture

test-clients: build ## clients and job queues beside redis-server; PARTS=moves, scenarios, frameworks
	@$(call ENV,test-clients) tests/clients/run "$$CARGO_TARGET_DIR/release/steelyard" "$$CARGO_TARGET_DIR/clients" $${PARTS:-}

test-redis-py: build ## redis-py's own tests beside redis-server
	@$(call ENV,test-redis-py) tests/clients/redis_py_suite/run "$$CARGO_TARGET_DIR/release/steelyard" "$$CARGO_TARGET_DIR/redis-py-suite"

bench-peers: dist ## beside redis-server and etcd, one run, ratios
	@$(call ENV,bench-peers) "$$CARGO_TARGET_DIR/dist/steelyard" bench peers

bench-cases: dist ## one store beside redis-server: other sizes, commands and numbers of connections
	@$(ENV) ulimit -n $$(ulimit -Hn) && "$$CARGO_TARGET_DIR/dist/steelyard" bench peers --cases --no-redis --no-etcd

bench-commands: dist ## the tests of redis-benchmark beside redis-server, one run, ratios
	@$(ENV) scripts/bench-commands.sh "$$CARGO_TARGET_DIR/dist/steelyard" "$${ROUNDS:-3}"

bench-tls: build ## the cost of TLS beside that of redis-server, and between three stores, one run each
	@$(ENV) ulimit -n $$(ulimit -Hn) && scripts/bench-tls.sh "$$CARGO_TARGET_DIR/release/steelyard" "$${ROUNDS:-3}" && \
	scripts/bench-tls-stores.sh "$$CARGO_TARGET_DIR/release/steelyard" "$${ROUNDS:-3}"

bench-encryption: build ## the cost of encryption at rest: two stores, one run
	@$(ENV) scripts/bench-encryption.sh "$$CARGO_TARGET_DIR/release/steelyard" "$${ROUNDS:-5}"

bench-plan: ## one round of placement over 1,000 stores and 1,000,000 regions
	@$(ENV) cargo test --release --workspace --test scale -- --ignored --nocapture

fmt: ## format the code
	@cargo fmt --all

fmt-check: ## fail when the code is not formatted
	@cargo fmt --all --check

clippy: ## lints, warnings are errors
	@$(ENV) cargo clippy --profile quick --workspace --all-targets -- -D warnings
