package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/procs"
)

// Limits of the commands of a target, and of a process that starts again; plan.Workload.LongestUndo is more than both.
const (
	stopTimeout  = 30 * time.Second
	startTimeout = 25 * time.Second
	restartPoll  = 10 * time.Millisecond
)

// targetProcess is the process of a target as it was found at a time.
type targetProcess struct {
	target plan.Target
	proc   procfs
	pid    int
	start  string // when it began: another may get the same pid
	exe    string // the program it runs
	handle *os.Process
	log    *slog.Logger
}

// findTarget finds the process of a target, and refuses those whose end would be the agent's or the control plane's
// own. controlPort is the port of a control plane on this host, or 0.
func findTarget(target plan.Target, proc procfs, controlPort int, log *slog.Logger) (*targetProcess, error) {
	p := &targetProcess{target: target, proc: proc, log: log}
	if several := matching(proc, target.Process); len(several) > 1 {
		return nil, fmt.Errorf("target %q (%s) is %d processes: %s; name one by its port or pid in the --faults file",
			target.Name, inWords(target.Process), len(several), strings.Join(several, ", "))
	}
	p.pid, p.start = p.find()
	if p.start == "" {
		return nil,
			fmt.Errorf("find the process of target %q (%s): there is none on this host, or this agent may not see it",
				target.Name, inWords(target.Process))
	}
	if p.pid <= 1 || p.pid == os.Getpid() || proc.isAncestor(p.pid) {
		return nil, fmt.Errorf("target %q is process %d, which this agent itself lives in: not disturbed", target.Name,
			p.pid)
	}
	if controlPort != 0 && proc.listener(controlPort) == p.pid {
		return nil, fmt.Errorf("target %q is process %d, which serves the control plane: not disturbed", target.Name,
			p.pid)
	}
	handle, err := os.FindProcess(p.pid) // of this very process, even if its pid is used again
	if err != nil {
		return nil, fmt.Errorf("find process %d of target %q: %w", p.pid, target.Name, err)
	}
	p.handle, p.exe = handle, proc.program(p.pid)
	if now, ok := proc.usage(strconv.Itoa(p.pid)); !ok || now.start != p.start {
		return nil, fmt.Errorf("process %d of target %q ended just now", p.pid, target.Name)
	}
	return p, nil
}

// matching lists the processes that a target by its command may be, as "123 (name)". Metrics may be of the largest; a
// signal may go to no other than was meant.
func matching(proc procfs, x plan.Process) (all []string) {
	if x.Command == "" || x.PID != 0 || x.Port != 0 {
		return nil
	}
	for _, pid := range proc.processes(func(pid string) bool { return proc.hasCommand(pid, x.Command) }) {
		name, _ := proc.read(strconv.Itoa(pid), "comm")
		all = append(all, fmt.Sprintf("%d (%s)", pid, strings.TrimSpace(string(name))))
	}
	return all
}

func inWords(p plan.Process) string {
	switch {
	case p.PID != 0:
		return fmt.Sprintf("pid %d", p.PID)
	case p.Port != 0:
		return fmt.Sprintf("listening on port %d", p.Port)
	}
	return fmt.Sprintf("with %q in its command line", p.Command)
}

func (p *targetProcess) find() (pid int, start string) {
	if pid = p.proc.find(p.target.Process); pid == 0 {
		return 0, ""
	}
	u, _ := p.proc.usage(strconv.Itoa(pid))
	return pid, u.start
}

// restarted reports whether the process is there again. By its command it is one of the same program: the command that
// starts it may have its words.
func (p *targetProcess) restarted() bool {
	pid, start := p.find()
	// starts are in steps of 10 ms: two processes may have the same
	if start == "" || pid == p.pid && start == p.start {
		return false
	}
	return p.target.Process.Command == "" || p.exe == "" || p.proc.program(pid) == p.exe
}

// pause stops the process where it is, until undo.
func (p *targetProcess) pause() (undo func() error, err error) {
	g, err := newGuard(0, []string{"/bin/sh", "-c", "kill -CONT " + strconv.Itoa(p.pid)})
	if err != nil {
		return nil, err
	}
	if err := procs.Pause(p.handle); err != nil {
		g.dismiss()
		return nil, fmt.Errorf("pause process %d: %w", p.pid, err)
	}
	return func() error {
		defer g.dismiss()
		if err := procs.Resume(p.handle); err != nil {
			return fmt.Errorf("let process %d go on: %w", p.pid, err)
		}
		return nil
	}, nil
}

// end kills the process or has it stop in an orderly way; undo starts it again and returns when it is there.
func (p *targetProcess) end(kill bool) (undo func() error, err error) {
	g, err := newGuard(p.pid, p.target.Start)
	if err != nil {
		return nil, err
	}
	switch {
	case kill:
		err = p.handle.Kill()
	case len(p.target.Stop) > 0:
		err = runCommand(p.log, p.target.Stop)
	default:
		err = p.handle.Signal(syscall.SIGTERM)
	}
	if err != nil {
		g.dismiss()
		return nil, fmt.Errorf("end process %d: %w", p.pid, err)
	}
	return func() error {
		ended := g.fire()
		late := time.After(stopTimeout + startTimeout)
		for {
			select {
			case err := <-ended: // looked at first: what a failed start left behind is no server
				if err != nil {
					return fmt.Errorf("start target %q again: %w; start it by hand", p.target.Name, err)
				}
				ended = nil // it has handed over to a server in the background
			default:
			}
			if p.restarted() {
				return nil
			}
			select {
			case <-late:
				return fmt.Errorf("start target %q again: its command was run, and its process (%s) is not there",
					p.target.Name, inWords(p.target.Process))
			case <-time.After(restartPoll):
			}
		}
	}, nil
}

// isolate cuts the target off its network by its command, until undo.
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
		case <-time.After(startTimeout):
			return fmt.Errorf("heal target %q: its heal command did not end within %v; do it by hand", target.Name,
				startTimeout)
		}
	}
	if err := runCommand(log, target.Isolate); err != nil {
		err = fmt.Errorf("isolate target %q: its isolate command: %w; see this agent's log", target.Name, err)
		return "", nil, errors.Join(err, heal())
	}
	return "its network", heal, nil
}

// runCommand runs a command of a target to its end. Its arguments and output may have secrets and go to the agent's
// own log alone.
func runCommand(log *slog.Logger, argv []string) error {
	c := exec.Command(argv[0], argv[1:]...)
	procs.NewSession(c)
	c.WaitDelay = time.Second
	stop := time.AfterFunc(stopTimeout, func() { _ = c.Process.Kill() })
	defer stop.Stop()
	if out, err := c.CombinedOutput(); err != nil {
		log.Error("run command of a target", "command", argv, "err", err, "output", strings.TrimSpace(string(out)))
		return err
	}
	return nil
}
