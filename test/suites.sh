#!/usr/bin/env bash
# Runs every suite, one after the other, and prints how long each took. Fails if one does. Names of suites as arguments
# choose among them. A suite with real brokers has a lab of its own, so that none inherits another one's topics and heaps;
# what the lab cannot start fails the suite.
set -u
cd "$(dirname "$0")/.."
go=${GO:-go}
chosen=" $* "
failed=0
times=""

suite() {
	local name=$1 start=$SECONDS
	shift
	[ "$chosen" = "  " ] || [[ $chosen == *" $name "* ]] || return 0
	echo "=== $name"
	"$@" || { failed=1; name="$name (FAILED)"; }
	times="$times
$(printf '%4d s  %s' $((SECONDS - start)) "$name")"
}

brokers="rabbitmq rabbitmq3 kafka kafka3 artemis artemis-pair activemq activemq-pair activemq5 elasticmq mongodb eventstore"
programs=$("$go" list ./test/... ./cmd/... | grep -v -e /test/lab -e /test/eventstored) || exit 1

with_lab() { # PART... -- COMMAND...
	"$go" run ./test/lab run "$@"
}

# FerretDB's SQLite is Go, and under the race detector slower than its clients wait.
standins() {
	"$go" test -race -timeout 10m ./test/lab ./test/eventstored/... && (cd test/ferretdb && "$go" test -timeout 10m ./...)
}

# What they are built of is a Go module of its own.
dashboards() {
	(cd dashboards && "$go" test -timeout 10m ./...)
}

# shellcheck disable=SC2086 # lists are split on purpose
{
	suite "parts" "$go" test -race -shuffle=on -timeout 25m ./internal/... ./matrices/...
	suite "stand-ins" standins
	suite "dashboards" dashboards
	suite "drivers" with_lab $brokers -- "$go" test -race -timeout 25m ./pkg/...
	# One package after the other: some of them kill brokers.
	suite "programs" with_lab all tools -- "$go" test -race -p 1 -timeout 40m $programs
}

echo "=== time of each suite$times"
exit $failed
