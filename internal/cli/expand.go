package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/procs"
	"example.org/lockstep/lockstep/internal/schedule"
)

// Limits of the process that expands the matrix of a schedule. Only one such process runs at a time. The maximum of
// 10,000 cells with the loopback driver takes 118 MiB. The controller's unit allows 1 GiB for both processes.
const (
	expandMemory = 384 << 20 // bytes
	expandTime   = 5 * time.Minute
)

// expandCommand is the name of the hidden command that expander starts.
const expandCommand = "expand-schedule"

// expansion is the output of the hidden command.
type expansion struct {
	Run   *plan.Run `json:"run,omitempty"`
	Error string    `json:"error,omitempty"`
}

// expandSchedule is the hidden command. It reads a schedule.Matrix and writes an expansion, both as JSON.
func expandSchedule() *cobra.Command {
	var memory uint64
	c := &cobra.Command{
		Use: expandCommand, Hidden: true, Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			time.AfterFunc(expandTime, func() { os.Exit(1) }) // also if the controller was killed
			exceeded := func() {
				_ = json.NewEncoder(c.OutOrStdout()).Encode(expansion{Error: fmt.Sprintf(
					"expand matrix: it needs more than %d MiB of memory; make the matrix smaller", memory>>20)})
				os.Exit(0)
			}
			procs.LimitMemory(memory, exceeded)
			var from schedule.Matrix
			if err := json.NewDecoder(c.InOrStdin()).Decode(&from); err != nil {
				return fmt.Errorf("read schedule matrix: %w", err)
			}
			var out expansion
			if run, err := controller.Expand(c.Context(), from); err != nil {
				out.Error = err.Error()
			} else {
				out.Run = &run
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(out)
		},
	}
	c.Flags().Uint64Var(&memory, "memory", 0, "use at most this many `bytes` of memory")
	withDrivers(c)
	return c
}

// crashed returns the line of a program's output that states why it crashed, without the stacks; else the first line.
func crashed(output string) string {
	output = strings.TrimSpace(output)
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "panic: ") {
			return strings.TrimSpace(line)
		}
	}
	first, _, _ := strings.Cut(output, "\n")
	return first
}

// expander returns a function that expands the matrix of a schedule in a child process of this program. The child gets
// no LOCKSTEP_ variables, only the file of drivers. It ends with an error after limit, or when it needs more than
// memory bytes.
func expander(drivers string, limit time.Duration, memory uint64) func(context.Context, schedule.Matrix) (plan.Run,
	error) {
	place := make(chan struct{}, 1)
	return func(ctx context.Context, from schedule.Matrix) (plan.Run, error) {
		select {
		case place <- struct{}{}:
			defer func() { <-place }()
		case <-ctx.Done():
			return plan.Run{}, context.Cause(ctx)
		}
		text, err := json.Marshal(from)
		if err != nil {
			return plan.Run{}, fmt.Errorf("expand matrix: %w", err)
		}
		program, err := procs.Self()
		if err != nil {
			return plan.Run{}, fmt.Errorf("expand matrix: find this program: %w", err)
		}
		ctx, cancel := context.WithTimeoutCause(ctx, limit,
			fmt.Errorf("it takes longer than %v; make the matrix smaller", limit))
		defer cancel()
		c := exec.CommandContext(ctx, program, expandCommand, "--drivers", drivers, "--memory",
			strconv.FormatUint(memory, 10))
		c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LOCKSTEP_") })
		out, stderr := &procs.Output{Limit: plan.MaxFile}, &procs.Output{Limit: 4096}
		c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(text), out, stderr
		c.WaitDelay = time.Second
		procs.NewGroup(c, false)
		// the group includes the external drivers that it has started
		c.Cancel = func() error { return procs.KillGroup(c.Process.Pid) }
		err = c.Run()
		if cause := context.Cause(ctx); cause != nil {
			return plan.Run{}, fmt.Errorf("expand matrix: %w", cause)
		}
		if err != nil {
			return plan.Run{}, fmt.Errorf("expand matrix: %w: %s", err, crashed(string(stderr.Text)))
		}
		var made expansion
		if err := plan.Decode(bytes.NewReader(out.Text), plan.MaxFile, &made); err != nil {
			return plan.Run{}, fmt.Errorf("expand matrix: %w", err)
		}
		if made.Run == nil {
			return plan.Run{}, errors.New(made.Error)
		}
		return *made.Run, nil
	}
}
