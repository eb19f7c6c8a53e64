#!/usr/bin/env bash
# Lists the test functions that were removed and added since REV. Fails if docs/decisions/tests.md does not list a removed
# test with its replacement or the reason.
#
#   bash test/tests-since.sh REV
set -u
cd "$(dirname "$0")/.."
rev=${1:?usage: bash test/tests-since.sh REV}
git rev-parse -q --verify "$rev^{commit}" >/dev/null || { echo "no revision $rev"; exit 2; }

names() { grep -ohE '^func (Test|Fuzz|Benchmark)[A-Za-z0-9_]+' | sed 's/^func //' | sort -u; }
before=$(git grep -hE '^func (Test|Fuzz|Benchmark)' "$rev" -- '*_test.go' | names)
now=$(git ls-files '*_test.go' | xargs cat | names)

missing=0
echo "removed since $rev:"
for name in $(comm -23 <(echo "$before") <(echo "$now")); do
	if row=$(grep -s -m 1 -E "^\| ([A-Za-z0-9_]+, )*$name(, [A-Za-z0-9_]+)* \|" docs/decisions/tests.md); then
		echo "  $row"
	else
		echo "  $name: not in docs/decisions/tests.md"
		missing=1
	fi
done
echo "added since $rev:"
comm -13 <(echo "$before") <(echo "$now") | sed 's/^/  /'
exit $missing
