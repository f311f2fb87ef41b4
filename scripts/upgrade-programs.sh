#!/bin/sh
# Builds the two other programs of the upgrade tests into DIR: `older`, the program of the commit
# FROM, and `newer`, this one with a further version of the cluster. Expects the build's
# environment, see setup.sh. An older program of the same commit is kept.
#   scripts/upgrade-programs.sh DIR FROM
set -eu
dir=$1 from=$(git rev-parse --verify "$2^{commit}")
mkdir -p "$dir"
if [ "$(cat "$dir/older.commit" 2>/dev/null)" != "$from" ]; then
    tree=$(mktemp -d)
    trap 'git worktree remove --force "$tree" >/dev/null 2>&1 || rm -rf "$tree"' EXIT
    git worktree add --detach --force "$tree" "$from" >&2
    # In one target directory cargo took crates of one work tree for those of the other. So the older
    # program has a directory of its own.
    older="$CARGO_TARGET_DIR/older"
    (cd "$tree" && CARGO_TARGET_DIR="$older" cargo build --release --workspace --bin steelyard)
    cp "$older/release/steelyard" "$dir/older"
    echo "$from" >"$dir/older.commit"
fi
cargo build --release --workspace --bin steelyard --features steelyard/next-version
cp "$CARGO_TARGET_DIR/release/steelyard" "$dir/newer"
