package agent

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/internal/procs"
)

// guard is a process that undoes a fault when the agent has ended, for any reason. It waits for the end of a pipe that
// only the agent holds. It has its own session and ignores the signals that end an agent, so that it outlives the
// agent.
type guard struct {
	pipe  io.WriteCloser
	ended chan error
}

// guardScript waits for the end of the pipe, and then until process $1 has ended (0: none), for at most one minute.
// Then it executes the undo command. The command is passed in the environment: as an argument it would make the guard
// match the target's command line.
const guardScript = `trap '' TERM INT HUP
read -r word
[ "$word" = done ] && exit 0
pid=$1; undo=$LOCKSTEP_UNDO; unset LOCKSTEP_UNDO; n=0
while [ "$pid" != 0 ] && [ $n -lt 600 ]; do
	case "$(cat "/proc/$pid/stat" 2>/dev/null)" in ""|*") Z"*) break;; esac
	sleep 0.1; n=$((n+1))
done
trap - TERM INT HUP
eval "exec $undo"`

// newGuard starts a guard that runs undo after process pid has ended; pid 0: at once. The agent's ambient capabilities
// are for signals and for commands that change the network. A server that replaces process pid gets none.
func newGuard(pid int, undo []string) (*guard, error) {
	c := exec.Command("/bin/sh", "-c", guardScript, "lockstep-guard", strconv.Itoa(pid))
	c.Env = append(procs.Environment(), "LOCKSTEP_UNDO="+quoted(undo))
	procs.NewSession(c)
	pipe, err := c.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the process that undoes a fault: %w", err)
	}
	start := c.Start
	if pid != 0 {
		start = func() error { return procs.Start(c) }
	}
	if err := start(); err != nil {
		return nil, fmt.Errorf("start the process that undoes a fault: %w", err)
	}
	g := &guard{pipe: pipe, ended: make(chan error, 1)}
	go func() { g.ended <- c.Wait() }()
	return g, nil
}

// dismiss ends the guard without an undo.
func (g *guard) dismiss() {
	_, _ = io.WriteString(g.pipe, "done\n") // on an error the guard only repeats the undo
	_ = g.pipe.Close()
}

// fire makes the guard undo the fault now. The channel receives when the undo command has ended. A command that does
// not end is the started process itself.
func (g *guard) fire() <-chan error {
	_ = g.pipe.Close()
	return g.ended
}

// quoted returns a command in the form that a shell reads.
func quoted(argv []string) string {
	var b strings.Builder
	for _, word := range argv {
		b.WriteString(" '" + strings.ReplaceAll(word, "'", `'\''`) + "'")
	}
	return b.String()
}
