// Package main is the lab. It starts real brokers on the loopback interface for the duration of a command, passes their
// addresses to the command in environment variables, and stops exactly the processes that it started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

const usage = `The lab starts real brokers on 127.0.0.1, on free ports, for tests.

  go run ./test/lab run [--keep] [PART...] -- COMMAND ARGS... start, run the command, stop; its exit code is the lab's
  go run ./test/lab up [--keep] PART...                       start, print the environment, stop at Ctrl-C
  go run ./test/lab install PART...                           download and build, start nothing
  go run ./test/lab list                                      print the parts

Parts, or "all" for each that has a broker and "tools" for the rest:
%s
Downloads and builds are stored in the user's cache folder under lockstep-lab. A lab's own files are removed at its end,
unless --keep is given. Inject faults into brokers while it runs, with kill, start, restart, pause and resume:
  curl -X POST "$LOCKSTEP_LAB_CONTROL/restart?name=rabbitmq"
The command can start and stop instances of its own, which need not be parts of the lab:
  curl -X POST "$LOCKSTEP_LAB_CONTROL/up?part=rabbitmq"
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 2 && args[0] == "balance" { // internal: the lab starts itself as a helper
		fmt.Fprintln(stderr, "lab:", balance(args[1], args[2:]))
		return 1
	}
	order, err := parse(args)
	if err != nil {
		fmt.Fprintln(stderr, err)
		fmt.Fprintf(stderr, "\n"+usage, describeParts())
		return 2
	}
	if order.list {
		fmt.Fprint(stdout, describeParts())
		return 0
	}
	interrupts := make(chan os.Signal, 4)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(interrupts)

	code, err := order.execute(interrupts, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "lab:", err)
	}
	return code
}

// order is the parsed command line.
type order struct {
	parts   []Part
	command []string // empty: run until a signal arrives
	keep    bool
	list    bool
	install bool // install only
}

func parse(args []string) (order, error) {
	var o order
	if len(args) == 1 && args[0] == "list" {
		o.list = true
		return o, nil
	}
	if len(args) == 0 || !slices.Contains([]string{"run", "up", "install"}, args[0]) {
		return o, errors.New("lab: no command; pass run, up, install or list")
	}
	o.install = args[0] == "install"
	before := args[1:]
	if i := slices.Index(before, "--"); i >= 0 {
		before, o.command = before[:i], before[i+1:]
	}
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&o.keep, "keep", false, "keep the brokers' files")
	if err := flags.Parse(before); err != nil {
		return o, fmt.Errorf("lab: %w", err)
	}
	var err error
	if o.parts, err = choose(flags.Args()); err != nil {
		return o, err
	}
	switch {
	case len(o.parts) == 0 && args[0] != "run": // a command can start instances on demand
		return o, errors.New("lab: name at least one part")
	case args[0] == "run" && len(o.command) == 0:
		return o, errors.New("lab: run needs a command after --")
	case args[0] != "run" && len(o.command) > 0:
		return o, fmt.Errorf("lab: %s accepts no command", args[0])
	}
	return o, nil
}

func (o order) execute(interrupts <-chan os.Signal, stdout, stderr io.Writer) (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lab, err := newLab(stderr, o.keep)
	if err != nil {
		return 1, err
	}
	defer lab.stop()

	started := make(chan error, 1)
	go func() {
		if o.install {
			started <- meetAll(ctx, lab.site, o.parts)
			return
		}
		started <- lab.start(ctx, o.parts)
	}()
	select {
	case err := <-started:
		if err != nil {
			return 1, err
		}
		if o.install {
			fmt.Fprintln(stdout, strings.Join(whereAll(lab.site, o.parts), "\n"))
			return 0, nil
		}
	case s := <-interrupts:
		cancel()
		<-started
		return 130, fmt.Errorf("%v while the brokers were starting", s)
	}
	if len(o.command) == 0 {
		fmt.Fprintln(stdout, strings.Join(lab.env, "\n"))
		<-interrupts
		return 0, nil
	}
	return runCommand(o.command, lab.env, interrupts, stdout, stderr)
}

// runCommand runs the command in its own process group, so that it receives a Ctrl-C only from here, and once.
func runCommand(command, env []string, interrupts <-chan os.Signal, stdout, stderr io.Writer) (int, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = 5 * time.Second // child processes that it left running do not delay the lab
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start %s: %w", command[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-interrupts:
			_ = syscall.Kill(-cmd.Process.Pid, s.(syscall.Signal))
		case err := <-ended:
			var exit *exec.ExitError
			switch {
			case err == nil:
				return 0, nil
			case errors.As(err, &exit) && exit.Exited():
				return exit.ExitCode(), nil
			case errors.As(err, &exit):
				return 130, fmt.Errorf("%s: %w", command[0], err)
			}
			return 1, fmt.Errorf("run %s: %w", command[0], err)
		}
	}
}
