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

// disk is a file system whose size can be changed while it is in use.
type disk struct {
	row  *row
	path string
}

const roomy = 8 << 30 // bytes; memory is used only when it is filled

func (r *row) disk(name string) *disk {
	r.t.Helper()
	if os.Geteuid() != 0 {
		r.t.Skip("a disk that fills up needs root: it is a mount of its own")
	}
	d := &disk{row: r, path: filepath.Join(r.dir, name)}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", d.path, "tmpfs", 0, fmt.Sprintf("size=%d", roomy)); err != nil {
		r.t.Skipf("a disk that fills up needs a mount of its own: %v", err)
	}
	r.t.Cleanup(func() {
		if err := syscall.Unmount(d.path, syscall.MNT_DETACH); err != nil {
			r.t.Errorf("unmount %s: %v", d.path, err)
		}
	})
	return d
}

func (d *disk) size(bytes uint64) {
	d.row.t.Helper()
	if err := syscall.Mount("tmpfs", d.path, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", bytes)); err != nil {
		d.row.t.Fatalf("resize %s: %v", d.path, err)
	}
}

// fill reduces the size to the used space.
func (d *disk) fill() {
	d.row.t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(d.path, &st); err != nil {
		d.row.t.Fatal(err)
	}
	d.size(max(1, st.Blocks-st.Bfree) * uint64(st.Bsize))
}

func (d *disk) free() { d.size(roomy) }

// controllerDiskFull fills the disk of the control plane's streams. The controller exits with an error, because it
// cannot store anything. It continues when it is started again with free space.
func controllerDiskFull(r *row) {
	d := r.disk("small")
	f := r.fleet(shape{agents: []string{"a1", "a2"}, dir: map[string]string{"controller": d.path}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.reach(r, 2, phase)
	span := r.between(3*time.Second, 12*time.Second).Round(100 * time.Millisecond)
	r.did("disk of the controller full for %v and more in %s", span, phase)
	at := time.Now()
	d.fill()
	c := f.controllers["controller"]
	if code := c.ExitCode(); code != 1 || !strings.Contains(c.Output(), "no space left") {
		r.t.Errorf("the controller exited with %d, want 1, and because of its disk", code)
	}
	r.line.noticed = time.Since(at)
	r.pass(span)
	d.free()
	f.startController("controller")
	a := f.ends(0, 3)
	r.line.wentOn = a.wentOn(at)
}

// agentDiskFull fills the disk of an agent's folder for some seconds.
func agentDiskFull(r *row) {
	d := r.disk("small")
	victim := r.oneOf("a1", "a2")
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}, dir: map[string]string{victim: d.path}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	b := f.reach(r, 2, phase)
	span := r.between(3*time.Second, 6*time.Second).Round(100 * time.Millisecond)
	r.did("disk of agent %s full for %v in %s", victim, span, phase)
	at := time.Now()
	d.fill()
	r.pass(span)
	d.free()
	freed := time.Now()
	a := f.ends(0, 3)
	r.line.wentOn = a.wentOn(at)
	for id, o := range a.outcomes {
		if o.Verdict != plan.Valid && id != b.Task && o.Started.After(freed) {
			a.t.Errorf("task %s, which began with room on the disk, is %s: %q", id, o.Verdict, o.Reasons)
		}
	}
}
