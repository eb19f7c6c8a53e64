#!/usr/bin/env bash
# Checks formatting, static analysis, writing rules, manifests, builds and known vulnerabilities. If the vulnerability
# database does not respond, it prints a warning.
set -u
cd "$(dirname "$0")/.."
go=${GO:-go}
failed=0

unformatted=$(git ls-files '*.go' | xargs gofmt -l)
[ -z "$unformatted" ] || { echo "gofmt: $unformatted"; failed=1; }
"$go" vet ./... || failed=1
(cd dashboards && "$go" vet ./...) || failed=1
(cd tools && "$go" vet ./...) || failed=1
bash test/vale.sh || failed=1
(cd tools && "$go" test ./manifests) || failed=1
for os in darwin windows; do
	echo "build for $os"
	CGO_ENABLED=0 GOOS=$os "$go" build -o /dev/null ./cmd/... || failed=1
done
"$go" run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./... || failed=1

if report=$("$go" run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ./... 2>&1); then
	echo "govulncheck: nothing known"
elif grep -q '^Vulnerability #' <<<"$report"; then
	echo "$report"
	failed=1
else
	echo "warning: govulncheck could not be done here: $(grep -v "^exit status" <<<"$report" | tail -n 1)"
fi
exit $failed
