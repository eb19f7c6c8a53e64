package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/bundle"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
)

// bundleEnd is the suffix of bundle file names. Bundles are zip files.
const bundleEnd = ".bundle.zip"

func bundleCommand() *cobra.Command {
	return parent(&cobra.Command{Use: "bundle", Short: "Share a run as one file that can be verified and run again"},
		bundleCreate(), bundleVerify(), bundleRerun())
}

func bundleCreate() *cobra.Command {
	var s serverFlags
	var folder, out string
	c := &cobra.Command{
		Use:   "create RUN",
		Short: "Write a run to a bundle",
		Long: `create writes the record of a run to one zip file. It contains the matrix, plan, outcomes, snapshots, histograms,
tables, environment, and a manifest with the SHA-256 of each file. The same run gives the same bytes. Payload files of
the matrix are added unchanged if this user created the run and it ran on this host. Recognised passwords are *** in a
record, and references to secrets are not resolved. All other text is added unchanged.

An active run can be bundled; the bundle is then incomplete. It is an error if the record changes meanwhile. With
--server, the record is copied to --runs first, as by ctl runs pull. Without it, the run is read from --runs.

Exit codes: 0 bundle written; 1 error.`,
		Example: `  ctl bundle create latest
  ctl bundle create 20260102-150405-quick-3f9c -f quick.bundle.zip
  ctl bundle create latest --server nats://bench-1:4222`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeRuns(&folder),
		RunE: func(c *cobra.Command, args []string) error {
			run, err := recordOf(c, &s, folder, args[0])
			if err != nil {
				return err
			}
			if out == "" {
				out = run.Plan().ID + bundleEnd
			}
			return writeBundle(c.OutOrStdout(), out, run)
		},
	}
	s.addChoice(c, " (default: read the run from --runs)")
	runsFlag(c, &folder)
	fileFlag(c, &out, "write to `file` (default: RUN"+bundleEnd+" in the current folder)")
	return c
}

// recordOf opens the record of a run. With a server it first copies the record into folder.
func recordOf(c *cobra.Command, s *serverFlags, folder, name string) (*runs.Run, error) {
	return either(c.Context(), s, func(conn *wire.Client) (*runs.Run, error) {
		p, err := pull(c.Context(), conn, name, folder, s.hint())
		if err != nil {
			return nil, err
		}
		if !p.Complete() {
			fmt.Fprintf(c.ErrOrStderr(), "incomplete: %d of %d tasks have an outcome\n", p.Done, p.Of)
		}
		return runs.Open("", p.Dir)
	}, func() (*runs.Run, error) { return runs.Open(folder, name) })
}

// writeBundle writes a run to one file and prints a summary of the bundle.
func writeBundle(stdout io.Writer, file string, run *runs.Run) error {
	sum := sha256.New()
	var m bundle.Manifest
	err := writeOutput("bundle", file, "--file", func(w io.Writer) (err error) {
		m, err = bundle.Write(io.MultiWriter(w, sum), run, version(), created(run.Plan()))
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range m.Read {
		if r.Missing != "" {
			fmt.Fprintf(stdout, "not in the bundle: %s: %s\n", display.Clean(r.Path), r.Missing)
		}
	}
	if m.Done < m.Tasks {
		fmt.Fprintf(stdout, "incomplete: %d of %d tasks have an outcome\n", m.Done, m.Tasks)
	}
	_, err = fmt.Fprintf(stdout, "%s: %s, %s, sha256 %s\n", file, display.Count(m.Tasks, "task"),
		display.Count(len(m.Files), "file"), hex.EncodeToString(sum.Sum(nil)))
	return err
}

// openBundle opens a bundle, and creates a folder for its files. done closes the bundle and removes the folder.
func openBundle(name string) (b *bundle.Bundle, dir string, done func(), err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, "", nil, fmt.Errorf("open bundle: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, "", nil, errors.Join(fmt.Errorf("open bundle: %w", err), file.Close())
	}
	b, err = bundle.Open(file, info.Size(), bundle.DefaultLimits())
	if err != nil {
		err = errors.Join(fmt.Errorf("%s: %w", name, err), file.Close())
		if errors.Is(err, bundle.ErrAltered) {
			err = exit{ExitAltered, err}
		}
		return nil, "", nil, err
	}
	if dir, err = os.MkdirTemp("", "lockstep-bundle-*"); err != nil {
		return nil, "", nil, errors.Join(file.Close(),
			fmt.Errorf("create a folder for the unpacked bundle: %w; set TMPDIR to another folder", err))
	}
	return b, dir, func() { file.Close(); os.RemoveAll(dir) }, nil
}

func bundleVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify BUNDLE",
		Short: "Verify the digests of a bundle and recompute its results",
		Long: `verify checks the digest of every file of a bundle and lists the altered files. If there are none, it
recomputes each task from its snapshots and compares the results with the stored outcomes, histograms and tables. It
prints both numbers of every value that differs, and why a value cannot be recomputed. It cannot check the data that
agents recorded, such as times and reports of brokers. Digests reveal alterations. They do not prove who made a bundle.

Exit codes:
  0  no file is altered and no value differs
  1  the bundle cannot be checked
  6  a file is altered, a value differs, or the file is not a bundle`,
		Example: "  ctl bundle verify 20260102-150405-quick-3f9c" + bundleEnd,
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			b, dir, done, err := openBundle(args[0])
			if err != nil {
				return err
			}
			defer done()
			v, err := bundle.Verify(c.Context(), b, dir, version())
			if err != nil {
				return err
			}
			return printVerification(c.OutOrStdout(), args[0], v)
		},
	}
}

// maxLines limits the printed lines per kind: one altered snapshot can change a hundred values.
const maxLines = 50

func printVerification(out io.Writer, name string, v bundle.Verification) error {
	var altered []string
	for _, err := range v.Altered {
		altered = append(altered, err.Error())
	}
	for _, part := range []struct {
		head  string
		lines []string
	}{{"altered", altered}, {"note", v.Notes}, {"differs", v.Differences}, {"cannot be recomputed", v.Unknown}} {
		for i, line := range part.lines {
			if i == maxLines {
				fmt.Fprintf(out, "%s: and %d more\n", part.head, len(part.lines)-i)
				break
			}
			fmt.Fprintf(out, "%s: %s\n", part.head, display.Hang(display.Clean(line), width(out), 2))
		}
	}
	fmt.Fprintf(out, "%s: run %s, made by Lockstep %s: %s checked, %s recomputed\n", name,
		display.Clean(v.Manifest.Run), display.Clean(v.Manifest.Harness),
		display.Count(len(v.Manifest.Files), "digest"), display.Count(v.Outcomes, "outcome"))
	if !v.OK() {
		return exit{ExitAltered, fmt.Errorf("%s does not match its manifest: %d altered, %d different", name,
			len(v.Altered), len(v.Differences))}
	}
	_, err := fmt.Fprintln(out, "no file is altered, no value differs")
	return err
}
