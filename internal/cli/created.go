package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// createdFile returns the path of the file with the digests of the plans that this user submitted, one per line. It is
// not part of a record, so the author of a record, a bundle or a fleet's state cannot add to it.
func createdFile() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "lockstep", "created-runs"), nil
}

// asRecorded returns a plan as JSON like in its record: without secrets, and without the bases and ceilings that
// a controller adds.
func asRecorded(run plan.Run) (string, error) {
	run = run.Redacted()
	run.Bases, run.Ceilings = nil, nil
	text, err := json.Marshal(run)
	return plan.Redact(string(text)), err
}

// noteCreated adds a run to the file, so that created returns true for it.
func noteCreated(run plan.Run) error {
	name, err := createdFile()
	if err != nil {
		return err
	}
	text, err := asRecorded(run)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(hexDigest([]byte(text)) + "\n")
	return errors.Join(err, file.Close())
}

// created reports whether this user submitted the plan of a record. It returns false if the file cannot be read. A plan
// with a secret was altered, because records contain no secrets: the result is false.
func created(run plan.Run) bool {
	name, err := createdFile()
	if err != nil {
		return false
	}
	list, err := os.ReadFile(name)
	if err != nil {
		return false
	}
	run.Bases, run.Ceilings = nil, nil
	text, err := json.Marshal(run)
	if err != nil {
		return false
	}
	redacted, err := asRecorded(run)
	return err == nil && redacted == string(text) &&
		slices.Contains(strings.Split(string(list), "\n"), hexDigest([]byte(redacted)))
}

// consent asks for permission to use the files, secrets and brokers that run names, unless this user created it. The
// parameter of is the recorded plan from which run was expanded. Call it before any of them is opened, resolved or
// dialled.
func consent(c *cobra.Command, yes bool, of, run plan.Run) error {
	if created(of) {
		return nil
	}
	out := c.ErrOrStderr()
	fmt.Fprintf(out, "run %s was not created by this user; it would use\n", display.Clean(of.ID))
	for _, line := range run.Uses() {
		fmt.Fprintf(out, "  %s\n", display.Hang(display.Clean(line), width(out), 4))
	}
	fmt.Fprintln(out, "  the cloud identity of this host, if a driver requires it")
	sure, err := ask(c, yes, "Use all of these?",
		"nothing opened: another user created the run, and there is no terminal for the confirmation; check the list, then pass --yes")
	if err == nil && !sure {
		err = usageErrorf("nothing opened: not confirmed")
	}
	return err
}
