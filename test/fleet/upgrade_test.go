package fleet

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/results"
)

// upgrade brings the second release to the fleet while a matrix runs that needs two of its three agents.
func upgrade(t *testing.T, r *rig) {
	if os.Getenv("LOCKSTEP_LONG") == "" {
		t.Skip("one host after the other takes minutes: LOCKSTEP_LONG=1 does it")
	}
	r.programs = r.next()
	file := r.matrix("upgrade", fmt.Sprintf(`
brokers: nats: {driver: "nats", options: {urls: [%q]}}
axes: mode: ["confirm-each"]
repeat: 1000 // more than there is time for: it is cancelled
grace: "5m"
cell: {
	axis: _
	publishers: {mode: axis.mode, nodes: 1, rate: 100}
	consumers: nodes: 1
	warmup: "200ms"
	measure: "1s"
}
tables: [{rows: ["mode"], values: ["sent"]}]
`, r.broker(t, r.bridge())))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	runs := filepath.Join(t.TempDir(), "runs")
	var said bytes.Buffer
	run := r.ctl(ctx, "run", "--runs", runs, file)
	run.Stdout, run.Stderr = &said, &said
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = run.Wait() // it ends because it is cancelled, and says so by its exit code
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	atLeast := func(n int) []plan.Outcome {
		t.Helper()
		return recorded(t, runs, n, func() {
			select {
			case <-ended:
				t.Fatalf("ctl run has ended:\n%s", said.String())
			default:
			}
		})
	}

	before := atLeast(2)
	r.play(t, "upgrade.yml")
	r.agents(t, second)
	during := atLeast(len(before))
	all := atLeast(len(during) + 2)

	if out, err := r.ctl(ctx, "cancel", all[0].Run).CombinedOutput(); err != nil {
		t.Fatalf("ctl cancel: %v\n%s", err, out)
	}
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		cancel()
		<-ended
		t.Fatalf("ctl run goes on 2 min after ctl cancel:\n%s", said.String())
	}
	tries := 0
	for _, o := range all {
		tries += len(o.Tries)
		if o.Verdict != plan.Valid {
			t.Errorf("repetition %d is %s: %v", o.Repetition, o.Verdict, o.Reasons)
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
		if !strings.Contains(a.Version, second) {
			t.Errorf("at last agent %s was of release %s, want %s", a.Agent, a.Version, second)
		}
	}
	t.Logf("%d tasks, %d of them during the upgrade; %d further tries", len(all), len(during)-len(before), tries)
}

// recorded waits for so many outcomes of the run that is recorded in a folder.
func recorded(t *testing.T, runs string, n int, check func()) (outcomes []plan.Outcome) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d outcomes", n), 3*time.Minute, func() error {
		check()
		record, err := results.Open(runs, "latest")
		if err == nil {
			outcomes, err = record.Outcomes()
		}
		if err != nil {
			return err
		}
		if len(outcomes) < n {
			return fmt.Errorf("there are %d", len(outcomes))
		}
		return nil
	})
	return outcomes
}
