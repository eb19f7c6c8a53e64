package test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/test/lab/labtest"
	"example.org/lockstep/lockstep/test/process"
)

// TestSinkWritesTheRecord proves that queries on a real InfluxDB return the numbers of the record, each point once,
// both live and after a replay. The token is in no file.
func TestSinkWritesTheRecord(t *testing.T) {
	parallel(t)
	db := sharedInflux(t)
	r := runWithSink(t, db.env(), "")
	d := r.checkDelivery()
	if last := r.delivered[len(r.delivered)-1]; last.Written != last.Points || last.Left != 0 {
		t.Errorf("deliveries: got %+v, want all points written, at once or by the replay at the end", r.delivered)
	}
	r.checkHidden(db.token)

	run := r.plan.ID
	sent := db.query(db.fieldQuery(run, "lockstep_total", "sent")+
		` |> filter(fn: (r) => r.phase == "measure") |> group(columns: ["cell"]) |> sum()`, "cell")
	byAgent := db.query(db.fieldQuery(run, "lockstep_window", "sent")+
		` |> filter(fn: (r) => r.phase == "measure" and r.role == "publisher") |> group(columns: ["cell"]) |> sum()`,
		"cell")
	received := db.query(db.fieldQuery(run, "lockstep_window", "received")+
		` |> filter(fn: (r) => r.phase == "measure") |> group(columns: ["cell"]) |> sum()`, "cell")
	rates := db.query(db.fieldQuery(run, "lockstep_total", "publish.rate")+
		` |> filter(fn: (r) => r.phase == "measure") |> group(columns: ["cell", "_time"]) |> sum() |> group(columns: ["cell"]) |> mean()`, "cell")
	outcome := db.query(db.fieldQuery(run, "lockstep_outcome",
		"publish.p99")+` |> filter(fn: (r) => r.verdict == "valid")`, "cell")
	threads := db.query(db.fieldQuery(run, "lockstep_outcome", "consume.rate"), "axis_threads")
	documented := db.query(documentedQuery(t, db.bucket, run), "cell")
	seconds := measuredFor.Seconds()
	for _, o := range r.outcomes {
		for what, c := range map[string]struct{ got, want float64 }{
			"sent, total":           {sent[o.Cell] / seconds, r.metric(o, "publish.rate")},
			"sent, sum over agents": {byAgent[o.Cell] / seconds, r.metric(o, "publish.rate")},
			"mean of publish.rate":  {rates[o.Cell], r.metric(o, "publish.rate")},
			"received":              {received[o.Cell] / seconds, r.metric(o, "consume.rate")},
			"publish.p99":           {outcome[o.Cell], r.metric(o, "publish.p99")},
			"query in SCHEMA.md":    {documented[o.Cell], r.metric(o, "publish.rate")},
			"consume.rate by axis":  {threads[fmt.Sprint(o.Index+1)], r.metric(o, "consume.rate")},
		} {
			if math.Abs(c.got-c.want) > 1e-9*c.want {
				t.Errorf("%s, %s in InfluxDB: got %v, want %v as in the record", r.name(o), what, c.got, c.want)
			}
		}
	}
	kinds := db.query(db.fieldQuery(run, "lockstep_event", "text")+` |> group(columns: ["kind"]) |> count()`, "kind")
	for kind, n := range map[string]float64{"run-start": 1, "run-stop": 1, "task-start": 2, "task-stop": 2} {
		if kinds[kind] != n {
			t.Errorf("events of kind %s: got %v, want %v", kind, kinds[kind], n)
		}
	}

	before := db.points(run)
	for place, n := range map[string]float64{"lockstep_total sent": 0, "lockstep_agent cpu": 2,
		"lockstep_outcome publish.rate": 2} {
		if before[place] < max(n, 1) {
			t.Errorf("points of %s: got %v, want at least %v", place, before[place], max(n, 1))
		}
	}
	measured := db.query(db.fieldQuery(run, "lockstep_total", "sent")+
		` |> filter(fn: (r) => r.phase == "measure" and r.measured == "true") |> group(columns: ["cell"]) |> count()`,
		"cell")
	for cell, n := range measured {
		if n != seconds {
			t.Errorf("seconds of %s in InfluxDB: got %v, want %v", cell, n, seconds)
		}
	}
	if again := db.replay(r.dir); again.Left != 0 || again.Written < d.Written-1 {
		t.Errorf("replay of the record: got %+v, want no points left and at least %d written", again, d.Written-1)
	}
	if after := db.points(run); !maps.Equal(before, after) {
		t.Errorf("points after the replay: got %v, want %v as before", after, before)
	}
}

// documentedQuery returns the example of dashboards/SCHEMA.md.
func documentedQuery(t *testing.T, bucket, run string) string {
	t.Helper()
	text, err := os.ReadFile("../dashboards/SCHEMA.md")
	if err != nil {
		t.Fatal(err)
	}
	_, query, found := strings.Cut(string(text), "```\nfrom(")
	query, _, ended := strings.Cut(query, "```")
	if !found || !ended {
		t.Fatal("SCHEMA.md: got no code block with a query, want one")
	}
	return strings.NewReplacer(`"lockstep")`, fmt.Sprintf("%q)", bucket), `"RUN"`, fmt.Sprintf("%q", run), "10.0",
		fmt.Sprint(measuredFor.Seconds())+".0").Replace("from(" + query)
}

// oneCell reduces the small matrix to one cell.
var oneCell = []string{"--set", "axes.threads=[1]"}

// TestSinkRefused proves that a wrong token or an unknown bucket affects only the points, and that the record reports
// it.
func TestSinkRefused(t *testing.T) {
	parallel(t)
	db := sharedInflux(t)
	for name, c := range map[string]struct {
		change func(*influx)
		why    string
	}{
		"token":  {func(i *influx) { i.token = "wr0ng-t0ken" }, "rejected: 401 Unauthorized"},
		"bucket": {func(i *influx) { i.bucket = "no-such-bucket" }, "rejected: 404 Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := db
			c.change(&wrong)
			wrong.t = t
			r := runWithSink(t, wrong.env(), "", oneCell...)
			d := r.checkDelivery()
			if d.Written != 0 || d.Why[c.why] != d.Dropped || d.LastError == "" || !strings.Contains(r.text, c.why) {
				t.Errorf("delivery: got %+v, want all points dropped with reason %q, also in the output of ctl", d,
					c.why)
			}
			r.checkHidden(wrong.token)
		})
	}
}

// TestSinkInfluxKilled kills InfluxDB during a run and starts it again. The run is valid, and every point is counted.
// After a replay InfluxDB has each point of the record once. A second replay changes nothing.
func TestSinkInfluxKilled(t *testing.T) {
	parallel(t)
	db := ownInflux(t)
	ctl, dir := startWithSink(t, []string{"INFLUX_TOKEN=" + db.token},
		fmt.Sprintf(`influx: {url: %q, org: %q, bucket: %q, token: "${env:INFLUX_TOKEN}"}`, db.url, db.org, db.bucket),
		append(oneCell, "--set", `cell.measure="30s"`)...)
	run := ""
	process.Eventually(t, "the run directory", func() bool {
		var err error
		run, err = os.Readlink(filepath.Join(dir, "runs", "latest"))
		return err == nil
	})
	process.Eventually(t, "the first seconds of the run in InfluxDB",
		func() bool { return db.points(run)["lockstep_total sent"] > 0 })
	labtest.Control(t, "kill", db.process)
	process.Eventually(t, "a failed write to InfluxDB in the output of ctl",
		func() bool { return strings.Contains(ctl.Output(), "cannot write points to InfluxDB") })
	labtest.Control(t, "start", db.process)
	r := awaitSinkRun(t, ctl, dir)
	if d := r.checkDelivery(); d.LastError == "" || d.Retries+d.Dropped == 0 {
		t.Errorf("delivery after the kill of InfluxDB: got %+v, want an error, and retries or dropped points", d)
	}
	r.checkHidden(db.token)
	db.replay(dir)
	db.secondsOnce(run, 30)
	before := db.points(run)
	db.replay(dir)
	if after := db.points(run); !maps.Equal(before, after) {
		t.Errorf("points after a second replay: got %v, want %v as before", after, before)
	}
}

// secondsOnce checks that InfluxDB has every second of the measurement of a run of one cell.
func (i influx) secondsOnce(run string, want float64) {
	i.t.Helper()
	got := i.query(i.fieldQuery(run, "lockstep_total", "sent") +
		` |> filter(fn: (r) => r.phase == "measure" and r.measured == "true") |> group() |> count()`)[""]
	if got != want {
		i.t.Errorf("seconds of the measurement in InfluxDB: got %v, want %v", got, want)
	}
}

// TestSinkGone kills InfluxDB during a run and starts it after the end. The run is valid. The summary has the number of
// dropped points and the command for a replay. After the replay, queries return the numbers of the record, each point
// once, also if it is repeated.
func TestSinkGone(t *testing.T) {
	parallel(t)
	db := ownInflux(t)
	ctl, dir := startWithSink(t, db.env(), "", append(oneCell, "--set", `cell.measure="30s"`)...)
	run := ""
	process.Eventually(t, "the run directory", func() bool {
		var err error
		run, err = os.Readlink(filepath.Join(dir, "runs", "latest"))
		return err == nil
	})
	process.Eventually(t, "the first seconds of the run in InfluxDB",
		func() bool { return db.points(run)["lockstep_total sent"] > 0 })
	labtest.Control(t, "kill", db.process)
	r := awaitSinkRun(t, ctl, dir)
	d := r.checkDelivery()
	if d.Dropped == 0 || d.Written == 0 {
		t.Errorf("delivery: got %+v, want some points written and some dropped", d)
	}
	r.checkReplayRequested(run)
	r.checkHidden(db.token)

	labtest.Control(t, "start", db.process)
	db.replay(dir)
	first := db.points(run)
	db.secondsOnce(run, 30)
	o := r.outcomes[0]
	sent := db.query(db.fieldQuery(run, "lockstep_total", "sent") +
		` |> filter(fn: (r) => r.phase == "measure") |> group() |> sum()`)[""]
	rate := db.query(db.fieldQuery(run, "lockstep_outcome", "publish.rate") + ` |> group()`)[""]
	if want := r.metric(o, "publish.rate"); math.Abs(sent/30-want) > 1e-9*want || math.Abs(rate-want) > 1e-9*want {
		t.Errorf("publish.rate in InfluxDB: got %v (total) and %v (outcome), want %v as in the record", sent/30, rate,
			want)
	}
	if stops := db.query(db.fieldQuery(run, "lockstep_event", "text") +
		` |> filter(fn: (r) => r.kind == "run-stop") |> group() |> count()`)[""]; stops != 1 {
		t.Errorf("run-stop events: got %v, want 1", stops)
	}
	db.replay(dir)
	if again := db.points(run); !maps.Equal(first, again) {
		t.Errorf("points after a second replay: got %v, want %v as before", again, first)
	}
}

// TestSinkHanging proves that an InfluxDB that accepts connections and never responds does not fail a run, and that
// every point is counted. TestInfluxNeverSlowsARun and TestReplayAtTheEnd cover the wait at the end of the run.
func TestSinkHanging(t *testing.T) {
	parallel(t)
	disabled := runWithSink(t, nil, "", append(oneCell, "--no-influx")...)
	if len(disabled.delivered) != 0 || strings.Contains(disabled.text, "InfluxDB") {
		t.Errorf("with --no-influx: got deliveries %+v or InfluxDB in the output, want neither:\n%s",
			disabled.delivered, disabled.text)
	}
	r := runWithSink(t, []string{"SINK_TOKEN=h1dden-t0ken"},
		fmt.Sprintf(`influx: {url: %q, org: "o", bucket: "b", token: "${env:SINK_TOKEN}"}`,
			startSilentServer(t)), oneCell...)
	d := r.checkDelivery()
	if d.Written != 0 || d.Dropped != d.Points || !strings.Contains(d.LastError, "no response") {
		t.Errorf("delivery: got %+v, want all points dropped with the error \"no response\"", d)
	}
	r.checkReplayRequested(r.plan.ID)
	r.checkHidden("h1dden-t0ken")
}
