package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"lockstep/internal/bundle"
	"lockstep/internal/controller"
	"lockstep/internal/results"
	"lockstep/internal/terminal"
)

// bundleEnd ends the names of bundles: they are zip files, too.
const bundleEnd = ".bundle.zip"

func bundleCommand() *cobra.Command {
	var s serverFlags
	var runs, out string
	c := &cobra.Command{
		Use:   "bundle RUN",
		Short: "Make one file of a run, to hand over",
		Long: `bundle makes one zip file of a run's record: the matrix and the files it had agents read (payloads),
plan, outcomes, snapshots, histograms, tables, environment, and a manifest with the SHA-256 of each.
The same run gives the same bytes. There are no secrets in it. A run that goes on is bundled as far as
it is, or refused where its record changes meanwhile. With --server the record is copied to
--runs first, as ctl pull does; without, the run is one of --runs. ctl verify checks a bundle, and ctl
rerun runs its matrix again.

Exit codes: 0 it is written; 1 it is not.`,
		Example: `  ctl bundle latest
  ctl bundle 20260102-150405-quick-3f9c -o night.bundle.zip
  ctl bundle latest --server nats://bench-1:4222`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeRuns(&runs),
		RunE: func(c *cobra.Command, args []string) error {
			run, err := recordOf(c, s, runs, args[0])
			if err != nil {
				return err
			}
			if out == "" {
				out = run.Plan().ID + bundleEnd
			}
			return writeBundle(c.OutOrStdout(), out, run)
		},
	}
	s.add(c, "; none: a run of --runs")
	runsFlag(c, &runs)
	c.Flags().StringVarP(&out, "output", "o", "", "`file` to write; none: RUN"+bundleEnd+" here")
	return c
}

// recordOf opens a run's record, of a fleet after it was copied.
func recordOf(c *cobra.Command, s serverFlags, runs, name string) (*results.Run, error) {
	if s.url == "" {
		return results.Open(runs, name)
	}
	if err := s.need(); err != nil {
		return nil, err
	}
	conn, err := s.dial(c.Context())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	state, err := findRun(c.Context(), conn, name)
	if err != nil {
		return nil, err
	}
	if err := writable(runs); err != nil {
		return nil, err
	}
	p, err := controller.Pull(c.Context(), conn, state.Run, runs)
	if err != nil {
		return nil, fmt.Errorf("copy the run's record: %w", err)
	}
	if !p.Complete() {
		fmt.Fprintf(c.ErrOrStderr(), "incomplete: %d of %d tasks have an outcome\n", p.Done, p.Of)
	}
	return results.Open("", p.Dir)
}

// writeBundle writes beside the place first, so that a half bundle is never taken for a whole one.
func writeBundle(stdout io.Writer, file string, run *results.Run) error {
	temp, err := os.CreateTemp(filepath.Dir(file), ".bundle-*")
	if err != nil {
		return fmt.Errorf("write bundle: %w; give another place with -o", err)
	}
	sum := sha256.New()
	m, err := bundle.Write(io.MultiWriter(temp, sum), run, version())
	err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	for _, r := range m.Read {
		if r.Missing != "" {
			fmt.Fprintf(stdout, "not in it: %s: %s\n", terminal.Clean(r.Path), r.Missing)
		}
	}
	if m.Done < m.Tasks {
		fmt.Fprintf(stdout, "incomplete: %d of %d tasks have an outcome\n", m.Done, m.Tasks)
	}
	_, err = fmt.Fprintf(stdout, "%s: %s, %s, sha256 %s\n", file, several(m.Tasks, "task"), several(len(m.Files), "file"), hex.EncodeToString(sum.Sum(nil)))
	return err
}

// opened is a bundle on disk.
type opened struct {
	*bundle.Bundle
	file *os.File
}

func openBundle(name string) (opened, error) {
	file, err := os.Open(name)
	if err != nil {
		return opened{}, fmt.Errorf("open bundle: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return opened{}, errors.Join(fmt.Errorf("open bundle: %w", err), file.Close())
	}
	b, err := bundle.Open(file, info.Size(), bundle.DefaultLimits())
	if err != nil {
		err = errors.Join(fmt.Errorf("%s: %w", name, err), file.Close())
		if errors.Is(err, bundle.ErrAltered) {
			err = exit{ExitAltered, err}
		}
		return opened{}, err
	}
	return opened{b, file}, nil
}

func verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify BUNDLE",
		Short: "Check that a bundle is what it says: every byte, and every value",
		Long: `verify checks the digest of every file of a bundle, then judges each task again from its raw snapshots, as
Lockstep does, and compares every value, account, verdict, histogram and table with what the bundle
says. It names the file that was altered, and the value that differs with both figures; what cannot be
recomputed is said with the reason. What the agents wrote down itself (times, what brokers said of
themselves) cannot be proven, and digests show alterations, not who made a bundle.

Exit codes: 0 it is what it says; 6 something was altered, differs or is no bundle; 1 it could not be checked.`,
		Example: "  ctl verify 20260102-150405-quick-3f9c" + bundleEnd,
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			b, err := openBundle(args[0])
			if err != nil {
				return err
			}
			defer b.file.Close()
			v, err := verifyBundle(c.Context(), b)
			if err != nil {
				return err
			}
			return printVerdict(c.OutOrStdout(), args[0], v)
		},
	}
}

func verifyBundle(ctx context.Context, b opened) (bundle.Verdict, error) {
	dir, err := os.MkdirTemp("", "lockstep-verify-*")
	if err != nil {
		return bundle.Verdict{}, fmt.Errorf("make a folder to unpack the bundle: %w; TMPDIR names another place", err)
	}
	defer os.RemoveAll(dir)
	return bundle.Verify(ctx, b.Bundle, dir, version())
}

// followers is one line of what is only said because files were altered.
func followers(v bundle.Verdict) []string {
	if len(v.Follows) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s of what was altered; the first: %s", several(len(v.Follows), "consequence"), v.Follows[0])}
}

// mostDifferences is how many lines of a kind are printed: one altered snapshot may change a hundred values.
const mostDifferences = 50

func printVerdict(out io.Writer, name string, v bundle.Verdict) error {
	var altered []string
	for _, err := range v.Altered {
		altered = append(altered, err.Error())
	}
	for _, part := range []struct {
		head  string
		lines []string
	}{{"altered", altered}, {"follows", followers(v)}, {"note", v.Notes}, {"differs", v.Differences}, {"cannot be recomputed", v.Unknown}} {
		for i, line := range part.lines {
			if i == mostDifferences {
				fmt.Fprintf(out, "%s: and %d more\n", part.head, len(part.lines)-i)
				break
			}
			fmt.Fprintf(out, "%s: %s\n", part.head, terminal.Hang(terminal.Clean(line), width(out), 2))
		}
	}
	fmt.Fprintf(out, "%s: run %s, made by Lockstep %s: %s checked, %s judged again, %s recomputed\n", name, terminal.Clean(v.Manifest.Run), terminal.Clean(v.Manifest.Harness),
		several(v.Files, "digest"), several(v.Outcomes, "outcome"), several(v.Values, "value"))
	if !v.Sound() {
		return exit{ExitAltered, fmt.Errorf("%s is not what it says: %d altered, %d different", name, len(v.Altered), len(v.Differences))}
	}
	_, err := fmt.Fprintln(out, "all of it is what it says")
	return err
}
