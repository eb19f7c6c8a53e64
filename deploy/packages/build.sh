#!/usr/bin/env bash
# Builds static programs, a .tar.gz and a .deb of them into a folder.
#
#   deploy/packages/build.sh OUT [VERSION]
#
# VERSION is a semantic version without the "v"; by default that of the last tag, or 0.0.0. GOARCH chooses another architecture; an empty
# TRIMPATH leaves the paths of this host in, and so uses what was compiled already.
set -euo pipefail
out=${1:?where to: deploy/packages/build.sh OUT [VERSION]}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/../.."
VERSION=${2:-$(git describe --tags --abbrev=0 2>/dev/null | sed 's/^v//')}
export VERSION=${VERSION:-0.0.0}
[[ $VERSION =~ ^[0-9]+\.[0-9]+\.[0-9]+([-+~][0-9A-Za-z.-]+)?$ ]] || { echo "build packages: VERSION is $VERSION: want one like 1.2.3" >&2; exit 2; }
ARCH=${GOARCH:-$(go env GOARCH)}
name=lockstep-$VERSION-linux-$ARCH
export ARCH DIST=$out/$name
rm -rf "$DIST"
mkdir -p "$DIST"

of=lockstep/internal/cli
stamp="-X $of.release=$VERSION -X $of.commit=$(git rev-parse HEAD) -X $of.date=$(git log -1 --format=%cs)"
CGO_ENABLED=0 GOOS=linux go build ${TRIMPATH--trimpath} -ldflags "-s -w $stamp" -o "$DIST/" ./cmd/ctl ./cmd/controller ./cmd/agent
mv "$DIST/controller" "$DIST/lockstep-controller"
mv "$DIST/agent" "$DIST/lockstep-agent"
epoch=$(git log -1 --format=%ct)
GOOS= GOARCH= SOURCE_DATE_EPOCH=$epoch go run ./deploy/packages/man "$DIST/man" "$VERSION"
cp LICENSE README.md "$DIST/"
mkdir "$DIST/dashboards"
cp -r docs matrices deploy/systemd "$DIST/"
cp -r dashboards/*.json dashboards/SCHEMA.md dashboards/provisioning "$DIST/dashboards/"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -C "$out" -cf - "$name" | gzip -n >"$out/$name.tar.gz"

gzip -9n "$DIST"/man/*
GOFLAGS=-mod=mod go run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.0 package --config deploy/packages/nfpm.yaml --packager deb --target "$out/"
rm -rf "$DIST"
ls -l "$out"
