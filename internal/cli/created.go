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

	"lockstep/internal/display"
	"lockstep/internal/plan"
)

// createdFile is where ctl lists the digests of the plans that this user submitted, one per line. It is no part of any
// record: the author of a record, a bundle or the state of a fleet cannot add to it.
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

// asRecorded is a plan as its record has it: without secrets, and without the bases that a controller adds.
func asRecorded(run plan.Run) (string, error) {
	run = run.Redacted()
	run.Bases = nil
	text, err := json.Marshal(run)
	return plan.Redact(string(text)), err
}

// noteCreated has created report the run from now on.
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

// created reports whether the plan of a record is one that this user submitted. If that cannot be found out, it is not.
// A plan with a secret where the record has none is another one: somebody has put it there.
func created(run plan.Run) bool {
	name, err := createdFile()
	if err != nil {
		return false
	}
	list, err := os.ReadFile(name)
	if err != nil {
		return false
	}
	run.Bases = nil
	text, err := json.Marshal(run)
	if err != nil {
		return false
	}
	redacted, err := asRecorded(run)
	return err == nil && redacted == string(text) &&
		slices.Contains(strings.Split(string(list), "\n"), hexDigest([]byte(redacted)))
}

// consent asks before run, which was expanded from the record of another user, uses what it names. Nothing of it was
// opened, resolved or dialled before.
func consent(c *cobra.Command, yes bool, of, run plan.Run) error {
	if created(of) {
		return nil
	}
	out := c.ErrOrStderr()
	fmt.Fprintf(out, "run %s was not created by this ctl; it would use\n", display.Clean(of.ID))
	for _, line := range run.Uses() {
		fmt.Fprintf(out, "  %s\n", display.Hang(display.Clean(line), width(out), 4))
	}
	fmt.Fprintln(out, "  the cloud identity of this host, if a driver asks for it")
	sure, err := ask(c, yes, "Use all of this?",
		"nothing was opened: the record is not of this ctl, and there is no terminal to ask on; read the list, then give --yes")
	if err == nil && !sure {
		err = exit{ExitBadMatrix, errors.New("nothing was opened")}
	}
	return err
}
