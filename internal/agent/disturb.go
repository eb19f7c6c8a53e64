package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/procs"
)

// How long a process may take to stop, and to be there again, and an isolating command to end; plan.Workload.LongestUndo is more than both.
const (
	stopLimit  = 30 * time.Second
	startLimit = 25 * time.Second
	look       = 10 * time.Millisecond
)

// disturb does a fault to a process of this host that the agent was told at its start it may disturb. Whatever becomes of the agent, a guard
// undoes it.
func (s *server) disturb(f plan.Fault) (what string, undo func() error, err error) {
	i := slices.IndexFunc(s.cfg.Targets, func(x plan.Target) bool { return x.Name == f.Target })
	if i < 0 || !slices.Contains(s.cfg.Targets[i].Kinds(), f.Kind) {
		return "", nil, fmt.Errorf("this agent's --disturb file does not allow to %s %q", f.Kind, f.Target)
	}
	target := s.cfg.Targets[i]
	if f.Kind == plan.FaultIsolate {
		return isolate(s.cfg.Log, target)
	}
	p, err := s.victim(target)
	if err != nil {
		return "", nil, err
	}
	what = "process " + strconv.Itoa(p.pid)
	if f.Kind == plan.FaultPause {
		undo, err = p.pause()
	} else {
		undo, err = p.end(f.Kind == plan.FaultKill)
	}
	return what, undo, err
}

// victim is the process of a target as it was found at a time.
type victim struct {
	target plan.Target
	host   *host
	pid    int
	start  string // when it began: another may get the same pid
	exe    string // the program it runs
	handle *os.Process
	log    *slog.Logger
}

// victim finds the process, and refuses those whose end would be the agent's or the control plane's own.
func (s *server) victim(target plan.Target) (*victim, error) {
	v := &victim{target: target, host: &host{proc: s.cfg.Proc}, log: s.cfg.Log}
	if several := v.host.matching(target.Process); len(several) > 1 {
		return nil, fmt.Errorf("target %q (%s) is %d processes: %s; name one by its port or pid in the --disturb file",
			target.Name, words(target.Process), len(several), strings.Join(several, ", "))
	}
	v.pid, v.start = v.find()
	if v.start == "" {
		return nil, fmt.Errorf("find the process of target %q (%s): there is none on this host, or this agent may not see it", target.Name, words(target.Process))
	}
	if v.pid <= 1 || v.pid == os.Getpid() || v.host.above(v.pid) {
		return nil, fmt.Errorf("target %q is process %d, which this agent itself lives in: not disturbed", target.Name, v.pid)
	}
	if port := s.conn.LocalPort(); port != 0 && v.host.listener(port) == v.pid {
		return nil, fmt.Errorf("target %q is process %d, which serves the control plane: not disturbed", target.Name, v.pid)
	}
	handle, err := os.FindProcess(v.pid) // of this very process, even if its pid is used again
	if err != nil {
		return nil, fmt.Errorf("find process %d of target %q: %w", v.pid, target.Name, err)
	}
	v.handle, v.exe = handle, v.host.program(v.pid)
	if now, ok := v.host.usage(strconv.Itoa(v.pid)); !ok || now.start != v.start {
		return nil, fmt.Errorf("process %d of target %q ended just now", v.pid, target.Name)
	}
	return v, nil
}

func (v *victim) find() (pid int, start string) {
	if pid = v.host.find(v.target.Process); pid == 0 {
		return 0, ""
	}
	u, _ := v.host.usage(strconv.Itoa(pid))
	return pid, u.start
}

// back tells whether the process is there again. By its command it is one of the same program: the command that starts it may hold its words.
func (v *victim) back() bool {
	pid, start := v.find()
	if start == "" || pid == v.pid && start == v.start { // begins are told to 10 ms: two processes may have the same
		return false
	}
	return v.target.Process.Command == "" || v.exe == "" || v.host.program(pid) == v.exe
}

// program is the path of what a process runs, without the mark of a file that was replaced meanwhile.
func (h *host) program(pid int) string {
	path, _ := os.Readlink(h.proc + "/" + strconv.Itoa(pid) + "/exe")
	return strings.TrimSuffix(path, " (deleted)")
}

// above tells whether a process is an ancestor of this one.
func (h *host) above(pid int) bool {
	for p := os.Getppid(); p > 1; {
		if p == pid {
			return true
		}
		stat, err := os.ReadFile(h.proc + "/" + strconv.Itoa(p) + "/stat")
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if err != nil || len(fields) < 2 {
			return false
		}
		p = int(number(fields[1]))
	}
	return false
}

func words(p plan.Process) string {
	switch {
	case p.PID != 0:
		return fmt.Sprintf("pid %d", p.PID)
	case p.Port != 0:
		return fmt.Sprintf("listening on port %d", p.Port)
	}
	return fmt.Sprintf("with %q in its command line", p.Command)
}

// pause stops the process where it is, until undo.
func (v *victim) pause() (undo func() error, err error) {
	g, err := newGuard(0, []string{"/bin/sh", "-c", "kill -CONT " + strconv.Itoa(v.pid)})
	if err != nil {
		return nil, err
	}
	if err := procs.Pause(v.handle); err != nil {
		g.dismiss()
		return nil, fmt.Errorf("pause process %d: %w", v.pid, err)
	}
	return func() error {
		defer g.dismiss()
		if err := procs.Resume(v.handle); err != nil {
			return fmt.Errorf("let process %d go on: %w", v.pid, err)
		}
		return nil
	}, nil
}

// end kills the process or has it stop in an orderly way; undo starts it again and returns when it is there.
func (v *victim) end(kill bool) (undo func() error, err error) {
	g, err := newGuard(v.pid, v.target.Start)
	if err != nil {
		return nil, err
	}
	switch {
	case kill:
		err = v.handle.Kill()
	case len(v.target.Stop) > 0:
		err = run(v.log, v.target.Stop, stopLimit)
	default:
		err = v.handle.Signal(syscall.SIGTERM)
	}
	if err != nil {
		g.dismiss()
		return nil, fmt.Errorf("end process %d: %w", v.pid, err)
	}
	return func() error {
		ended := g.fire()
		late := time.After(stopLimit + startLimit)
		for {
			select {
			case err := <-ended: // looked at first: what a failed start left behind is no server
				if err != nil {
					return fmt.Errorf("start target %q again: %w; start it by hand", v.target.Name, err)
				}
				ended = nil // it has handed over to a server in the background
			default:
			}
			if v.back() {
				return nil
			}
			select {
			case <-late:
				return fmt.Errorf("start target %q again: its command was run, and its process (%s) is not there", v.target.Name, words(v.target.Process))
			case <-time.After(look):
			}
		}
	}, nil
}

// isolate cuts the target off its network by the command that the agent was told, until undo.
func isolate(log *slog.Logger, target plan.Target) (what string, undo func() error, err error) {
	g, err := newGuard(0, target.Heal)
	if err != nil {
		return "", nil, err
	}
	heal := func() error {
		select {
		case err := <-g.fire():
			if err != nil {
				return fmt.Errorf("heal target %q: its heal command: %w; do it by hand", target.Name, err)
			}
			return nil
		case <-time.After(startLimit):
			return fmt.Errorf("heal target %q: its heal command did not end within %v; do it by hand", target.Name, startLimit)
		}
	}
	if err := run(log, target.Isolate, stopLimit); err != nil {
		return "", nil, errors.Join(fmt.Errorf("isolate target %q: its isolate command: %w; see this agent's log", target.Name, err), heal())
	}
	return "its network", heal, nil
}

// run runs a command to its end. What it says, and its arguments, may hold secrets and go to the agent's own log alone.
func run(log *slog.Logger, argv []string, limit time.Duration) error {
	c := exec.Command(argv[0], argv[1:]...)
	procs.NewSession(c)
	c.WaitDelay = time.Second
	stop := time.AfterFunc(limit, func() { _ = c.Process.Kill() })
	defer stop.Stop()
	if out, err := c.CombinedOutput(); err != nil {
		log.Error("run command of a target", "command", argv, "err", err, "output", strings.TrimSpace(string(out)))
		return err
	}
	return nil
}
