package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/plan"
)

const observeFlagName = "observe"

func observeFlag(c *cobra.Command, to *[]string) {
	c.Flags().StringArrayVar(to, observeFlagName, nil,
		"only measure `NAME=port:5672`, NAME=pid:1 or NAME=command:TEXT; repeatable [$LOCKSTEP_OBSERVE]")
}

// observed parses the values of --observe: the processes of brokers, by name. The error lists all invalid ones.
func observed(given []string) (map[string]plan.Processes, error) {
	all := map[string]plan.Processes{}
	var faults []error
	for _, text := range given {
		name, p, err := observation(strings.TrimSpace(text))
		if err == nil && slices.Contains(all[name], p) {
			err = errors.New("given twice; omit one")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("--observe %q: %w", text, err))
			continue
		}
		all[name] = append(all[name], p)
	}
	return all, usageErrors(faults)
}

// observation parses one value of --observe.
func observation(text string) (name string, p plan.Process, err error) {
	const forms = "write NAME=port:5672, NAME=pid:1234 or NAME=command:TEXT, where NAME is a broker of matrices or a driver"
	name, process, is := strings.Cut(text, "=")
	kind, value, hasKind := strings.Cut(process, ":")
	if !is || !hasKind || name == "" || value == "" || strings.ContainsAny(name, " \t\n,:") {
		return "", p, errors.New(forms)
	}
	number := func(most int) (int, error) {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > most {
			return 0, fmt.Errorf("%s: pass a number from 1 to %d, not %q", kind, most, value)
		}
		return n, nil
	}
	switch kind {
	case "port":
		p.Port, err = number(65535)
	case "pid":
		p.PID, err = number(1 << 22) // the maximum of Linux
	case "command":
		p.Command = value
	default:
		err = fmt.Errorf("%q: unknown way to find a process; %s", kind, forms)
	}
	return name, p, err
}
