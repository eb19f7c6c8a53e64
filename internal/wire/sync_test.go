package wire

import (
	"testing"
	"time"
)

// TestStreamsOnDiskAreSynced proves that acknowledged messages are on disk, unless another policy is configured.
func TestStreamsOnDiskAreSynced(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		what   string
		cfg    ServerConfig
		always bool
		every  time.Duration
	}{
		{"a folder", ServerConfig{Dir: dir}, true, 0},
		{"a folder and an interval", ServerConfig{Dir: dir, Sync: time.Minute}, false, time.Minute},
		{"no folder", ServerConfig{}, false, 0},
	} {
		opts, err := serverOptions(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if opts.SyncAlways != c.always || opts.SyncInterval != c.every {
			t.Errorf("%s: synced always: %v, every %v", c.what, opts.SyncAlways, opts.SyncInterval)
		}
	}
	g := guardPlane(t)
	if got := g.server.ns.JetStreamConfig(); got == nil || !got.SyncAlways {
		t.Errorf("a server with the configuration of ctl fleet init has %+v: want SyncAlways", got)
	}
}
