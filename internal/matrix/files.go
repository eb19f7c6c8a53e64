package matrix

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"

	"example.org/lockstep/lockstep/internal/plan"
)

// readNamed reads a CUE or JSON file whose value is of a definition in the schema. It returns the named entries of its
// field in, or of the whole file, sorted by name. Fields that an entry does not set have the values of defaults. check
// completes an entry, and returns its errors with paths below it. none is the error of a file without entries.
func readNamed[T any](file string, text []byte, definition, in string, defaults T, check func(string, *T) []problem,
	none string) (entries []T, err error) {
	ctx := cuecontext.New()
	v := ctx.CompileBytes(text, cue.Filename(file))
	if err := v.Err(); err != nil {
		return nil, tidy(file, cueErrors(file, err), nil)
	}
	var x validator
	x.validate(lookupDefinition(schemaIn(ctx), definition), v, "")
	if in != "" {
		v = v.LookupPath(cue.ParsePath(in))
	}
	data, _ := plainData(v)
	named, _ := data.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		path, at := join(in, name), place(v.LookupPath(cue.MakePath(cue.Str(name))))
		ofEntry := func(f Error) bool { return f.Path == path || strings.HasPrefix(f.Path, path+".") }
		if slices.ContainsFunc(x.errors, ofEntry) {
			continue // report errors of fields first
		}
		entry := defaults
		if err := decode(named[name], &entry); err != nil {
			x.errors = append(x.errors, errorAt(at, path, err.Error()))
			continue
		}
		for _, p := range check(name, &entry) {
			x.errors = append(x.errors, errorAt(at, path+p.path, p.message))
		}
		entries = append(entries, entry)
	}
	if len(named) == 0 && len(x.errors) == 0 {
		x.errors = append(x.errors, errorAt(v.Pos(), in, none))
	}
	if len(x.errors) > 0 {
		return nil, tidy(file, x.errors, nil)
	}
	return entries, nil
}

// Targets reads an agent's --faults file, CUE or JSON. It returns the targets for faults on the agent's host, sorted by
// name. The error is of type Errors and contains all errors.
func Targets(file string, text []byte) ([]plan.Target, error) {
	return readNamed(file, text, "#Faults", "targets", plan.Target{}, validateTarget,
		"the file has no target; add one or omit --faults")
}

// validateTarget names a target and returns its errors.
func validateTarget(name string, t *plan.Target) []problem {
	t.Name = name
	ways := b2i(t.Process.PID != 0) + b2i(t.Process.Port != 0) + b2i(t.Process.Command != "")
	var out problems
	out.report(!plainName.MatchString(name), "", "its name is invalid; give letters, digits and _")
	out.report(ways > 1, ".process", "it has several of pid, port and command; give one of them")
	out.report(len(t.Start) > 0 && (t.Process.PID != 0 || ways == 0), ".process",
		"a process that is started again needs port or command; give one of them instead of pid")
	out.report(len(t.Stop) > 0 && len(t.Start) == 0, ".stop", "stop needs start; give start, too")
	out.report((len(t.Isolate) > 0) != (len(t.Heal) > 0), "",
		"only one of isolate and heal is set; give both or neither")
	out.report(len(out) == 0 && len(t.Kinds()) == 0, "",
		"no fault is possible for it; give its process, or isolate and heal")
	return out
}

// Limits of a hook's durations.
const (
	maxHookTimeout = time.Hour
	maxHookBackoff = 5 * time.Minute
)

// Hooks reads a controller's --hooks file, CUE or JSON. It returns the hooks with defaults, sorted by name. References
// to secrets are not resolved. The error is of type Errors and contains all errors.
func Hooks(file string, text []byte) ([]plan.Hook, error) {
	defaults := plan.Hook{Timeout: plan.Duration(30 * time.Second), Backoff: plan.Duration(time.Second), Retries: -1}
	return readNamed(file, text, "#Hooks", "hooks", defaults, validateHook, "the file has no hook; add one or omit --hooks")
}

// validateHook completes a hook and returns its errors.
func validateHook(name string, h *plan.Hook) []problem {
	h.Name = name
	if h.Retries < 0 {
		h.Retries = 3 * b2i(h.Webhook != "")
	}
	var out problems
	command := len(h.Command) > 0
	out.report(!plan.IsName(name, 64), "",
		"its name is invalid; give at most 64 letters, digits, \".\", \"_\" and \"-\"")
	out.report(command == (h.Webhook != ""), "", "give either a command or a webhook")
	out.report(command && strings.TrimSpace(h.Command[0]) == "", ".command", "the program is missing; give it")
	out.report(!command && h.Compare, ".compare", "only the output of a command can be a comparison; remove it")
	out.report(command && len(h.Headers) > 0, ".headers", "only a webhook has headers; remove them")
	out.report(h.Timeout.D() > maxHookTimeout, ".timeout", "it is above the maximum, 1h; lower it")
	out.report(h.Backoff.D() > maxHookBackoff, ".backoff", "it is above the maximum, 5m; lower it")
	for header, value := range h.Headers {
		out.report(!headerName.MatchString(header) || strings.ContainsAny(value, "\r\n"), "."+join("headers", header),
			"%q and its value are no valid HTTP header", header)
	}
	return out
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Command is the command line of an external driver.
type Command struct {
	Command []string
	Env     map[string]string
	Dir     string // relative to the directory of the file
}

// Commands reads a --drivers file, CUE or JSON: external drivers by name. The error is of type Errors and contains all
// errors.
func Commands(file string, text []byte) (map[string]Command, error) {
	commands := map[string]Command{}
	_, err := readNamed(file, text, "#Drivers", "", Command{}, func(name string, c *Command) []problem {
		commands[name] = *c
		var out problems
		out.report(len(c.Command) == 0 || c.Command[0] == "", ".command",
			`the program is missing; give it and its arguments, as in ["python3", "driver.py"]`)
		return out
	}, `the file has no driver; add one, as in mine: command: ["python3", "driver.py"], or omit --drivers`)
	return commands, err
}
