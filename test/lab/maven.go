package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

var (
	java  = debian{file: "java", packages: "default-jre-headless"}
	maven = debian{file: "mvn", packages: "maven default-jre-headless"}
)

// needs returns the needs of a broker that runs in Java.
func needs(p program) []need { return []need{java, p} }

const mavenDependency = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:"

// jars returns libraries (group:artifact:version) with all their dependencies, except those of without
// (group:artifact).
func jars(name string, libraries, without []string) program {
	digest := sha256.Sum256([]byte(strings.Join(libraries, " ") + "/" + strings.Join(without, " ")))
	return program{
		key: name + "-" + hex.EncodeToString(digest[:4]),
		fetch: func(ctx context.Context, s *site, dir string) error {
			file := filepath.Join(dir, "pom.xml")
			pom, err := os.Create(file)
			if err != nil {
				return err
			}
			defer pom.Close()
			if err := pomTemplate.Execute(pom, map[string]any{"Libraries": split(libraries),
				"Without": split(without)}); err != nil {
				return fmt.Errorf("write %s: %w", file, err)
			}
			return mvn(ctx, s, dir, "-f", file, mavenDependency+"copy-dependencies", "-DincludeScope=runtime",
				"-DoutputDirectory="+dir)
		},
	}
}

// distribution returns an archive (group:artifact:version:tar.gz:classifier), unpacked without its top folder.
func distribution(name, artifact string) program {
	return program{
		key: name,
		fetch: func(ctx context.Context, s *site, dir string) error {
			if err := mvn(ctx, s, dir, mavenDependency+"copy", "-Dartifact="+artifact,
				"-DoutputDirectory="+dir); err != nil {
				return err
			}
			archives, err := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
			if err != nil || len(archives) != 1 {
				return fmt.Errorf("find the archive of %s: %d files, %w", artifact, len(archives), err)
			}
			if err := finish(tool(ctx, dir, "tar", "-xzf", archives[0], "--strip-components=1")); err != nil {
				return err
			}
			return os.Remove(archives[0])
		},
	}
}

// mvn runs Maven. Only one process at a time may use Maven's cache.
func mvn(ctx context.Context, s *site, dir string, args ...string) error {
	if err := maven.meet(ctx, s); err != nil {
		return err
	}
	unlock, err := lock(ctx, s, "maven")
	if err != nil {
		return err
	}
	defer unlock()
	return finish(tool(ctx, dir, "mvn", append([]string{"-B", "-ntp"}, args...)...))
}

// split splits coordinates into their fields.
func split(coordinates []string) [][]string {
	var all [][]string
	for _, c := range coordinates {
		all = append(all, strings.Split(c, ":"))
	}
	return all
}

var pomTemplate = template.Must(template.New("pom").Parse(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>lockstep</groupId><artifactId>lab</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
{{- range .Libraries}}
<dependency><groupId>{{index . 0}}</groupId><artifactId>{{index . 1}}</artifactId><version>{{index . 2}}</version><exclusions>
{{- range $.Without}}<exclusion><groupId>{{index . 0}}</groupId><artifactId>{{index . 1}}</artifactId></exclusion>{{end -}}
</exclusions></dependency>
{{- end}}
</dependencies></project>
`))
