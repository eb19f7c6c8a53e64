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

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/procs"
)

// Limits for commands of a target, and for a process that restarts. plan.Workload.LongestUndo exceeds their sum.
const (
	stopTimeout  = 30 * time.Second
	startTimeout = 25 * time.Second
	restartPoll  = 10 * time.Millisecond
)

// targetProcess is the process of a target as found at a certain time.
type targetProcess struct {
	target plan.Target
	proc   procfs
	pid    int
	start  string // its start time, as another process may get the same pid
	exe    string // path of its program
	handle *os.Process
	log    *slog.Logger
}

// findTarget finds the process of a target. It refuses the agent itself, its ancestors, and a control plane on this
// host. controlPort is the port of that control plane, or 0.
func findTarget(target plan.Target, proc procfs, controlPort int, log *slog.Logger) (*targetProcess, error) {
	p := &targetProcess{target: target, proc: proc, log: log}
	if several := matching(proc, target.Process); len(several) > 1 {
		return nil, fmt.Errorf("target %q (%s) matches %d processes: %s; select one by port or pid in the --faults file",
			target.Name, inWords(target.Process), len(several), strings.Join(several, ", "))
	}
	p.pid, p.start = p.find()
	if p.start == "" {
		return nil,
			fmt.Errorf("find the process of target %q (%s): not found on this host, or no permission to see it",
				target.Name, inWords(target.Process))
	}
	if p.pid <= 1 || p.pid == os.Getpid() || proc.isAncestor(p.pid) {
		return nil, fmt.Errorf("target %q is process %d, which is this agent or its parent; no fault injected", target.Name,
			p.pid)
	}
	if controlPort != 0 && proc.listener(controlPort) == p.pid {
		return nil, fmt.Errorf("target %q is process %d, which serves the control plane; no fault injected", target.Name,
			p.pid)
	}
	handle, err := os.FindProcess(p.pid) // refers to this process even if its pid is used again
	if err != nil {
		return nil, fmt.Errorf("find process %d of target %q: %w", p.pid, target.Name, err)
	}
	p.handle, p.exe = handle, proc.program(p.pid)
	if now, ok := proc.usage(strconv.Itoa(p.pid)); !ok || now.start != p.start {
		return nil, fmt.Errorf("process %d of target %q has just ended", p.pid, target.Name)
	}
	return p, nil
}

// matching returns the processes that match a target's command, as "123 (name)". Metrics may use the largest of
// several, but a signal must not go to the wrong process.
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

// restarted reports whether the target's process has started again. If the target is named by its command, the program
// must be the same, as the start command may contain the same words.
func (p *targetProcess) restarted() bool {
	pid, start := p.find()
	// start times have a resolution of 10 ms: two processes may have the same
	if start == "" || pid == p.pid && start == p.start {
		return false
	}
	return p.target.Process.Command == "" || p.exe == "" || p.proc.program(pid) == p.exe
}

// pause suspends the process until undo.
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
			return fmt.Errorf("resume process %d: %w; run kill -CONT %[1]d", p.pid, err)
		}
		return nil
	}, nil
}

// end kills or stops the process. undo starts it again and returns when it runs. If the stop command fails but the
// process ends, end starts it again.
func (p *targetProcess) end(kill bool) (undo func() error, err error) {
	g, err := newGuard(p.pid, p.target.Start)
	if err != nil {
		return nil, err
	}
	undo = func() error {
		ended := g.fire()
		late := time.After(stopTimeout + startTimeout)
		for {
			select {
			case err := <-ended: // checked first: a process left by a failed start is not the target
				if err != nil {
					return fmt.Errorf("restart target %q: %w; start it manually", p.target.Name, err)
				}
				ended = nil // the command has started a server in the background
			default:
			}
			if p.restarted() {
				return nil
			}
			select {
			case <-late:
				return fmt.Errorf("restart target %q: its command ran, but its process (%s) was not found; start it manually",
					p.target.Name, inWords(p.target.Process))
			case <-time.After(restartPoll):
			}
		}
	}
	switch {
	case kill:
		err = p.handle.Kill()
	case len(p.target.Stop) > 0:
		if err = runCommand(p.log, p.target.Stop); err == nil {
			break
		}
		err = fmt.Errorf("its stop command failed: %w; see the log of this agent", err)
		for late := time.Now().Add(startTimeout); time.Now().Before(late); {
			if now, _ := p.proc.usage(strconv.Itoa(p.pid)); now.start != p.start {
				return nil, errors.Join(fmt.Errorf("stop target %q: %w", p.target.Name, err), undo())
			}
			<-time.After(restartPoll)
		}
	default:
		err = p.handle.Signal(syscall.SIGTERM)
	}
	if err != nil {
		g.dismiss()
		return nil, fmt.Errorf("end process %d of target %q: %w", p.pid, p.target.Name, err)
	}
	return undo, nil
}

// isolate separates the target from its network with its command, until undo.
func isolate(log *slog.Logger, target plan.Target) (what string, undo func() error, err error) {
	g, err := newGuard(0, target.Heal)
	if err != nil {
		return "", nil, err
	}
	heal := func() error {
		select {
		case err := <-g.fire():
			if err != nil {
				return fmt.Errorf("heal target %q: its heal command failed: %w; heal it manually", target.Name, err)
			}
			return nil
		case <-time.After(startTimeout):
			return fmt.Errorf("heal target %q: its heal command did not end within %v; heal it manually", target.Name,
				startTimeout)
		}
	}
	if err := runCommand(log, target.Isolate); err != nil {
		err = fmt.Errorf("isolate target %q: its isolate command failed: %w; see the log of this agent", target.Name, err)
		return "", nil, errors.Join(err, heal())
	}
	return "its network", heal, nil
}

// runCommand runs a command of a target until it ends. Arguments and output may contain secrets, so they only go to the
// agent's own log.
func runCommand(log *slog.Logger, argv []string) error {
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = procs.Environment()
	procs.NewSession(c)
	c.WaitDelay = time.Second
	stop := time.AfterFunc(stopTimeout, func() { _ = c.Process.Kill() })
	out, err := c.CombinedOutput()
	if late := !stop.Stop(); late && err != nil {
		err = fmt.Errorf("it did not end within %v (%w)", stopTimeout, err)
	}
	if err != nil {
		log.Error("command of a target failed", "command", argv, "err", err, "output", strings.TrimSpace(string(out)))
		return err
	}
	return nil
}
