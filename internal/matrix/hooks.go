package matrix

import (
	"strings"
	"time"

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
	out.report(!hookName(name), "",
		"its name is invalid; give at most 64 letters, digits, \".\", \"_\" and \"-\"")
	out.report(command == (h.Webhook != ""), "", "give either a command or a webhook")
	out.report(command && strings.TrimSpace(h.Command[0]) == "", ".command", "the program is missing; give it")
	out.report(!command && h.Compare, ".compare", "only the output of a command can be a comparison; remove it")
	out.report(command && len(h.Headers) > 0, ".headers", "only a webhook has headers; remove them")
	out.report(h.Timeout.D() > maxHookTimeout, ".timeout", "it is above the maximum, 1h; lower it")
	out.report(h.Backoff.D() > maxHookBackoff, ".backoff", "it is above the maximum, 5m; lower it")
	for header, value := range h.Headers {
		out.report(!headerName(header) || strings.ContainsAny(value, "\r\n"), "."+join("headers", header),
			"%q and its value are no valid HTTP header", header)
	}
	return out
}

func hookName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s,
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == "" && !strings.ContainsAny(s[:1], "._-")
}

func headerName(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}
