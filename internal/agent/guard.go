package agent

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"lockstep/internal/procs"
)

// guard is a process that undoes a fault when this one is gone, however it ended: it waits for the end of a pipe that
// this process alone holds. It is in a session of its own and ignores what ends the agent in an orderly way, so that
// it lives as long as it is needed.
type guard struct {
	pipe  io.WriteCloser
	ended chan error
}

// guardScript waits for the pipe's end, and then until the process $1, if any, is gone (one minute at most), and
// becomes the undoing command. That comes quoted in the environment: among the arguments its words would make the
// guard look like the process that it starts.
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

// newGuard starts a guard that runs undo once the process pid, if not 0, is gone.
func newGuard(pid int, undo []string) (*guard, error) {
	c := exec.Command("/bin/sh", "-c", guardScript, "lockstep-guard", strconv.Itoa(pid))
	c.Env = append(os.Environ(), "LOCKSTEP_UNDO="+quoted(undo))
	procs.NewSession(c)
	pipe, err := c.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard that undoes a fault: %w", err)
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start the guard that undoes a fault: %w", err)
	}
	g := &guard{pipe: pipe, ended: make(chan error, 1)}
	go func() { g.ended <- c.Wait() }()
	return g, nil
}

// dismiss ends the guard, as there is nothing to undo any more.
func (g *guard) dismiss() {
	_, _ = io.WriteString(g.pipe, "done\n") // if it cannot be told, it undoes what is undone
	_ = g.pipe.Close()
}

// fire has the guard undo the fault now. The channel tells when the undoing command has ended; one that stays is what
// it started.
func (g *guard) fire() <-chan error {
	_ = g.pipe.Close()
	return g.ended
}

// quoted is a command as a shell reads it back.
func quoted(argv []string) string {
	var b strings.Builder
	for _, word := range argv {
		b.WriteString(" '" + strings.ReplaceAll(word, "'", `'\''`) + "'")
	}
	return b.String()
}
