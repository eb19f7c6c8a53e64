#!/usr/bin/env bash
# Checks the writing rules of tools/vale/README.md in documentation, web pages, the string literals of Go files, and the
# comments of matrices, units and playbooks.
set -uo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
config=$PWD/tools/vale/.vale.ini
failed=0
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
(cd tools && "$go" build -o "$out/" github.com/vale-cli/vale/v3/cmd/vale ./prose) || exit 1

pages() { "$out/vale" --no-global --config "$config" --output line "$@"; }
# literals checks Go files. Line N of FILE.go.html contains the texts in line N of FILE.go.
literals() {
	rm -rf "$out/go"
	"$out/prose" "$out/go" "$@" && (cd "$out/go" && pages .) | sed 's/\.go\.html:/.go:/'
}
# comments checks lines of comments (// or #) in CUE files, units and playbooks. Line N of FILE.md contains the comment in
# line N of FILE.
comments() {
	local file
	for file; do
		mkdir -p "$out/comments/$(dirname "$file")"
		awk '{ print match($0, /^[ \t]*(\/\/|#) ?/) ? substr($0, RLENGTH + 1) : "" }' "$file" >"$out/comments/$file.md"
	done
	(cd "$out/comments" && pages .) | sed 's/\.md:/:/'
}

# Every line of the fixtures that names a rule has exactly one finding, and it is of that rule.
cd tools/vale/testdata
diff <(grep -HnoE '(^- |// )[A-Z][A-Za-z]+(:|$)' violations.* | sed -E 's,- |// ,,; s/:$//' | sort) \
	<({ pages violations.md; literals violations.go; } | sed -E 's/:[0-9]+:Lockstep\.([A-Za-z]+):.*/:\1/' | sort) ||
	{ echo "vale: the rules do not find the violations of tools/vale/testdata"; failed=1; }
cd - >/dev/null

pages $(git ls-files '*.md' '*.html' | grep -v /testdata/) || failed=1
literals $(git ls-files '*.go' | grep -vE '_test\.go$|/testdata/') || failed=1
comments matrices/*.cue $(git ls-files deploy/systemd 'deploy/*.yml' 'deploy/*.yaml') || failed=1
exit $failed
