#!/usr/bin/env bash
# Runs every suite, one after the other, and prints how long each took. Fails if one does.
set -u
cd "$(dirname "$0")/.."
go=${GO:-go}
failed=0
times=""

suite() {
	local name=$1 start=$SECONDS
	shift
	echo "=== $name"
	"$@" || { failed=1; name="$name (FAILED)"; }
	times="$times
$(printf '%4d s  %s' $((SECONDS - start)) "$name")"
}

suite "parts"    "$go" test -race -shuffle=on -timeout 10m ./internal/... ./matrices/...
suite "drivers"  "$go" test -race -timeout 15m ./pkg/...
suite "programs" "$go" test -race -p 1 -timeout 20m ./test/... ./cmd/... # one after the other: some of them kill brokers

echo "=== time of each suite$times"
exit $failed
