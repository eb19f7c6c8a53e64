#!/usr/bin/env bash
# Runs every suite, one after the other, and prints how long each took. Fails if one does. Names of suites as arguments
# choose among them. A suite with real brokers has a lab of its own, so that none inherits another one's topics and heaps;
# what the lab cannot start fails the suite. Packages that take longest come first, so that none is left alone at the end.
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
hosts="./test/fleet ./test/packages ./test/roles ./test/pages ./test/browser"
programs=$("$go" list ./test/... ./cmd/... | grep -v -e /test/lab -e /test/eventstored -e '/test/\(fleet\|packages\|roles\|pages\|browser\)$') || exit 1

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

# The programs are built once for all packages. One package after the other: some of them kill brokers.
programs() {
	if [ -z "${LOCKSTEP_PROGRAMS:-}" ]; then
		LOCKSTEP_PROGRAMS=$(mktemp -d) || return 1
		export LOCKSTEP_PROGRAMS
		trap 'rm -rf "$LOCKSTEP_PROGRAMS"' EXIT
		"$go" build -race -o "$LOCKSTEP_PROGRAMS/" ./cmd/... || return 1
	fi
	with_lab all tools -- "$go" test -race -p 1 -timeout 40m "$@"
}

# shellcheck disable=SC2086 # lists are split on purpose
{
	suite "parts" "$go" test -race -shuffle=on -timeout 25m ./internal/controller ./internal/wire ./internal/... ./matrices/...
	suite "stand-ins" standins
	suite "dashboards" dashboards
	# Their tests wait most of the time, each package for a broker of its own.
	suite "drivers" with_lab $brokers -- "$go" test -race -timeout 25m ./pkg/drivers/rabbitmq ./pkg/drivers/kafka ./pkg/...
	# These need no brokers, but hosts that they make, and a browser.
	suite "hosts" with_lab ansible sshd releases chromium -- "$go" test -race -p 2 -timeout 25m $hosts
	suite "programs" programs $programs
}

echo "=== time of each suite$times"
exit $failed
