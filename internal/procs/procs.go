// Package procs starts and ends child processes together with the processes that they start.
// On Linux a child has a process group or session of its own; on other systems only the child itself is controlled.
package procs

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// LimitMemory limits the memory of this process, in bytes. The garbage collector runs more often when the memory comes
// near the limit. exceeded is called once, in another goroutine, when the memory exceeds the limit.
func LimitMemory(limit uint64, exceeded func()) {
	debug.SetMemoryLimit(int64(limit - limit/8))
	go func() {
		used := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		for range time.Tick(10 * time.Millisecond) {
			metrics.Read(used)
			if used[0].Value.Uint64()-used[1].Value.Uint64() > limit {
				exceeded()
				return
			}
		}
	}()
}

// Environment returns the variables that drivers' processes and the commands of targets get. The other variables of
// this program may contain secrets, or settings for Lockstep alone, such as GOMEMLIMIT.
func Environment() (env []string) {
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SSL_CERT_FILE",
		"SSL_CERT_DIR"} {
		if value, is := os.LookupEnv(name); is {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// Start starts a command without ambient capabilities.
func Start(c *exec.Cmd) error {
	started := make(chan error)
	go func() { // on a thread that ends with this goroutine, as DropAmbient changes the thread
		runtime.LockOSThread()
		err := DropAmbient()
		if err == nil {
			err = c.Start()
		}
		started <- err
	}()
	return <-started
}

// Output is an io.Writer that keeps the first Limit bytes and drops the others.
type Output struct {
	Limit int
	Text  []byte
	Over  bool // bytes were dropped
}

func (o *Output) Write(p []byte) (int, error) {
	take := min(len(p), o.Limit-len(o.Text))
	o.Text = append(o.Text, p[:take]...)
	o.Over = o.Over || take < len(p)
	return len(p), nil
}
