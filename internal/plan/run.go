package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Run is one execution of a matrix: all decisions that were made before it began.
type Run struct {
	Version  int        `json:"version"` // RecordFormat
	ID       string     `json:"id"`
	Name     string     `json:"name"` // name of the matrix
	Cells    []Cell     `json:"cells"`
	Excluded []Excluded `json:"excluded,omitempty"`
	Tables   []Table    `json:"tables"`
	Repeat   int        `json:"repeat"` // repetitions per cell; with Until, the maximum
	Until    *StopRule  `json:"until,omitempty"`
	Order    Order      `json:"order"`
	Settle   Duration   `json:"settle"`
	Grace    Duration   `json:"grace"`  // how long a task waits for missing agents
	Strict   bool       `json:"strict"` // flags count as failures
	Source   Source     `json:"source"`
	Started  time.Time  `json:"started"`
	Agents   int        `json:"agents"` // maximum that any cell needs
	Axes     []string   `json:"axes"`   // in the order of the matrix
	Metrics  Metrics    `json:"metrics,omitempty"`
	Influx   *Influx    `json:"influx,omitempty"`
	Bases    []Base     `json:"bases,omitempty"` // baselines with which rules compare it
	// Ceilings are the limits of the load generator for the loads of the run. Empty: it did not measure them.
	Ceilings []Ceiling `json:"ceilings,omitempty"`
}

// Order is the order of tasks: repetitions interleaved, optionally shuffled by a seed.
type Order struct {
	Random bool   `json:"random,omitempty"`
	Seed   uint64 `json:"seed,omitempty"`
}

// Source describes the origin of a run's matrix, and its changes.
type Source struct {
	File   string `json:"file"`   // base name
	Path   string `json:"path"`   // absolute path
	SHA256 string `json:"sha256"` // of the original file, including secrets
	Text   string `json:"text"`   // redacted
	// Omitted is set if the text is not recorded. Text is then a comment with the reason.
	Omitted bool     `json:"omitted,omitempty"`
	Quick   bool     `json:"quick,omitempty"`
	Set     []string `json:"set,omitempty"`
	Filter  []string `json:"filter,omitempty"`
	Server  string   `json:"server,omitempty"` // URL of the fleet, redacted; empty: a local run
}

// Flags returns the changes of the matrix as command-line flags without quotes: "--quick", "--set NAME=VALUE",
// "--filter AXIS=VALUE".
func (s Source) Flags() []string {
	var all []string
	if s.Quick {
		all = append(all, "--quick")
	}
	for _, set := range s.Set {
		all = append(all, "--set "+set)
	}
	for _, only := range s.Filter {
		all = append(all, "--filter "+only)
	}
	return all
}

// Same reports whether two plans are of one run, with the same tasks. A run may be resumed, and its record has one
// plan.
func (r Run) Same(o Run) bool {
	sameTask := func(a, b Task) bool { return a.ID == b.ID }
	return r.Started.Equal(o.Started) && r.Source.SHA256 == o.Source.SHA256 &&
		slices.EqualFunc(r.Tasks(), o.Tasks(), sameTask)
}

// CheckRunID returns an error unless an id of a run can name a folder, in which its record is stored.
func CheckRunID(id string) error {
	if id == "" || id == "latest" || id[0] == '.' || strings.ContainsAny(id, "/\\") ||
		strings.ContainsFunc(id, unicode.IsControl) {
		return fmt.Errorf("invalid id of a run: %.80q is not the name of a folder; "+
			"use a name without slashes and control characters that does not begin with a dot", id)
	}
	if id == "history.db" || id == "baselines.jsonl" { // of package history
		return fmt.Errorf("invalid id of a run: %s is another file in the folder of runs; use another name", id)
	}
	return nil
}

// Tasks returns a run's tasks in the order of execution. Each repetition contains all cells, in the order of the matrix
// or shuffled by the seed.
func (r Run) Tasks() []Task {
	tasks, order := make([]Task, 0, len(r.Cells)*r.Repeat), make([]int, len(r.Cells))
	for i := range order {
		order[i] = i
	}
	for rep := 1; rep <= r.Repeat; rep++ {
		if r.Order.Random {
			order = rand.New(rand.NewPCG(r.Order.Seed, uint64(rep))).Perm(len(r.Cells))
		}
		for _, i := range order {
			c := r.Cells[i]
			tasks = append(tasks, Task{Run: r.ID, ID: fmt.Sprintf("%s-r%d", c.ID, rep), Cell: c, Repetition: rep,
				Metrics: r.Metrics})
		}
	}
	return tasks
}

// Brokers returns the brokers of a run, each once, in the order of its cells.
func (r Run) Brokers() (all []Broker) {
	seen := map[string]bool{}
	for _, c := range r.Cells {
		for _, b := range c.Brokers() {
			if key := b.nameAndKey(); !seen[key] {
				seen[key] = true
				all = append(all, b)
			}
		}
	}
	return all
}

// Notes returns the notes of drivers about the run's cells, each once per broker.
func (r Run) Notes() []string {
	type remark struct{ broker, text string }
	var order []remark
	cells, first := map[remark]int{}, map[remark]string{}
	all := map[string]int{}
	for _, c := range r.Cells {
		all[c.Broker.Name]++
		for _, text := range c.Notes {
			x := remark{c.Broker.Name, text}
			if cells[x]++; cells[x] == 1 {
				order = append(order, x)
				first[x] = c.Name()
			}
		}
	}
	lines := make([]string, len(order))
	for i, x := range order {
		switch n := cells[x]; {
		case n == 1:
			lines[i] = first[x]
		case n == all[x.broker]:
			lines[i] = "broker=" + x.broker
		default:
			lines[i] = fmt.Sprintf("%s and %d more of broker=%s", first[x], n-1, x.broker)
		}
		lines[i] += ": " + x.text
	}
	return lines
}

// Bounded returns an error that names the fields of a run beyond their limits, or its first cell that is not bounded.
// The error has no secrets. It wraps ErrTooLarge if the run has too many tasks.
func (r Run) Bounded() error {
	if err := r.CheckShape(); err != nil {
		return fmt.Errorf("the run has %w", err)
	}
	size := 0 // of options and addresses, in which secrets are searched
	for _, b := range r.brokers() {
		if size += len(b.Key()); len(b.Name) > MaxName {
			return fmt.Errorf("the run has a broker with a name of %d bytes: want at most %d", len(b.Name), MaxName)
		}
	}
	if i := r.Influx; i != nil {
		size += len(i.URL) + len(i.Org) + len(i.Bucket) + len(i.Token)
	}
	for _, x := range []struct {
		name   string
		n, top int
	}{
		{"axes", len(r.Axes), MaxAxes}, {"metrics", len(r.Metrics), maxMetrics}, {"tables", len(r.Tables), MaxTables},
		{"excluded combinations", len(r.Excluded), maxExcluded}, {"baselines", len(r.Bases), MaxBases},
		{"bytes of options and addresses of its brokers and of InfluxDB", size, maxOptions},
	} {
		if x.n > x.top {
			return fmt.Errorf("the run has %d %s: want at most %d", x.n, x.name, x.top)
		}
	}
	places := slices.Clone(r.Excluded)
	for _, c := range r.Cells {
		places = append(places, Excluded{Coordinates: c.Coordinates})
	}
	for _, p := range places {
		if err := p.bounded(); err != nil {
			return fmt.Errorf("the run has a combination with %w", err)
		}
	}
	var errs []error
	for i, t := range r.Tables {
		if err := t.Bounded(); err != nil {
			errs = append(errs, fmt.Errorf("table %d of the run has %w", i+1, err))
		}
	}
	if r.Settle < 0 || r.Settle > Duration(maxWait) || r.Grace < 0 || r.Grace > Duration(maxWait) {
		errs = append(errs, fmt.Errorf("the run settles for %v and waits %v for agents: want 0 to %v", r.Settle,
			r.Grace, maxWait))
	}
	if u := r.Until; u != nil && (!(u.Within > 0) || !(u.Confidence > 0.5 && u.Confidence < 1) ||
		r.Repeat > maxRounds) {
		errs = append(errs,
			fmt.Errorf("the run repeats until %q, within %v at %v, at most %d times: the maximum is %d, and parts are between 0 and 1",
				u.Rule, u.Within, u.Confidence, r.Repeat, maxRounds))
	}
	if err := drivers.CheckMetrics(r.Metrics); err != nil {
		errs = append(errs, fmt.Errorf("the run has an invalid %w", err))
	}
	for _, c := range r.Cells {
		if err := c.bounded(); err != nil {
			errs = append(errs, fmt.Errorf("cell %s (%s) %w", c.ID, r.scrubber().Scrub(c.Name()), err))
			break
		}
	}
	return errors.Join(errs...)
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// IsName reports whether a name has at most limit characters: letters, digits, ".", "_" and "-", the first one a letter
// or digit. Such a name can be a part of the name of a file.
func IsName(name string, limit int) bool { return len(name) <= limit && plainName.MatchString(name) }

// CheckShape returns an error if the run has too many cells or tasks for Tasks, or if the id of a cell or the name of a
// group cannot be a part of the name of a file. It does not create tasks.
func (r Run) CheckShape() error {
	if len(r.Cells) > MaxCells {
		return fmt.Errorf("%d cells: want at most %d: %w", len(r.Cells), MaxCells, ErrTooLarge)
	}
	if r.Repeat < 0 || r.Repeat > MaxTasks/max(1, len(r.Cells)) {
		return fmt.Errorf("%d cells × %d repetitions: want at most %d tasks: %w", len(r.Cells), r.Repeat, MaxTasks,
			ErrTooLarge)
	}
	for _, c := range r.Cells {
		names := []string{c.ID}
		for _, g := range c.Workload.Groups {
			names = append(names, g.Name)
		}
		for _, name := range names {
			if !IsName(name, 100) {
				return fmt.Errorf("a cell or group with the name %.80q: want up to 100 letters, digits, \".\", \"_\" and \"-\", "+
					"the first a letter or digit", name)
			}
		}
	}
	return nil
}

// BaselineOf returns the name of the baseline of a rule.
func (r Run) BaselineOf(rule Regression) string { return cmp.Or(rule.Baseline, r.Name) }

// BaseOf returns the numbers of a baseline in the plan.
func (r Run) BaseOf(name string) Base {
	for _, b := range r.Bases {
		if b.Name == name {
			return b
		}
	}
	return Base{Name: name, Why: NoBaseline(name, "")}
}

// brokers returns the brokers of all cells and groups by nameAndKey, also those that no task uses.
func (r Run) brokers() map[string]Broker {
	all := map[string]Broker{}
	for _, c := range r.Cells {
		all[c.Broker.nameAndKey()] = c.Broker
		for _, g := range c.Workload.Groups {
			if g.Broker != nil {
				all[g.Broker.nameAndKey()] = *g.Broker
			}
		}
	}
	return all
}

// scrubber returns a Scrubber for the secrets of the run.
func (r Run) scrubber() *Scrubber {
	var secrets []Secret
	for _, b := range r.brokers() {
		secrets = append(secrets, b.secrets()...)
	}
	if r.Influx != nil {
		secrets = append(secrets, r.Influx.Secrets()...)
	}
	return NewScrubber(secrets)
}

// Redacted returns the run without its secrets, for records and display. Names of brokers are never changed. r is not
// changed.
func (r Run) Redacted() Run {
	scrub, brokers := r.scrubber(), r.brokers()
	for k, b := range brokers {
		brokers[k] = b.redacted(scrub)
	}
	r.Cells = slices.Clone(r.Cells)
	for i, c := range r.Cells {
		r.Cells[i].Broker = brokers[c.Broker.nameAndKey()]
		r.Cells[i].Workload.Groups = slices.Clone(c.Workload.Groups)
		for k, g := range r.Cells[i].Workload.Groups {
			if g.Broker != nil {
				b := brokers[g.Broker.nameAndKey()]
				r.Cells[i].Workload.Groups[k].Broker = &b
			}
		}
		if scrub != nil {
			r.Cells[i].Notes = scrub.all(c.Notes)
			r.Cells[i].Coordinates = scrub.coordinates(c.Coordinates)
		}
	}
	if scrub != nil {
		r.Excluded = slices.Clone(r.Excluded)
		for i, x := range r.Excluded {
			r.Excluded[i].Reason, r.Excluded[i].Coordinates = scrub.Scrub(x.Reason), scrub.coordinates(x.Coordinates)
		}
	}
	r.Influx = r.Influx.Redacted()
	r.Source.Text, r.Source.Set, r.Source.Filter = scrub.Scrub(r.Source.Text), scrub.all(r.Source.Set),
		scrub.all(r.Source.Filter)
	return r
}

// Redacted returns the source without secrets. If a secret does not occur literally in the source, or is too short, the
// text and the values of --set are omitted.
func (s Source) Redacted(secrets []Secret) Source {
	all := s.Text + "\n" + strings.Join(s.Set, "\n")
	for _, x := range secrets {
		var why string
		switch {
		case len(x.Value) < minSecret && x.inURL: // Redact replaces it
			continue
		case len(x.Value) < minSecret:
			why = fmt.Sprintf("is shorter than %d characters", minSecret)
		case !slices.ContainsFunc(forms(x.Value), func(form string) bool { return strings.Contains(all, form) }):
			why = "does not occur in it as one text"
		default:
			continue
		}
		s = s.Omit(fmt.Sprintf("the secret in %s %s", x.Path, why))
		break
	}
	scrub := NewScrubber(secrets)
	s.Text, s.Set, s.Filter = scrub.Scrub(s.Text), scrub.all(s.Set), scrub.all(s.Filter)
	return s
}

// Omit removes the text and the values of --set. Text then states the reason.
func (s Source) Omit(why string) Source {
	s.Text, s.Omitted, s.Set = fmt.Sprintf("// The matrix is not recorded: %s.\n", why), true, slices.Clone(s.Set)
	for i, set := range s.Set {
		path, _, _ := strings.Cut(set, "=")
		s.Set[i] = path + "=" + stars
	}
	return s
}

// Uses returns the resources that the run accesses on a host and in its network, one per line, sorted. These are
// brokers with all options, references to secrets, payload files, and the InfluxDB. Secrets are not hidden, because the
// reader decides whether to execute another user's run. It reads and resolves nothing.
func (r Run) Uses() []string {
	lines := map[string]bool{}
	texts := func(name, driver, via string, options any) {
		var all []string
		eachLeaf(options, "", func(field string, x any) any {
			if x != nil {
				all = append(all, fmt.Sprintf("%s=%v", field, x))
			}
			return x
		})
		if via != "" {
			all = append(all, "via="+via)
		}
		slices.Sort(all)
		line := strings.Join(all, " ")
		lines[fmt.Sprintf("%s (%s): %s", name, driver, line)] = true
		for _, found := range reference.FindAllString(line, -1) {
			lines["secret "+found] = true
		}
	}
	known := map[string]bool{}
	for _, c := range r.Cells {
		for _, part := range (Task{Cell: c}).Parts() {
			b := part.Cell.Broker
			if file := part.Cell.Workload.Message.Payload.File; file != "" {
				lines["payload file "+file] = true
			}
			key := b.nameAndKey()
			if known[key] {
				continue
			}
			known[key] = true
			options, err := decode(b.Options)
			if err != nil {
				options = string(b.Options)
			}
			texts("broker "+b.Name, b.Driver, b.Via, options)
		}
	}
	if i := r.Influx; i != nil {
		texts("points", "InfluxDB", "", map[string]any{"url": i.URL, "org": i.Org, "bucket": i.Bucket,
			"token": i.Token})
	}
	return slices.Sorted(maps.Keys(lines))
}
