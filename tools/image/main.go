// Command image writes an OCI image layout with one image per platform, each of one layer, without a container engine.
//
//	image OUT VERSION REVISION SECONDS linux/amd64=LAYER.tar...
//
// OUT is a new folder. SECONDS is the time of the build, since 1970. The programs of the layers are in /usr/bin.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "write OCI image layout:", err)
		os.Exit(1)
	}
}

func write(args []string) error {
	if len(args) < 5 {
		return fmt.Errorf("%d arguments: give OUT VERSION REVISION SECONDS PLATFORM=LAYER.tar", len(args))
	}
	out, version, revision := args[0], args[1], args[2]
	seconds, err := strconv.ParseInt(args[3], 10, 64)
	if err != nil {
		return err
	}
	created := v1.Time{Time: time.Unix(seconds, 0).UTC()}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range args[4:] {
		name, file, _ := strings.Cut(arg, "=")
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return err
		}
		layer, err := tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return err
		}
		base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		image, err := mutate.Append(base, mutate.Addendum{Layer: layer,
			History: v1.History{Created: created, CreatedBy: "deploy/packages/build.sh"}})
		if err != nil {
			return err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		config = config.DeepCopy() // the library shares it
		config.Created, config.OS, config.Architecture = created, platform.OS, platform.Architecture
		config.Config = v1.Config{User: "65532:65532", WorkingDir: "/var/lib/lockstep", Entrypoint: []string{"/usr/bin/ctl"},
			Env: []string{"PATH=/usr/bin", "HOME=/var/lib/lockstep"},
			Labels: map[string]string{"org.opencontainers.image.title": "Lockstep",
				"org.opencontainers.image.version": version, "org.opencontainers.image.revision": revision,
				"org.opencontainers.image.licenses": "Apache-2.0"}}
		if image, err = mutate.ConfigFile(image, config); err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: platform}})
	}
	root, err := layout.Write(out, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	return root.AppendIndex(index) // one entry, so that tools need no name for it
}
