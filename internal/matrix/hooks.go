package matrix

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"

	"example.org/lockstep/lockstep/internal/plan"
)

// Limits of a hook's durations.
const (
	maxHookTimeout = time.Hour
	maxHookBackoff = 5 * time.Minute
)

// Hooks reads a controller's --hooks file, CUE or JSON. It returns the hooks with defaults, sorted by name. References
// to secrets are not resolved. The error is of type Errors and contains all errors.
func Hooks(file string, text []byte) ([]plan.Hook, error) {
	v, tree, errs := readFile(file, text, "#Hooks")
	named, _ := tree["hooks"].(map[string]any)
	var hooks []plan.Hook
	for _, name := range slices.Sorted(maps.Keys(named)) {
		raw, err := json.Marshal(named[name])
		h := plan.Hook{Timeout: plan.Duration(30 * time.Second), Backoff: plan.Duration(time.Second), Retries: -1}
		if err != nil || json.Unmarshal(raw, &h) != nil { // an error of a field, reported by the validation
			continue
		}
		h.Name = name
		if h.Retries < 0 {
			h.Retries = 3 * b2i(h.Webhook != "")
		}
		at := place(v.LookupPath(cue.MakePath(cue.Str("hooks"), cue.Str(name))))
		path := join("hooks", name)
		if slices.ContainsFunc(errs, func(f Error) bool { return strings.HasPrefix(f.Path, path+".") }) {
			continue // report errors of fields first
		}
		for _, p := range validateHook(h) {
			errs = append(errs, errorAt(at, path+p.path, p.message))
		}
		hooks = append(hooks, h)
	}
	if len(named) == 0 && len(errs) == 0 {
		errs = append(errs, errorAt(v.Pos(), "hooks",
			"the file has no hook; add one or omit --hooks"))
	}
	if len(errs) > 0 {
		return nil, tidy(file, errs, nil)
	}
	return hooks, nil
}

// validateHook returns the errors of a hook.
func validateHook(h plan.Hook) (wrong []problem) {
	report := func(is bool, path, text string) {
		if is {
			wrong = append(wrong, problem{path, text})
		}
	}
	command := len(h.Command) > 0
	report(!hookName(h.Name), "",
		"its name is invalid; give at most 64 letters, digits, \".\", \"_\" and \"-\"")
	report(command == (h.Webhook != ""), "", "give either a command or a webhook")
	report(command && strings.TrimSpace(h.Command[0]) == "", ".command", "the program is missing; give it")
	report(!command && h.Compare, ".compare", "only the output of a command can be a comparison; remove it")
	report(command && len(h.Headers) > 0, ".headers", "only a webhook has headers; remove them")
	report(h.Timeout.D() > maxHookTimeout, ".timeout", "it is above the maximum, 1h; lower it")
	report(h.Backoff.D() > maxHookBackoff, ".backoff", "it is above the maximum, 5m; lower it")
	for name, value := range h.Headers {
		report(!headerName(name) || strings.ContainsAny(value, "\r\n"), "."+join("headers", name),
			fmt.Sprintf("%q and its value are no valid HTTP header", name))
	}
	return wrong
}

func hookName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s,
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == "" && !strings.ContainsAny(s[:1], "._-")
}

func headerName(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}
