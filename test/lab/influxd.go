package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// influxd29 takes minutes to build, mainly for its query language, which is written in Rust.
var influxd29 = program{key: "influxd-2.9.1", fetch: buildInfluxd}

var influxNeeds = []need{debian{file: "gcc", packages: "gcc libc6-dev"},
	debian{file: "pkg-config", packages: "pkg-config"}, influxd29}

// buildInfluxd builds InfluxDB from its Go module. A replacement of pkg-config by the same authors runs cargo for the
// Rust part.
func buildInfluxd(ctx context.Context, s *site, dir string) error {
	if _, err := exec.LookPath("cargo"); err != nil {
		return errors.New("influxd's query language is built with Rust: install cargo and rustc, see https://rustup.rs")
	}
	src, err := source(ctx)
	if err != nil {
		return err
	}
	wrapper := tool(ctx, "", "go", "install", "github.com/influxdata/pkg-config@v0.3.0")
	wrapper.Env = append(os.Environ(), "GOBIN="+dir)
	if err := finish(wrapper); err != nil {
		return err
	}
	s.print("building influxd, once: this takes five to ten minutes")
	build := tool(ctx, filepath.Join(src, "test", "influxd"), "go", "build", "-tags", "sqlite_foreign_keys,sqlite_json",
		"-ldflags", "-s -w", "-o", filepath.Join(dir, "influxd"), "github.com/influxdata/influxdb/v2/cmd/influxd")
	build.Env = append(os.Environ(), "PKG_CONFIG="+filepath.Join(dir, "pkg-config"),
		"RUSTUP_TOOLCHAIN="+rustToolchain(ctx))
	return finish(build)
}

// rustToolchain returns the installed toolchain. Without it, rustup would download the one that the Rust part's files
// name.
func rustToolchain(ctx context.Context) string {
	if set := os.Getenv("RUSTUP_TOOLCHAIN"); set != "" {
		return set
	}
	text, err := exec.CommandContext(ctx, "rustup", "show", "active-toolchain").Output()
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 0 {
		return fields[0]
	}
	return "" // without rustup, the variable has no effect
}

// Settings of a client. The token is not secret: the server listens on the loopback interface and is temporary.
const (
	influxName  = "lockstep" // organisation, bucket and user
	influxToken = "lockstep-lab-token"
)

func planInfluxd(s *site, dir string, ports []int) (*Plan, error) {
	at := func(name string) string { return filepath.Join(dir, name) }
	url := "http://" + loopback(ports[0])
	return &Plan{
		Processes: []*Process{{
			Name: "influxd", Dir: dir, Log: at("log"),
			Command: []string{
				filepath.Join(influxd29.in(s), "influxd"), "run", "--http-bind-address", loopback(ports[0]),
				"--bolt-path", at("influxd.bolt"), "--sqlite-path", at("influxd.sqlite"), "--engine-path", at("engine"),
				"--reporting-disabled", "--ui-disabled",
			},
			Ready: func(ctx context.Context) error { return setUpInflux(ctx, url) },
		}},
		Env: []string{
			"LOCKSTEP_INFLUX_URL=" + url, "LOCKSTEP_INFLUX_TOKEN=" + influxToken,
			"LOCKSTEP_INFLUX_ORG=" + influxName, "LOCKSTEP_INFLUX_BUCKET=" + influxName,
		},
	}, nil
}

// setUpInflux creates the user once. It returns an error until the server is ready.
func setUpInflux(ctx context.Context, url string) error {
	var fresh struct {
		Allowed bool `json:"allowed"`
	}
	if err := get(ctx, url+"/api/v2/setup", &fresh); err != nil {
		return err
	}
	if fresh.Allowed {
		user := map[string]string{
			"username": influxName, "password": influxToken, "org": influxName, "bucket": influxName,
			"token": influxToken,
		}
		if err := call(ctx, http.MethodPost, url+"/api/v2/setup", user, nil); err != nil {
			return fmt.Errorf("make a user: %w", err)
		}
	}
	return get(ctx, url+"/ready", nil)
}
