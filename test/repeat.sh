#!/usr/bin/env bash
# Repeats a suite, or a part of make test-long, and stores the log of each run. An interrupted repetition is resumed:
# completed runs of the same commit, suite and load are counted.
#
#   bash test/repeat.sh SUITE N [--load]        --load: with four concurrent busy loops
#   bash test/repeat.sh long:PART N [--load]    a part of make test-long
#
# In the background: nohup bash test/repeat.sh unit 20 >repeat.out &
set -u
cd "$(dirname "$0")/.."
suite=${1:?usage: bash test/repeat.sh SUITE N [--load]} runs=${2:?usage: bash test/repeat.sh SUITE N [--load]}
load=idle
[ "${3:-}" = --load ] && load=load
[ -z "$(git status --porcelain)" ] || { echo "the work tree has changes: commit them, so that runs can be counted by commit"; exit 2; }
logs=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep-repeat/$(git rev-parse --short HEAD)/$suite-$load
mkdir -p "$logs"

loops=""
if [ $load = load ]; then
	for _ in 1 2 3 4; do
		(while :; do :; done) &
		loops="$loops $!"
	done
	# shellcheck disable=SC2064,SC2086 # the pids as they are now
	trap "kill $loops" EXIT
fi

trap 'exit 130' INT TERM
long=""
[[ $suite != long:* ]] || long=--long
failed=0
for ((n = 1; n <= runs; n++)); do
	if [ ! -e "$logs/$n.result" ]; then
		start=$SECONDS
		# shellcheck disable=SC2086 # may be empty
		bash test/suites.sh $long "${suite#long:}" >"$logs/$n.log" 2>&1
		echo "exit $? after $((SECONDS - start)) s" >"$logs/$n.result"
	fi
	echo "$suite, $load, run $n of $runs: $(cat "$logs/$n.result")"
	grep -q '^exit 0 ' "$logs/$n.result" || failed=$((failed + 1))
done
echo "$((runs - failed)) of $runs runs passed; logs are in $logs"
[ "$failed" = 0 ]
