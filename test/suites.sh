#!/usr/bin/env bash
# Runs suites of tests one after the other and prints the time of each. Fails if a suite fails.
#
#   bash test/suites.sh [NAME...]          suites of make test: unit stand-ins dashboards drivers programs
#   bash test/suites.sh --quick            the tests that need only Go
#   bash test/suites.sh --long [NAME...]   parts of make test-long
#
# Suites with brokers share one lab, which starts each broker once. The output ends with the skipped tests, with reasons,
# and the time of each suite.
set -u
cd "$(dirname "$0")/.."
go=${GO:-go}
sum="$go run gotest.tools/gotestsum@v1.13.0"

short="unit stand-ins dashboards drivers programs"
long="race statistics drivers studies accuracy chaos durability soak scale comparison overhead fleet packages roles browser"
brokers="rabbitmq rabbitmq4 rabbitmq43 rabbitmq3 kafka kafka3 kafka-next artemis artemis-pair activemq activemq-pair elasticmq nats nats3 mongodb eventstore influxd"

all=$short
mode=""
case "${1:-}" in
--long) all=$long mode=long; shift; export LOCKSTEP_LONG=1 ;;
--quick) mode=quick; shift ;;
esac
chosen=${*:-$all}
for name in $chosen; do
	[[ " $all " == *" $name "* ]] || { echo "no suite $name: choose from $all"; exit 2; }
done

# Tests that only make test-long runs, in packages of make test: whole studies, soaks, and tests that need an idle machine.
in_long='^(TestStudy|TestSoak|TestAccuracy)[A-Z]'

# Folder for logs, times and programs of this run. A suite inside the lab uses the folder of the script that started it.
work=${LOCKSTEP_SUITES:-}
if [ -z "$work" ]; then
	work=$(mktemp -d) || exit 1
	trap 'rm -rf "$work"' EXIT
	export LOCKSTEP_SUITES=$work
fi
trap 'exit 130' INT TERM

# tests NAME ARGUMENTS... runs go test and stores its events for the list of skipped tests. Parts of make test-long use
# programs and hosts, whose changes Go's cache of results ignores: -count=1.
tests() {
	local name=$1
	shift
	[ "$mode" != long ] || set -- -count=1 "$@"
	$sum --format pkgname --hide-summary skipped --jsonfile-timing-events "$work/$name.timing" --jsonfile "$work/$name.json" -- "$@"
}

# concurrent yes|no PACKAGES... lists the packages whose own code has (or does not have) goroutines, locks or atomics,
# without sync.OnceValue. In a package without other code, the tests are its code.
concurrent() {
	local want=$1 dir package files
	shift
	"$go" list -f '{{.Dir}} {{.ImportPath}}' "$@" | while read -r dir package; do
		files=$(find "$dir" -maxdepth 1 -name '*.go' ! -name '*_test.go')
		[ -n "$files" ] || files=$(find "$dir" -maxdepth 1 -name '*.go')
		# shellcheck disable=SC2086 # a list of files
		if grep -qE 'sync\.(Cond|Map|Mutex|Pool|RWMutex|WaitGroup)|"sync/atomic"|^[[:space:]]*go |\.Go\(' $files; then
			[ "$want" = yes ] && echo "$package"
		else
			[ "$want" = no ] && echo "$package"
		fi
	done
}

# build_programs builds the programs once, with and without the race detector.
build_programs() {
	[ -z "${LOCKSTEP_PROGRAMS:-}" ] || return 0
	export LOCKSTEP_PROGRAMS=$work/programs
	[ ! -d "$LOCKSTEP_PROGRAMS" ] || return 0
	mkdir -p "$LOCKSTEP_PROGRAMS.partial/plain" "$LOCKSTEP_PROGRAMS.partial/race"
	"$go" build -o "$LOCKSTEP_PROGRAMS.partial/plain/" ./cmd/... && "$go" build -race -o "$LOCKSTEP_PROGRAMS.partial/race/" ./cmd/... &&
		mv "$LOCKSTEP_PROGRAMS.partial" "$LOCKSTEP_PROGRAMS"
}

# Tests of packages that need no broker. Only concurrent packages run with the race detector.
# The longest packages are first, so that none runs alone at the end. Three run at a time, because tests also wait.
suite_unit() {
	local failed=0 packages="./internal/wire ./internal/cli ./internal/controller ./internal/... ./matrices/... ./cmd/... ./test/process ./test/redaction ./test/repo ./test/accuracy"
	build_programs || return 1 # for test/hostile
	# shellcheck disable=SC2046,SC2086 # one package per word
	tests unit-race -race -p 3 -shuffle=on -timeout 60m -skip "$in_long" $(concurrent yes $packages) || failed=1
	# test/hostile sends more messages than the race detector allows in minutes. Part race of make test-long runs it with it.
	# shellcheck disable=SC2046,SC2086
	tests unit -p 3 -shuffle=on -timeout 60m -skip "$in_long" ./test/hostile $(concurrent no $packages) || failed=1
	return $failed
}

suite_stand-ins() {
	local failed=0
	tests stand-ins -race -timeout 10m ./test/eventstored/... || failed=1
	tests lab -race -timeout 10m ./test/lab/... ./test/forward || failed=1
	# With the race detector, FerretDB's SQLite, which is Go code, is slower than the timeouts of its clients.
	(cd test/ferretdb && tests ferretdb -timeout 10m ./...) || failed=1
	return $failed
}

suite_dashboards() { (cd dashboards && tests dashboards -timeout 10m ./...); }

# drivers NAME ARGUMENTS... tests all drivers. KurrentDB's client has a data race: it reads the trailers of a call while gRPC
# writes them, if the call is cancelled. Its driver is tested without the race detector.
drivers() {
	local name=$1 failed=0
	shift
	# shellcheck disable=SC2046 # one package per word
	tests "$name" -race "$@" ./pkg/drivers/rabbitmq ./pkg/drivers/kafka $("$go" list ./pkg/... | grep -v /eventstore$) || failed=1
	tests "$name-eventstore" "$@" ./pkg/drivers/eventstore || failed=1
	return $failed
}

# Go's cache of results ignores changes of brokers and programs: -count=1.
suite_drivers() { drivers drivers -p 4 -count=1 -timeout 60m; }

# Most of these tests wait for most of their time.
suite_programs() {
	build_programs && tests programs -p 2 -parallel 4 -count=1 -timeout 120m -skip "$in_long" ./test ./test/chaos
}

# Parts of make test-long.
# part_race unsets LOCKSTEP_LONG: checks of durations need an idle machine, and run in other parts.
part_race() {
	(
		unset LOCKSTEP_LONG
		tests race -race -shuffle=on -timeout 60m -skip "$in_long" ./internal/... ./matrices/... ./cmd/... ./test/lab/... ./test/forward ./test/process ./test/hostile ./test/redaction ./test/repo ./test/accuracy ./test/eventstored/... &&
			build_programs && tests race-programs -race -p 1 -timeout 60m -skip "$in_long" ./test ./test/chaos &&
			cd dashboards && tests race-dashboards -race -timeout 10m ./...
	)
}
part_statistics() { tests statistics -v -p 1 -timeout 120m ./internal/history/... ./internal/compare ./internal/record ./internal/clock ./internal/netsim ./internal/engine ./internal/wire; }
part_drivers() { drivers drivers -v -p 2 -timeout 60m; }
part_studies() { build_programs && tests studies -v -timeout 90m -run '^(TestStudy[A-Z]|TestMatrix|TestSink|TestSchedulesOutliveKilledControllers|TestWrongClocks|TestClockStep|TestObserver|TestLoadGeneratorLimit)' ./test; }
part_accuracy() { tests accuracy -v -timeout 30m ./test/accuracy; }
part_chaos() { build_programs && tests chaos -v -timeout 120m ./test/chaos -chaos.seeds 5; }
part_durability() { build_programs && tests durability -v -timeout 30m ./test/durability; }
part_soak() { build_programs && tests soak -v -timeout 90m -run '^TestSoak[A-Z]' ./test; }
part_scale() { tests scale -v -timeout 60m ./test/scale; }
part_comparison() { tests comparison -v -timeout 30m ./test/comparison && "$go" run ./test/comparison; }
part_overhead() { tests overhead -v -timeout 30m ./test/overhead && "$go" test -run '^$' -bench . -timeout 60m ./test/overhead; }
part_fleet() { tests fleet -v -timeout 90m ./test/fleet; }
part_packages() { tests packages -v -timeout 30m ./test/packages && (cd tools && tests manifests -v -timeout 10m ./manifests); }
part_roles() { tests roles -v -timeout 60m ./test/roles; }
part_browser() { tests browser -v -timeout 30m ./test/pages ./test/browser; }

# needs prints the parts of the lab that a suite needs. "none" is a lab that starts no part.
needs() {
	case "$mode $1" in
	" drivers" | " programs" | "long drivers") echo "$brokers" ;;
	"long studies" | "long soak" | "long race") echo "$brokers" ;;
	"long durability") echo strace ;;
	"long accuracy") echo none ;; # its tests start their own brokers
	"long overhead") echo "rabbitmq kafka artemis activemq nats elasticmq mongodb eventstore influxd" ;;
	"long comparison") echo "rabbitmq kafka nats kafka-tools perftest natsbench" ;;
	"long fleet") echo "ansible sshd releases" ;;
	"long packages") echo sshd ;;
	"long roles") echo ansible ;;
	"long browser") echo chromium ;;
	esac
}

# Tests without brokers and programs: units, the reference driver, and the rules for imports and documentation.
if [ "$mode" = quick ]; then
	"$go" test -p 3 -shuffle=on -timeout 20m -skip "$in_long" ./internal/... ./matrices/... ./pkg/drivers ./pkg/drivers/all ./pkg/drivers/drivertest \
		./pkg/drivers/loopback ./pkg/drivers/requests ./pkg/drivers/internal/... ./test/process ./test/redaction ./test/repo ./test/accuracy ./test/forward
	exit
fi

# run NAME runs one suite and records its time.
run() {
	local name=$1 start=$SECONDS result=ok
	echo "=== $name"
	if [ "$mode" = long ]; then "part_$name"; else "suite_$name"; fi || result=FAILED
	printf '%5d s  %-6s  %s\n' $((SECONDS - start)) $result "$name" >>"$work/times"
}

if [ -n "${LOCKSTEP_IN_LAB:-}" ]; then
	for name in $chosen; do run "$name"; done
	exit 0
fi

together=""
parts=""
for name in $chosen; do
	need=$(needs "$name")
	if [ -z "$need" ]; then
		run "$name"
	elif [ "$mode" = long ]; then
		# shellcheck disable=SC2086 # a list of parts
		LOCKSTEP_IN_LAB=1 "$go" run ./test/lab run ${need/none/} -- bash test/suites.sh --long "$name" || printf '%5s    FAILED  %s: its lab\n' "" "$name" >>"$work/times"
	else
		together="$together $name"
		parts="$parts $need"
	fi
done
if [ -n "$together" ]; then
	start=$SECONDS
	# shellcheck disable=SC2086
	LOCKSTEP_IN_LAB=1 "$go" run ./test/lab run $parts -- bash test/suites.sh $together || printf '%5s    FAILED  the lab\n' "" >>"$work/times"
	printf '%5d s          all suites with brokers, their lab included\n' $((SECONDS - start)) >>"$work/times"
fi

echo "=== skipped tests"
find "$work" -name '*.json' -exec cat {} + >"$work/all"
$sum --format dots --hide-summary failed,errors --raw-command -- sed '/"Action":"fail"/d' "$work/all" 2>/dev/null | sed -n '/^=== Skipped/,$p'
echo "=== time of each suite"
cat "$work/times"
[ -s "$work/times" ] && ! grep -q FAILED "$work/times"
