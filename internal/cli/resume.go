package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/internal/matrix"
	"lockstep/internal/plan"
	"lockstep/internal/runs"
	"lockstep/internal/sampling"
	"lockstep/internal/wire"
)

// submission returns the run of a matrix, or the rest of a run to resume.
func (o *runOptions) submission(ctx context.Context, args []string) (wire.Submission, error) {
	if o.resume != "" {
		s, err := o.resumption(ctx)
		s.By = submitter()
		return s, err
	}
	run, err := o.expand(ctx, args[0])
	if err != nil {
		return wire.Submission{}, err
	}
	if err := executable(args[0], run); err != nil {
		return wire.Submission{}, err
	}
	run.ID, run.Version, run.Started = newRunID(run.Name), plan.RecordFormat, time.Now().UTC()
	run.Source.Path, run.Source.Server = absolute(args[0]), plan.Redact(o.server.url)
	return wire.Submission{Run: run, By: submitter()}, nil
}

// expand expands the matrix of a file or of a bundle.
func (o *runOptions) expand(ctx context.Context, file string) (plan.Run, error) {
	if o.rerun != nil {
		return o.rerun.expand(ctx, o.narrow, o.server.url == "")
	}
	return expand(ctx, file, o.narrow)
}

// resumption expands the matrix of a recorded run again, because the record contains no secrets. It uses the copy in
// the record if nothing was redacted in it. Else it reads the original file, which must be unchanged.
func (o *runOptions) resumption(ctx context.Context) (wire.Submission, error) {
	record, err := runs.Open(o.runs, o.resume)
	if err != nil && o.server.url != "" {
		err = fmt.Errorf("%w; if the run is on the fleet, copy its record first: ctl runs pull %s%s%s", err, shellWord(o.resume),
			o.elsewhere(), o.server.hint())
	}
	if err != nil {
		return wire.Submission{}, err
	}
	old := record.Plan()
	o.origin = &old
	if server := plan.Redact(o.server.url); server != old.Source.Server {
		return wire.Submission{}, exit{ExitBadMatrix,
			fmt.Errorf("resume %s: it ran %s and would continue %s; use the same --server or --context as before",
				old.ID, where(old.Source.Server), where(server))}
	}
	if err := o.goOnIn(record); err != nil {
		return wire.Submission{}, err
	}
	set := old.Source.Set
	if len(o.narrow.Set) > 0 {
		set = o.narrow.Set
	} else if strings.Contains(strings.Join(set, ""), stars) {
		return wire.Submission{}, exit{ExitBadMatrix, fmt.Errorf(
			"resume %s: its --set contained a password, which is not in the record; pass the same again: %s (or use ${env:NAME} next time)",
			old.ID, quoted(set))}
	}
	source := []byte(old.Source.Text)
	if hexDigest(source) != old.Source.SHA256 {
		if !created(old) {
			return wire.Submission{}, fmt.Errorf("resume %s: "+
				"its matrix has passwords, which are not in the record, and the matrix file of another user is not read; "+
				"run the matrix itself", old.ID)
		}
		if source, err = os.ReadFile(old.Source.Path); err != nil {
			return wire.Submission{},
				fmt.Errorf("resume %s: its matrix has secrets, which are not in the record; read the matrix file: %w",
					old.ID, err)
		}
		if hexDigest(source) != old.Source.SHA256 {
			return wire.Submission{}, fmt.Errorf("resume %s: %s has changed since the run started; start a new run", old.ID,
				old.Source.Path)
		}
	}
	m, err := matrix.Load(old.Source.File, source,
		matrix.Narrow{Quick: old.Source.Quick, Set: set, Filter: old.Source.Filter})
	if err != nil {
		return wire.Submission{}, err
	}
	run, err := m.Run(ctx)
	if err != nil {
		return wire.Submission{}, err
	}
	if !slices.Equal(run.Source.Set, old.Source.Set) {
		return wire.Submission{}, exit{ExitBadMatrix,
			fmt.Errorf("resume %s: --set differs: a run is resumed as it was started, %s; omit --set",
				old.ID, begunWith(old.Source.Set))}
	}
	rounds := record.Rounds()
	o.complete = !slices.ContainsFunc(old.Tasks(),
		func(t plan.Task) bool { return !record.Done(t.ID) && rounds.Needed(t) })
	run.ID, run.Version, run.Started, run.Source, run.Bases = old.ID, old.Version, old.Started, old.Source, old.Bases
	s := wire.Submission{Run: run, Done: record.DoneTasks()}
	outcomes, err := record.Outcomes()
	s.Numbers = sampling.Numbers(old, outcomes)
	return s, err
}

// goOnIn sets --runs to the folder of a run that was given by its path. It fails if another ctl runs it.
func (o *runOptions) goOnIn(record *runs.Run) error {
	id := record.Plan().ID
	dir, err := filepath.EvalSymlinks(record.Dir())
	if err != nil {
		return fmt.Errorf("resume %s: %w", id, err)
	}
	if filepath.Base(dir) != id {
		return exit{ExitBadMatrix,
			fmt.Errorf("resume %s: its folder is %s; rename the folder to the run id", id,
				dir)}
	}
	if here, err := filepath.EvalSymlinks(filepath.Join(o.runs, id)); err != nil || here != dir {
		o.runs = filepath.Dir(dir)
	}
	if o.server.url != "" { // the fleet prevents that
		return nil
	}
	if err := record.Hold(); errors.Is(err, runs.ErrHeld) {
		return fmt.Errorf("resume %s: %w; wait until it ends, or stop it first", id, runs.ErrHeld)
	} else if err != nil {
		return fmt.Errorf("resume %s: %w", id, err)
	}
	return record.Close() // recording the run locks it again
}

// nothingLeft returns an error with the reasons why a matrix has no cell to run.
func nothingLeft(run plan.Run) error {
	var reasons []string
	for _, x := range run.Excluded {
		if text := x.Kind + ": " + x.Reason; !slices.Contains(reasons, text) {
			reasons = append(reasons, text)
		}
	}
	return fmt.Errorf("%s: no cells to run: all %d combinations are excluded:\n  %s", run.Source.File,
		len(run.Excluded), strings.Join(reasons, "\n  "))
}

func where(server string) string {
	if server == "" {
		return "locally"
	}
	return "on the fleet at " + server
}

// begunWith returns the --set flags with which a run was started.
func begunWith(set []string) string {
	if len(set) == 0 {
		return "and it was started without --set"
	}
	return "and it was started with " + quoted(set)
}

// quoted formats --set flags for a shell.
func quoted(set []string) string { return "--set '" + strings.Join(set, "' --set '") + "'" }
