#!/usr/bin/env bash
# Builds static programs and packages them.
#
#   deploy/packages/build.sh OUT [VERSION] [PLATFORM...]
#
# VERSION is a semantic version without the "v"; by default that of the last tag, or 0.0.0. PLATFORM is OS/ARCH; by default that of this
# host. Linux gets the three programs as .tar.gz, .deb and .rpm, and together as an OCI image layout; other systems get ctl as .tar.gz. A
# bill of materials and the checksums complete OUT. An empty TRIMPATH keeps the paths of this host in the programs, and so uses the
# build cache.
set -euo pipefail
umask 022
out=${1:?no output folder: deploy/packages/build.sh OUT [VERSION] [PLATFORM...]}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/../.."
VERSION=${2:-$(git describe --tags --abbrev=0 2>/dev/null | sed 's/^v//')}
export VERSION=${VERSION:-0.0.0}
[[ $VERSION =~ ^[0-9]+\.[0-9]+\.[0-9]+([-+~][0-9A-Za-z.-]+)?$ ]] || { echo "build packages: VERSION is $VERSION: want one like 1.2.3" >&2; exit 2; }
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- "linux/$(go env GOARCH)"
for platform in "$@"; do
	[[ $platform =~ ^(linux|darwin|windows)/(amd64|arm64)$ ]] || { echo "build packages: PLATFORM is $platform: want one like linux/amd64" >&2; exit 2; }
done
revision=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
of=$(go list -m)/internal/cli
flags="-s -w -X $of.release=$VERSION -X $of.commit=$revision -X $of.date=$(git log -1 --format=%cs)"
run="env GOOS= GOARCH= GOFLAGS=-mod=mod go run"

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
archive() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" "$@"; }

# Files of all platforms. A licence file or notice of every module in ctl, which contains the other two programs.
common=$stage/common
mkdir -p "$common/third-party"
go run ./deploy/packages/man "$common/man" "$VERSION"
# Only tracked files: folders of deploy may contain credentials.
git ls-files -z -- LICENSE README.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs matrices deploy examples \
	tools/vale/README.md ':!*_test.go' | xargs -0 cp --parents -t "$common"
git ls-files -z -- 'dashboards/*.json' dashboards/SCHEMA.md dashboards/provisioning | xargs -0 cp --parents -t "$common"
for platform in "$@"; do # Windows needs other modules
	GOOS=${platform%/*} GOARCH=${platform#*/} go list -deps \
		-f '{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/ctl
done | sort -u | while read -r module folder; do
	[ -n "$module" ] || continue
	to=$common/third-party/$module
	mkdir -p "$to"
	find "$folder" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) -exec cp {} "$to/" \;
	[ -n "$(ls "$to")" ] || { echo "build packages: module $module has no licence file" >&2; exit 1; }
done
cp -r "$(go env GOROOT)/LICENSE" "$common/third-party/go-LICENSE"
chmod -R u+w,go+r "$common"

(cd tools && GOOS= GOARCH= go run ./roots) >"$stage/ca-certificates.crt"

layers=()
for platform in "$@"; do
	os=${platform%/*} ARCH=${platform#*/}
	name=lockstep-$VERSION-$os-$ARCH
	export ARCH DIST=$stage/$name
	cp -r "$common" "$DIST"
	programs=./cmd/ctl
	[ "$os" != linux ] || programs="./cmd/ctl ./cmd/controller ./cmd/agent"
	# shellcheck disable=SC2086 # a list of packages
	CGO_ENABLED=0 GOOS=$os GOARCH=$ARCH go build ${TRIMPATH--trimpath} -ldflags "$flags" -o "$DIST/" $programs
	if [ "$os" = linux ]; then
		mv "$DIST/controller" "$DIST/lockstep-controller"
		mv "$DIST/agent" "$DIST/lockstep-agent"
		cp -r "$common/deploy/systemd" "$DIST/"
	fi
	archive -C "$stage" -cf - "$name" | gzip -n >"$out/$name.tar.gz"
	[ "$os" = linux ] || continue

	gzip -9n "$DIST"/man/*
	for kind in deb rpm; do
		$run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.0 package --config deploy/packages/nfpm.yaml --packager $kind --target "$out/"
	done

	root=$stage/root-$ARCH
	mkdir -p "$root/usr/bin" "$root/usr/share/lockstep" "$root/var/lib/lockstep" "$root/tmp" "$root/etc/ssl/certs"
	cp "$DIST/ctl" "$DIST/lockstep-controller" "$DIST/lockstep-agent" "$root/usr/bin/"
	cp -r "$DIST/matrices" "$DIST/third-party" "$DIST/LICENSE" "$root/usr/share/lockstep/"
	cp "$stage/ca-certificates.crt" "$root/etc/ssl/certs/"
	echo "lockstep:x:65532:65532::/var/lib/lockstep:/" >"$root/etc/passwd"
	chmod 1777 "$root/tmp" "$root/var/lib/lockstep"
	archive -C "$root" -cf "$stage/layer-$ARCH.tar" .
	layers+=("$platform=$stage/layer-$ARCH.tar")
done
if [ ${#layers[@]} -gt 0 ]; then
	image=lockstep-$VERSION-image
	rm -rf "${out:?}/$image"
	(cd tools && GOOS= GOARCH= go run ./image "$out/$image" "$VERSION" "$revision" "$SOURCE_DATE_EPOCH" "${layers[@]}")
fi
$run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 app -json -licenses -noserial -main cmd/ctl -output "$out/lockstep-$VERSION-sbom.json"
(cd "$out" && rm -f SHA256SUMS && find . -type f ! -name SHA256SUMS -printf '%P\0' | sort -z | xargs -0 sha256sum >"$stage/sums" && mv "$stage/sums" SHA256SUMS)
ls -l "$out"
