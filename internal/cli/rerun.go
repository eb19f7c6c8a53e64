package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/agent"
	"example.org/lockstep/lockstep/internal/bundle"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// rerun is a bundle whose matrix is run again.
type rerun struct {
	path     string
	manifest bundle.Manifest
	plan     plan.Run
	was      bundle.Environment
	files    map[string]string // digests of the files that agents read, by path on the agents' hosts
}

func bundleRerun() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "rerun BUNDLE",
		Short: "Run the matrix of a bundle again and report the differences",
		Long: `rerun runs the matrix of a bundle again, with the same axes, files, order, seed and filters. Before the run it
lists the known differences of Lockstep, hosts, brokers and cells; after the run, also those that brokers report.
Bundles contain no passwords. References (${env:NAME}) are resolved from the environment here, or on the agents of a
fleet. A password that was written in the matrix is read from a variable; an error lists the variables with their lines.
--set and --filter change the matrix further.

If another user created the run of the bundle, rerun lists the brokers with their options, secrets and files. It
asks for confirmation before it uses any of them. Without a terminal, pass --yes.

Exit codes: those of ctl run, and 6 if a file of the bundle is altered.`,
		Example: `  ctl bundle rerun quick.bundle.zip
  RERUN_SECRET_1=guest ctl bundle rerun quick.bundle.zip --server nats://bench-1:4222`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := readRerun(args[0])
			if err != nil {
				return err
			}
			o.rerun, o.origin = r, &r.plan
			if err := o.check(); err != nil {
				return err
			}
			return o.run(c, args)
		},
	}
	o.flags(c)
	return c
}

// readRerun reads a bundle and checks all of its digests.
func readRerun(path string) (*rerun, error) {
	b, dir, done, err := openBundle(path)
	if err != nil {
		return nil, err
	}
	defer done()
	altered, err := b.Unpack(dir)
	if err != nil {
		return nil, err
	}
	if len(altered) > 0 {
		return nil, exit{ExitAltered, fmt.Errorf("%s: %w; run ctl bundle verify for details", path, errors.Join(altered...))}
	}
	r := &rerun{path: path, manifest: b.Manifest, files: map[string]string{}}
	if r.plan, err = b.Plan(dir); err != nil {
		return nil, exit{ExitAltered, fmt.Errorf("%s: %w", path, err)}
	}
	if r.was, err = b.Environment(); err != nil {
		return nil, exit{ExitAltered, fmt.Errorf("%s: %w", path, err)}
	}
	for _, f := range b.Manifest.Read {
		r.files[f.Path] = b.Digest(f.Name)
	}
	return r, nil
}

// stars replaces secrets in a record.
const stars = "***"

// starName is the format of the variables that supply the replaced secrets.
const starName = "RERUN_SECRET_%d"

// filled replaces the redacted secrets in text by references to variables. It numbers them from *n+1, and appends to
// placeholders each variable with the line that it belongs to.
func filled(text string, n *int, placeholders *[]string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		for strings.Contains(line, stars) {
			*n++
			name := fmt.Sprintf(starName, *n)
			*placeholders = append(*placeholders, name+": "+strings.TrimSpace(lines[i]))
			line = strings.Replace(line, stars, "${env:"+name+"}", 1)
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}

// expand expands the matrix of the bundle with the narrowing of its run and that of n. local reports whether this
// host's environment resolves the secrets.
func (r *rerun) expand(ctx context.Context, n matrix.Narrow, local bool) (plan.Run, error) {
	source, set := r.plan.Source, slices.Clone(r.plan.Source.Set)
	if source.Omitted {
		why := strings.TrimSpace(strings.TrimPrefix(source.Text, "//"))
		return plan.Run{}, usageErrorf("run the matrix of the bundle: %s Run the original file", why)
	}
	text, count := source.Text, 0
	var placeholders []string
	if hexDigest([]byte(text)) != source.SHA256 {
		text = filled(text, &count, &placeholders)
	}
	for i := range set {
		set[i] = filled(set[i], &count, &placeholders)
	}
	if err := missing(placeholders, local); err != nil {
		return plan.Run{}, err
	}
	filter, err := within(source.Filter, n.Filter)
	if err != nil {
		return plan.Run{}, err
	}
	m, err := matrix.Load(source.File, []byte(text),
		matrix.Narrow{Quick: source.Quick || n.Quick, Set: append(set, n.Set...), Filter: filter})
	if err != nil {
		return plan.Run{}, err
	}
	return m.Run(ctx)
}

// within returns the filters of a bundle, with those of an axis replaced by more filters. The latter can only reduce
// the cells, because the values of one axis add up.
func within(filters, more []string) ([]string, error) {
	split := func(filter string) (axis string, values []string) {
		axis, list, _ := strings.Cut(filter, "=")
		for value := range strings.SplitSeq(list, ",") {
			values = append(values, strings.TrimSpace(value))
		}
		return strings.TrimSpace(axis), values
	}
	known, out := map[string][]string{}, slices.Clone(more)
	for _, f := range filters {
		axis, values := split(f)
		known[axis] = append(known[axis], values...)
		if !slices.ContainsFunc(more, func(m string) bool { other, _ := split(m); return other == axis }) {
			out = append(out, f)
		}
	}
	for _, f := range more {
		axis, values := split(f)
		for _, value := range values {
			if all := known[axis]; all != nil && !slices.Contains(all, value) {
				return nil, usageErrorf("--filter %s: the bundle has no cells with %q (%s); choose values of the bundle", f,
					value, strings.Join(all, ", "))
			}
		}
	}
	return out, nil
}

// missing returns an error that lists the variables without a value, if this host's environment has to have them.
func missing(placeholders []string, local bool) error {
	var unset []string
	for _, line := range placeholders {
		name, _, _ := strings.Cut(line, ":")
		if _, has := os.LookupEnv(name); local && !has {
			unset = append(unset, line)
		}
	}
	if len(unset) == 0 {
		return nil
	}
	return usageErrorf("the matrix had secrets, which are not in the bundle; set a variable for each *** in\n  %s",
		strings.Join(unset, "\n  "))
}

// before prints the differences from the bundle's run before the new run begins.
func (r *rerun) before(ctx context.Context, out io.Writer, run plan.Run, server string) error {
	now := bundle.Environment{Server: server}
	if server == "" {
		host, _ := os.Hostname() // an empty name shows as a difference
		for _, a := range r.was.Agents {
			now.Agents = append(now.Agents, bundle.Agent{Agent: a.Agent, Host: host, Version: version(),
				Cores: runtime.GOMAXPROCS(0)})
		}
	} else {
		now.Agents = r.was.Agents // unknown before the first task
	}
	all := bundle.Cells(r.plan, run)
	if err := r.payloads(server == "", &all); err != nil {
		return err
	}
	if len(r.was.Brokers) > 0 && server == "" {
		now.Brokers = currentBrokers(ctx, run, &all)
	}
	all = append(all, r.was.Differences(now)...)
	r.print(out, "differs from the bundle", all)
	if server != "" {
		fmt.Fprintln(out, "agents and brokers of the fleet are compared after the run")
	}
	return nil
}

// payloads appends the changes of the files that agents read. A missing file is an error: it would fail every task.
func (r *rerun) payloads(local bool, all *[]string) error {
	var extract []string // commands
	for _, f := range r.manifest.Read {
		if !local {
			*all = append(*all, fmt.Sprintf("%s is read on the hosts of the agents; it is not compared", f.Path))
			continue
		}
		if f.Name == "" {
			continue
		}
		is, err := digestOf(f.Path)
		unzip := fmt.Sprintf("unzip -p %s %s", display.ShellWord(r.path), display.ShellWord(f.Name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			extract = append(extract, fmt.Sprintf("mkdir -p %s && %s > %s", display.ShellWord(filepath.Dir(f.Path)), unzip,
				display.ShellWord(f.Path)))
		case err != nil:
			return usageErrorf("read files of the matrix: %w", err)
		case is != r.files[f.Path]:
			*all = append(*all, fmt.Sprintf("%s has different contents; restore the original: %s", f.Path, unzip))
		}
	}
	if len(extract) == 0 {
		return nil
	}
	return usageErrorf("files of the matrix are missing here; extract them from the bundle:\n  %s",
		strings.Join(extract, "\n  "))
}

// digestOf returns the SHA-256 of a regular file. The path is from the bundle and could name a device that never ends.
func digestOf(path string) (string, error) {
	if info, err := os.Stat(path); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	_, err = io.Copy(h, io.LimitReader(file, drivers.MaxPayload+1)) // no payload file is larger
	return hex.EncodeToString(h.Sum(nil)), err
}

// askLimit limits the wait for one broker's description.
const askLimit = 10 * time.Second

// currentBrokers returns the current descriptions of the brokers. It appends a line to all for each broker without one.
func currentBrokers(ctx context.Context, run plan.Run, all *[]string) []bundle.Broker {
	var brokers []bundle.Broker
	for _, b := range run.Brokers() {
		asking, cancel := context.WithTimeout(ctx, askLimit)
		s, err := agent.Describe(asking, b, drivers.FullAccess())
		cancel()
		if err != nil {
			*all = append(*all, fmt.Sprintf("broker %s: cannot read its description: %v", b.Name, err))
			continue
		}
		brokers = append(brokers, bundle.Broker{Name: b.Name, Driver: b.Driver, Subject: s})
	}
	return brokers
}

// after prints the differences again when the run has ended, with its agents and brokers.
func (r *rerun) after(out io.Writer, record *runs.Run) error {
	outcomes, err := record.Outcomes()
	if err != nil {
		return err
	}
	now := record.Plan()
	r.print(out, "differed from the bundle", append(bundle.Cells(r.plan, now),
		r.was.Differences(bundle.EnvironmentOf(now, outcomes))...))
	return nil
}

func (r *rerun) print(out io.Writer, what string, all []string) {
	if len(all) == 0 {
		fmt.Fprintf(out, "nothing %s, as far as known\n", what)
	}
	for _, line := range all {
		fmt.Fprintf(out, "%s: %s\n", what, display.Hang(display.Clean(line), width(out), 2))
	}
}
