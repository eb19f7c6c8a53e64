package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

func diskFaults() []fault {
	return []fault{
		{name: "disk full/controller", do: controllerDiskFull},
		{name: "disk full/agent", do: agentDiskFull},
	}
}

// disk is a tmpfs whose size can be changed while it is in use.
type disk struct {
	row  *row
	path string
}

const diskSize = 8 << 30 // bytes; memory is used only when it is filled

func (r *row) newDisk(name string) *disk {
	r.t.Helper()
	if os.Geteuid() != 0 {
		r.t.Skip("needs root to mount a tmpfs")
	}
	d := &disk{row: r, path: filepath.Join(r.dir, name)}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", d.path, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize)); err != nil {
		r.t.Skipf("mount a tmpfs: %v", err)
	}
	r.t.Cleanup(func() {
		if err := syscall.Unmount(d.path, syscall.MNT_DETACH); err != nil {
			r.t.Errorf("unmount %s: %v", d.path, err)
		}
	})
	return d
}

func (d *disk) resize(bytes uint64) {
	d.row.t.Helper()
	if err := syscall.Mount("tmpfs", d.path, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", bytes)); err != nil {
		d.row.t.Fatalf("resize %s: %v", d.path, err)
	}
}

// shrinkToUsed reduces the size to the used space.
func (d *disk) shrinkToUsed() {
	d.row.t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(d.path, &st); err != nil {
		d.row.t.Fatal(err)
	}
	d.resize(max(1, st.Blocks-st.Bfree) * uint64(st.Bsize))
}

func (d *disk) grow() { d.resize(diskSize) }

// controllerDiskFull fills the disk of the control plane's streams. The controller exits with an error, because it
// cannot store anything. It continues when it is started again with free space.
func controllerDiskFull(r *row) {
	d := r.newDisk("small")
	f := r.startFleet(fleetSpec{agents: []string{"a1", "a2"}, dirs: map[string]string{"controller": d.path}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.awaitTaskPhase(r, 2, phase)
	duration := r.between(3*time.Second, 12*time.Second).Round(100 * time.Millisecond)
	r.describe("disk of the controller full for at least %v in %s", duration, phase)
	at := time.Now()
	d.shrinkToUsed()
	c := f.controllers["controller"]
	if code := c.ExitCode(); code != 1 || !strings.Contains(c.Output(), "no space left") {
		r.t.Errorf("the controller: got exit code %d, want 1 and \"no space left\" in its output", code)
	}
	r.line.detected = time.Since(at)
	r.wait(duration)
	d.grow()
	f.startController("controller")
	check := f.awaitEnd(0, 3)
	r.line.resumed = check.timeToNextStart(at)
}

// agentDiskFull fills the disk of an agent's folder for some seconds.
func agentDiskFull(r *row) {
	d := r.newDisk("small")
	target := r.oneOf("a1", "a2")
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}, dirs: map[string]string{target: d.path}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	b := f.awaitTaskPhase(r, 2, phase)
	duration := r.between(3*time.Second, 6*time.Second).Round(100 * time.Millisecond)
	r.describe("disk of agent %s full for %v in %s", target, duration, phase)
	at := time.Now()
	d.shrinkToUsed()
	r.wait(duration)
	d.grow()
	freed := time.Now()
	check := f.awaitEnd(0, 3)
	r.line.resumed = check.timeToNextStart(at)
	for id, o := range check.outcomes {
		if o.Verdict != plan.Valid && id != b.Task && o.Started.After(freed) {
			check.t.Errorf("task %s, started with free space: got verdict %s, want valid: %q", id, o.Verdict, o.Reasons)
		}
	}
}
