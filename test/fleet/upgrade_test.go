package fleet

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
)

// bring describes what upgrade.yml upgrades, and its effect on the current run.
type bring struct {
	hosts   []string // whose agents are upgraded
	args    []string
	placed  string // agents that execute the tasks
	retries bool   // the next controller may have repeated a task
}

// upgrade installs the second release while a matrix runs. It upgrades one agent that every task needs, so the run
// waits for it. With LOCKSTEP_LONG it upgrades the controller and all agents, of which each task needs two.
func upgrade(t *testing.T, r *rig) {
	b := bring{hosts: []string{"h3"}, args: []string{"--limit", "h3"},
		placed: `{publishers: on: host: "h2", consumers: on: host: "h3"}`}
	if os.Getenv("LOCKSTEP_LONG") != "" {
		b = bring{hosts: []string{"h1", "h2", "h3", observer}, placed: "{}", retries: true}
	}
	r.programs = r.next()
	run := start(t, r, r.matrix("upgrade", fmt.Sprintf(`
brokers: bus: {driver: "nats", options: {urls: [%q]}}
axes: mode: ["confirm-each"]
repeat: 10000 // more than there is time for: it is cancelled
grace: "30m"
cell: %s & {
	axis: _
	publishers: {mode: axis.mode, nodes: 1, rate: 100}
	consumers: nodes: 1
	warmup: "200ms"
	measure: "1s"
}
tables: [{rows: ["mode"], values: ["sent"]}]
`, r.broker(t, r.bridge()), b.placed)))

	before := run.atLeast(t, 2)
	hosts := len(r.hosts)
	if len(b.args) > 0 {
		hosts = 1
	}
	r.playOn(t, hosts, "upgrade.yml", b.args...)
	r.agents(t, second, b.hosts...)
	during := run.atLeast(t, len(before))
	all := run.atLeast(t, len(during)+2)
	run.cancel(t, r, all[0].Run)
	b.check(t, all)
	t.Logf("%d tasks, %d of them during the upgrade", len(all), len(during)-len(before))
}

// check checks that every task was done, the first ones by agents of the first release and the last ones by upgraded
// agents.
func (b bring) check(t *testing.T, all []plan.Outcome) {
	t.Helper()
	for _, o := range all {
		if o.Verdict != plan.Valid {
			t.Errorf("repetition %d is %s: %v", o.Repetition, o.Verdict, o.Reasons)
		}
		if len(o.FailedAttempts) > 0 && !b.retries {
			t.Errorf("repetition %d took further attempts: %+v", o.Repetition, o.FailedAttempts)
		}
		for _, a := range o.Agents {
			if a.Lost || a.Error != "" {
				t.Errorf("repetition %d: agent %+v", o.Repetition, a)
			}
		}
	}
	for _, a := range all[0].Agents {
		if !strings.Contains(a.Version, first) {
			t.Errorf("at first agent %s was of release %s, want %s", a.Agent, a.Version, first)
		}
	}
	for _, a := range all[len(all)-1].Agents {
		if slices.Contains(b.hosts, a.Agent) && !strings.Contains(a.Version, second) {
			t.Errorf("at last agent %s was of release %s, want %s", a.Agent, a.Version, second)
		}
	}
}

// going is a run that ctl follows.
type going struct {
	runs  string
	said  bytes.Buffer // read it only after the end
	ended chan struct{}
}

// start runs a matrix with ctl until the end of the test.
func start(t *testing.T, r *rig, file string) *going {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	g := &going{runs: filepath.Join(t.TempDir(), "runs"), ended: make(chan struct{})}
	c := r.ctl(ctx, "run", "--runs", g.runs, file)
	c.Stdout, c.Stderr = &g.said, &g.said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(g.ended)
		_ = c.Wait() // it is cancelled, so its exit code is not 0
	}()
	t.Cleanup(func() {
		stop()
		<-g.ended
	})
	return g
}

// cancel cancels the run and waits for the end of ctl.
func (g *going) cancel(t *testing.T, r *rig, run string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if out, err := r.ctl(ctx, "runs", "cancel", "--wait", patience.String(), run).CombinedOutput(); err != nil {
		t.Fatalf("ctl runs cancel: %v\n%s", err, out)
	}
	select {
	case <-g.ended:
	case <-ctx.Done():
		t.Fatalf("ctl run has not ended %v after ctl runs cancel", patience)
	}
}

// atLeast waits for this number of outcomes.
func (g *going) atLeast(t *testing.T, n int) (outcomes []plan.Outcome) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d outcomes", n), patience, func() error {
		select {
		case <-g.ended:
			t.Fatalf("ctl run has ended:\n%s", g.said.String())
		default:
		}
		record, err := runs.Open(g.runs, "latest")
		if err == nil {
			outcomes, err = record.Outcomes()
		}
		if err == nil && len(outcomes) < n {
			err = fmt.Errorf("there are %d", len(outcomes))
		}
		return err
	})
	return outcomes
}
