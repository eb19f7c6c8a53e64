// Package cli implements the command lines of the three programs: flags, help, exit codes, and the wiring of packages.
// Each program is a function from arguments and streams to an exit code, so that tests can call it.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/terminal"
)

// The exit codes of ctl.
const (
	ExitOK           = 0   // no cell failed or was invalid
	ExitError        = 1   // any other error: a file, the control plane, a record
	ExitBadMatrix    = 2   // the matrix or the command line has errors; nothing was run
	ExitFailedCells  = 3   // the run is complete, and a cell failed or was invalid
	ExitNoAgents     = 4   // too few agents, or a fault without a target; nothing was run
	ExitViolated     = 5   // all cells are valid, and a rule (require) is violated
	ExitAltered      = 6   // a bundle was altered, or its record gives other values
	ExitWorse        = 7   // ctl compare or digest --fail-on-regression: a value is worse
	ExitInconclusive = 8   // all cells are valid, no rule is violated, and one is inconclusive
	ExitInterrupted  = 130 // stopped by a signal or cancelled; the record keeps the measurements
)

// exit is an error with an exit code. Nothing is printed for an empty message.
type exit struct {
	code int
	err  error
}

func (e exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e exit) Unwrap() error { return e.err }

func init() {
	cobra.AddTemplateFuncs(template.FuncMap{"wrapped": wrapped, "defaultFirst": defaultFirst})
}

var variableThenDefault = regexp.MustCompile(`(\[\$\w+\])(\s+)(\(default\s[^)]*\))`)

// defaultFirst moves the defaults in the help of flags before the environment variables. pflag appends them.
func defaultFirst(usages string) string {
	return variableThenDefault.ReplaceAllString(usages, "$3$2$1")
}

// wrapped wraps the paragraphs and the items of lists in a help text at 100 columns. Paragraphs with indented lines
// stay as they are.
func wrapped(text string) string {
	paragraphs := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, p := range paragraphs {
		if strings.Contains(p, "\n ") {
			continue
		}
		items := strings.Split(p, "\n- ")
		items[0] = display.Hang(items[0], 100, 0)
		for j, item := range items[1:] {
			items[1+j] = display.Hang("- "+item, 100, 2)
		}
		paragraphs[i] = strings.Join(items, "\n")
	}
	return strings.Join(paragraphs, "\n\n")
}

// execute runs a command tree and returns the exit code of its error. Control characters are escaped in the output to
// standard error and to terminals.
func execute(ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if terminal.Is(stdout) {
		stdout = terminal.NewWriter(stdout)
	}
	stderr = terminal.NewWriter(stderr)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = version()
	root.Flags().Bool("version", false, "print the version") // -v is --verbose
	root.SetFlagErrorFunc(flagError)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 100 | defaultFirst "))
	root.SetHelpTemplate("{{with or .Long .Short}}{{wrapped .}}\n\n{{end}}{{.UsageString}}")
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	if message := err.Error(); message != "" {
		fmt.Fprintln(stderr, message)
	}
	var coded exit
	var faults matrix.Errors
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &faults):
		return ExitBadMatrix
	case errors.Is(err, context.Canceled), errors.Is(err, errTerminated):
		return ExitInterrupted
	}
	return ExitError
}

// errTerminated is the cause of a context that SIGTERM cancelled. Then ctl leaves a run on a fleet running.
var errTerminated = errors.New("terminated")

// Main runs a program and exits with its exit code. The first SIGINT or SIGTERM cancels the context of the program. The
// signal with number last ends it at once with ExitInterrupted.
func Main(program func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int, last int) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if <-signals == syscall.SIGTERM {
			cancel(errTerminated)
		}
		cancel(nil)
		for range last - 1 {
			<-signals
		}
		fmt.Fprintln(os.Stderr, "stopped; remove the queues and topics of a task in flight in this process, if any, with ctl runs cleanup")
		os.Exit(ExitInterrupted)
	}()
	os.Exit(program(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Version data of a release, which deploy/packages/build.sh sets when it links the programs.
var release, commit, date string

// build identifies a program that is not of a release, which has no version of its own. "": it is of a release.
func build() string {
	if release != "" {
		return ""
	}
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d bytes of %s, ", info.Size(), info.ModTime().UTC().Format(time.RFC3339))
}

// version returns the release, or else the module's version, with the commit and its date if the build contains them:
// "1.2.3 (commit 0a1b2c3d4e5f, 2026-01-02)".
func version() string {
	v, revision, at, modified := release, commit, date, false
	if info, ok := debug.ReadBuildInfo(); ok {
		v = cmp.Or(v, info.Main.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = cmp.Or(revision, s.Value)
			case "vcs.time":
				at = cmp.Or(at, s.Value)
			case "vcs.modified":
				modified = s.Value == "true"
			}
		}
	}
	var more []string
	if revision != "" {
		more = append(more, "commit "+revision[:min(12, len(revision))])
	}
	if at != "" {
		more = append(more, at[:min(len(time.DateOnly), len(at))])
	}
	if modified {
		more = append(more, "modified")
	}
	v = cmp.Or(v, "unknown")
	if len(more) > 0 {
		v += " (" + strings.Join(more, ", ") + ")"
	}
	return v
}

// logger logs text to stderr: from this level on, or all levels if verbose.
func logger(stderr io.Writer, level slog.Level, verbose bool) *slog.Logger {
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
}

// usageErrorf returns an error with exit code ExitBadMatrix.
func usageErrorf(format string, args ...any) error {
	return exit{ExitBadMatrix, fmt.Errorf(format, args...)}
}

// usageErrors collects the errors of a command line.
type usageErrors []error

// add adds an error, unless it is nil.
func (e *usageErrors) add(err error) {
	if err != nil {
		*e = append(*e, err)
	}
}

func (e *usageErrors) addf(format string, args ...any) { e.add(fmt.Errorf(format, args...)) }

// join joins the errors into one with exit code ExitBadMatrix; nil if there are none.
func (e usageErrors) join() error {
	if err := errors.Join(e...); err != nil {
		return exit{ExitBadMatrix, err}
	}
	return nil
}

// invalidValue returns an error that states which values a flag accepts. It returns err for types whose own errors do.
func invalidValue(f *pflag.Flag, err error) error {
	switch f.Value.Type() {
	case "bool":
		return errors.New("not a boolean; pass true or false")
	case "int", "uint64":
		return errors.New("not a number; pass a whole number")
	case "duration":
		return errors.New("not a duration; pass a number with its unit, such as 90s or 2m30s")
	}
	return err
}

// arguments wraps a check of positional arguments. Its errors have the exit code ExitBadMatrix, and state the remedy.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch err := check(c, args); {
		case err == nil:
			return nil
		case c.HasAvailableSubCommands() && len(args) > 0:
			return exit{ExitBadMatrix, unknownCommand(c, args[0])}
		}
		return usageErrorf("%s given; write %s; see %s --help", display.Count(len(args), "argument"),
			strings.TrimSuffix(c.UseLine(), " [flags]"), c.CommandPath())
	}
}

// unknownCommand returns an error that suggests a subcommand of c with a similar name, or a command elsewhere with this
// name.
func unknownCommand(c *cobra.Command, name string) error {
	err := fmt.Errorf("unknown command %q for %s", name, c.CommandPath())
	siblings := map[string]string{}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			siblings[sub.Name()] = sub.CommandPath()
		}
	}
	near := siblings[plan.ClosestMatch(name, slices.Sorted(maps.Keys(siblings)))]
	var search func(*cobra.Command)
	search = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Name() == name && sub.IsAvailableCommand() {
				near = sub.CommandPath()
			}
			search(sub)
		}
	}
	search(c.Root())
	if near == "" {
		return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
	}
	return fmt.Errorf("%w; did you mean %s?", err, near)
}

// flagError returns the error of an invalid command line: with the values that the flag accepts, or a similar flag.
func flagError(c *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		err = fmt.Errorf("--%s %q: %w", f.Name, invalid.GetValue(), invalidValue(f, invalid.Unwrap()))
	case errors.As(err, &unknown):
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := plan.ClosestMatch(unknown.GetSpecifiedName(), names); near != "" {
			return usageErrorf("%w; did you mean --%s?", err, near)
		}
	}
	return usageErrorf("%w; see %s --help", err, c.CommandPath())
}
