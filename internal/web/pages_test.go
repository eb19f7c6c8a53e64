package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/metrics"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/web"
	"example.org/lockstep/lockstep/internal/wire"
)

// outside matches references of a page to other hosts.
var outside = regexp.MustCompile(`(?i)(src|href|action|content|url\()\s*=?\s*["']?(https?:)?//`)

// sound checks that a page is complete, escapes user texts, and refers to no other host.
func sound(t *testing.T, path, text string) {
	t.Helper()
	if !strings.HasSuffix(strings.TrimSpace(text), "</html>") {
		t.Errorf("%s is not whole:\n%s", path, text)
	}
	for _, bad := range []string{"alert(\"1\")</script>", "<script>alert", "<b>", "<i>", "ZgotmplZ", "<no value>",
		"NaN"} {
		if strings.Contains(text, bad) {
			t.Errorf("%s holds %q:\n%s", path, bad, text)
		}
	}
	if found := outside.FindString(text); found != "" {
		t.Errorf("%s names another host: %s", path, found)
	}
}

func TestPagesOfARunShowItsRecordAsText(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil, "a1", "a2")
	run := aRun("run-1", nil)
	l.finish(run)
	dir, err := runs.Open(l.copies, filepath.Join(l.copies, run.ID))
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := dir.Outcomes()
	if err != nil || len(outcomes) != 1 || outcomes[0].Verdict != plan.Valid {
		t.Fatalf("the outcomes are %+v, %v", outcomes, err)
	}
	paths := []string{"/", "/runs/run-1", "/agents", "/schedules", "/history",
		"/history?" + url.Values{"matrix": {run.Name}}.Encode()}
	for _, path := range paths {
		sound(t, path, l.get(path, nil))
	}
	text := l.get("/runs/run-1", nil)
	p99 := outcomes[0].Values["publish.p99"] // agents that end separately have no common rate
	number := strconv.FormatFloat(p99.Number, 'f', -1, 64)
	if p99.NA != "" || p99.Number == 0 {
		t.Fatalf("the latency is %+v", p99)
	}
	for _, want := range []string{`<data value="` + number + `">`, "1 task: 1 valid, 0 invalid, 0 failed",
		"&lt;/script&gt;", "🐇", "its copy on this host"} {
		if !strings.Contains(text, want) {
			t.Errorf("the run's page does not hold %q:\n%s", want, text)
		}
	}
	if text := l.get("/agents", nil); !strings.Contains(text, ">a2</th>") || !strings.Contains(text, ">free<") {
		t.Errorf("the agents' page does not show a2 as free:\n%s", text)
	}
	answer, missing := ask(t, "GET", l.pages+"/runs/no-such-run", "", nil)
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("a run that is not there: %s", answer.Status)
	}
	if !strings.Contains(missing, "No such run") {
		t.Errorf("what is missing is not named:\n%s", missing)
	}
	sound(t, "/runs/no-such-run", missing)
	if csp := answer.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'self';") ||
		!strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("the policy is %q", csp)
	}
}

func TestRunWithoutACopyIsShownFromTheControlPlane(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil, "a1", "a2")
	l.finish(aRun("run-1", nil))
	if err := os.RemoveAll(filepath.Join(l.copies, "run-1")); err != nil { // as with a controller that has never led
		t.Fatal(err)
	}
	text := l.get("/runs/run-1", nil)
	sound(t, "/runs/run-1", text)
	if !strings.Contains(text, "the control plane") || !strings.Contains(text, "1 task: 1 valid") {
		t.Errorf("the page does not show the record of the control plane:\n%s", text)
	}
}

func TestFilesOfARunAndNothingElse(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil, "a1", "a2")
	l.finish(aRun("run-1", nil))
	secret := filepath.Join(l.copies, "secret")
	for path, text := range map[string]string{secret: "secret",
		filepath.Join(l.copies, "run-1", "report.html"): "<script>alert(1)</script>"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	answer, text := ask(t, "GET", l.pages+"/runs/run-1/report.html", "", nil)
	if csp := answer.Header.Get("Content-Security-Policy"); answer.StatusCode != 200 ||
		text != "<script>alert(1)</script>" || !strings.HasPrefix(csp, "sandbox ") ||
		!strings.Contains(csp, "; script-src "+report.ScriptSource()+";") || strings.Contains(csp, "allow-same-origin") {
		t.Errorf("the report: %s, policy %q", answer.Status, csp)
	}
	_ = os.Remove(filepath.Join(l.copies, "run-1", "tables.txt"))
	if err := os.Symlink("/etc/passwd", filepath.Join(l.copies, "run-1", "tables.txt")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/runs/run-1/run.json", "/runs/..%2frun-1/report.html",
		"/runs/run-1/..%2f..%2fsecret", "/runs/%2e%2e/secret", "/runs/run-1/tables.txt",
		"/runs/latest/report.html", "/runs/" + url.PathEscape(filepath.Join(l.copies, "run-1")) + "/report.html"} {
		if answer, text := ask(t, "GET", l.pages+path, "", nil); answer.StatusCode == 200 {
			t.Errorf("%s is served: %.60s", path, text)
		}
	}
}

func TestLiveViewFollowsARunAndCancelEndsIt(t *testing.T) {
	t.Parallel()
	l := newLab(t, users(t), "a1", "a2")
	l.submit(aRun("run-1", long))
	l.eventually("the page of the run has a live part",
		func() bool { return strings.Contains(l.get("/runs/run-1", nil), "Now: ") })
	if text := l.get("/runs/run-1", nil); strings.Contains(text, "<button") ||
		strings.Contains(text, "tasks were not run") {
		t.Errorf("who has not logged in is offered a button, or a run that goes on is called incomplete:\n%s", text)
	}
	l.eventually("the agent's figures say that it measures", func() bool {
		w := httptest.NewRecorder()
		metrics.Agent(l.working, l.client.Linked, "test", slog.New(slog.DiscardHandler)).ServeHTTP(w,
			httptest.NewRequest("GET", "/metrics", nil))
		text := w.Body.String()
		return strings.Contains(text, `lockstep_agent_busy{agent="a1"} 1`) &&
			strings.Contains(text, `lockstep_agent_task_phase{agent="a1",phase="measure"} 1`) &&
			strings.Contains(text, `lockstep_agent_task_phase{agent="a1",phase="drain"} 0`) &&
			strings.Contains(text, "lockstep_control_plane_linked 1")
	})
	stream, err := http.Get(l.pages + "/runs/run-1/live")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	// ends the test if the event never comes
	defer time.AfterFunc(3*time.Minute, func() { stream.Body.Close() }).Stop()
	if kind := stream.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("the stream is %s", kind)
	}
	lines, event, seen, asked, painted, began := bufio.NewScanner(stream.Body), "", false, false, false, time.Now()
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if name, is := strings.CutPrefix(line, "event: "); is {
			event = name
		}
		seen = seen || strings.Contains(line, "<dt>consume</dt>")
		if strings.Contains(line, "<script>alert") {
			t.Fatalf("the stream holds a script: %s", line)
		}
		if seen && !asked && !painted { // during a task the page has the metrics without its script
			painted = true
			if text := l.get("/runs/run-1", nil); !strings.Contains(text, "<dt>consume</dt>") ||
				!strings.Contains(text, ": measuring; on ") {
				t.Errorf("the page of a task that measures does not say so before its script runs:\n%s", text)
			}
		}
		if seen && !asked && time.Since(began) > 12*time.Second { // longer than the time limit for other requests
			asked = true
			page := l.get("/runs/run-1", alice)
			l.act("/runs/run-1/cancel", tokenOf(t, page), http.StatusSeeOther)
		}
	}
	if !seen || event != "end" {
		t.Fatalf("rates came: %v; the last event is %q, want end", seen, event)
	}
	l.eventually("the run is interrupted by alice", func() bool {
		state, err := l.client.RunState(t.Context(), "run-1")
		return err == nil && state.State == string(wire.EndInterrupted) &&
			state.Detail == "run was cancelled by alice@web"
	})
}

// TestOneMeterForAllWhoLook proves that the record of a run is read once for all viewers, and that a viewer that leaves
// does not affect the others.
func TestOneMeterForAllWhoLook(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil, "a1", "a2")
	all := web.NewWatches(l.client)
	if _, _, err := all.Look(t.Context(), "run-1"); !errors.Is(err, wire.ErrNoRecord) {
		t.Errorf("a run that has not begun: %v", err)
	}
	l.submit(aRun("run-1", long))
	var first, second web.Watch
	var leave, leaveToo func()
	ctx, stop := context.WithCancel(t.Context())
	l.eventually("the run is looked at", func() (is bool) {
		var err error
		first, leave, err = all.Look(ctx, "run-1")
		return err == nil
	})
	second, leaveToo, err := all.Look(t.Context(), "run-1")
	if err != nil || first != second {
		t.Fatalf("the second who looks has a meter of his own, %v", err)
	}
	leave()
	stop()
	l.eventually("the one who stays sees the seconds come", func() bool { return second.Series() > 2 })
	if err := l.client.Cancel(t.Context(), "run-1", ""); err != nil {
		t.Fatal(err)
	}
	l.eventually("he is told of the end", func() bool { return second.Ended() == string(wire.EndInterrupted) })
	leaveToo()
	l.eventually("who looks later is not shown what is followed no longer", func() bool {
		again, leave, err := all.Look(t.Context(), "run-1")
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		return again != second && again.Ended() == string(wire.EndInterrupted)
	})
}

// The page of a run names the flags that changed its matrix.
func TestAPageOfARunNamesItsFlags(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	for i, set := range [][]string{nil, {"cell.measure=\"12s\""}} {
		run := aRun(fmt.Sprintf("run-%d", i), nil)
		run.Source.Set = set
		dir, err := runs.Create(l.copies, run)
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if text := l.get("/runs/run-1", nil); !strings.Contains(text,
		"<dt>Flags</dt><dd><code>--set cell.measure=&#34;12s&#34;</code>") {
		t.Errorf("the run's page does not name its flags:\n%s", text)
	}
	if text := l.get("/runs/run-0", nil); strings.Contains(text, "<dt>Flags</dt>") {
		t.Errorf("a run without flags has some:\n%s", text)
	}
}

var tokens = regexp.MustCompile(`name="token" value="([0-9a-f]{64})"`)

func tokenOf(t *testing.T, page string) string {
	t.Helper()
	found := tokens.FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("the page has no form:\n%s", page)
	}
	return found[1]
}

// act sends a form from the site's own page as alice.
func (l *lab) act(path, token string, want int) {
	l.t.Helper()
	answer, text := ask(l.t, "POST", l.pages+path, url.Values{"token": {token}}.Encode(), func(r *http.Request) {
		alice(r)
		r.Header.Set("Origin", l.pages)
	})
	if answer.StatusCode != want {
		l.t.Errorf("%s: %s, want %d\n%s", path, answer.Status, want, text)
	}
}

func addSchedule(l *lab) {
	l.t.Helper()
	d := schedule.Definition{Name: "nightly", Cron: "0 2 * * *", Zone: "Europe/Berlin", MissedRuns: schedule.MissedSkip,
		Overlap: schedule.OverlapSkip,
		Matrix:  schedule.Matrix{File: "n.cue", Path: "/x/" + hostile, Text: "// " + hostile, Set: []string{hostile}}}
	s := schedule.New(d, "id", hostile, time.Now())
	s.History = []schedule.Entry{{Slot: schedule.Slot{At: time.Now()}, Run: "run-0", State: schedule.Done,
		Tasks:    schedule.Tasks{Valid: 3, Invalid: 1},
		Problems: []string{hostile}, Why: hostile,
		Compared: json.RawMessage(`{"x":"` + strings.ReplaceAll(hostile, `"`, `\"`) + `"}`)}}
	if err := l.client.PutSchedule(l.t.Context(), s, 0); err != nil {
		l.t.Fatal(err)
	}
}

func TestSchedulesAreShownPausedAndRun(t *testing.T) {
	t.Parallel()
	l := newLab(t, users(t))
	addSchedule(l)
	for _, path := range []string{"/schedules", "/schedules/nightly"} {
		text := l.get(path, nil)
		sound(t, path, text)
		if !strings.Contains(text, "done: 3 valid, 1 invalid, 0 failed") || strings.Contains(text, "<button") {
			t.Errorf("%s does not show what came of the last slot, or offers a button to anybody:\n%s", path, text)
		}
	}
	token := tokenOf(t, l.get("/schedules/nightly", alice))
	l.act("/schedules/nightly/resume", token, http.StatusConflict)
	l.act("/schedules/nightly/pause", token, http.StatusSeeOther)
	l.act("/schedules/nightly/pause", token, http.StatusConflict)
	kept, err := l.client.Schedule(t.Context(), "nightly")
	if err != nil || !kept.Schedule.Paused || kept.Schedule.By != "alice@web" {
		t.Errorf("the schedule is %+v, %v; want it paused by alice@web", kept.Schedule, err)
	}
	if text := l.get("/schedules/nightly?done=pause", alice); !strings.Contains(text,
		"The schedule is paused; an active run") || !strings.Contains(text, ">Resume<") {
		t.Errorf("the page does not say so:\n%s", text)
	}
	l.act("/schedules/nightly/run", token, http.StatusSeeOther)
	if kept, err = l.client.Schedule(t.Context(), "nightly"); err != nil || kept.Schedule.Asked == nil ||
		kept.Schedule.Asked.By != "alice@web" {
		t.Errorf("the schedule is %+v, %v; want that a run is asked for", kept.Schedule, err)
	}
	l.act("/schedules/nightly/run", token, http.StatusConflict)
	l.act("/schedules/none/run", token, http.StatusNotFound)
	l.act("/schedules/nightly/remove", token, http.StatusNotFound)
}

func TestNothingIsDoneForWhoMayNot(t *testing.T) {
	t.Parallel()
	l := newLab(t, users(t))
	addSchedule(l)
	token, form := tokenOf(t, l.get("/schedules/nightly", alice)),
		func(token string) string { return url.Values{"token": {token}}.Encode() }
	for _, c := range []struct {
		about, token string
		change       func(*http.Request)
		want         int
	}{
		{"nobody", token, nil, 401},
		{"a wrong password", token, func(r *http.Request) { r.SetBasicAuth("alice", "wrong horse") }, 401},
		{"no token", "", alice, 403},
		{"a token of nobody's", strings.Repeat("0", 64), alice, 403},
		{"another site, says the browser", token, func(r *http.Request) {
			alice(r)
			r.Header.Set("Sec-Fetch-Site",
				"cross-site")
		}, 403},
		{"a sister site, says the browser", token,
			func(r *http.Request) { alice(r); r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
		{"another site, by its origin", token, func(r *http.Request) {
			alice(r)
			r.Header.Set("Origin",
				"http://evil.example")
		}, 403},
		{"a hidden origin", token, func(r *http.Request) { alice(r); r.Header.Set("Origin", "null") }, 403},
	} {
		answer, _ := ask(t, "POST", l.pages+"/schedules/nightly/pause", form(c.token), c.change)
		if answer.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", c.about, answer.Status, c.want)
		}
	}
	answer, _ := ask(t, "GET", l.pages+"/schedules/nightly/pause?token="+token, "", alice)
	if answer.StatusCode == 200 || answer.StatusCode == 303 {
		t.Errorf("a link pauses: %s", answer.Status)
	}
	alone := l.serve(nil) // without logins, no actions are possible
	if answer, _ := ask(t, "POST", alone+"/schedules/nightly/pause", form(token), alice); answer.StatusCode != 403 {
		t.Errorf("without users: %s", answer.Status)
	}
	kept, err := l.client.Schedule(t.Context(), "nightly")
	if err != nil || kept.Schedule.Paused || kept.Schedule.Edit != 1 {
		t.Errorf("the schedule was changed: %+v, %v", kept.Schedule, err)
	}
	// a redirect leads only to this site
	for _, to := range []string{"//evil.example", "https://evil.example", "/\t/evil.example", "/schedules"} {
		answer, _ := ask(t, "GET", l.pages+"/login?to="+url.QueryEscape(to), "", alice)
		if answer.StatusCode != 303 || answer.Header.Get("Location") != "/" {
			t.Errorf("after login to %q: %s to %q, want /", to, answer.Status, answer.Header.Get("Location"))
		}
	}
}

// The history has a drawing per series with its change points. Series with an alarm are first.
func TestHistoryShowsSeriesChangePointsAndAlarms(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	matrix := "nightly " + hostile
	for i := range 20 {
		run := plan.Run{Version: plan.RecordFormat, ID: fmt.Sprintf("run-%02d", i), Name: matrix, Repeat: 1,
			Axes: []string{"mode"}, Started: time.Date(2026, 3, 1+i, 2, 0, 0, 0, time.UTC)}
		for j, mode := range []string{"steady", "slower " + hostile} {
			run.Cells = append(run.Cells, plan.Cell{ID: fmt.Sprintf("%012x", 0xabc0+j), Index: j,
				Workload: plan.Default(), Broker: plan.Broker{Options: []byte("{}")},
				Coordinates: []plan.Coordinate{{Axis: "mode", Value: fmt.Appendf(nil, "%q", mode)}}})
		}
		dir, err := runs.Create(l.copies, run)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range run.Tasks() {
			rate := plan.Value{Number: 1000 + float64(i*i*7919%13)}
			if task.Cell.Index == 0 {
				rate.Number /= 500
			}
			switch {
			case task.Cell.Index == 1 && i >= 18:
				rate.Number *= 0.7
			case task.Cell.Index == 1 && i == 9:
				rate = plan.Value{NA: "not measured " + hostile}
			}
			o := plan.Outcome{Version: plan.RecordFormat, Run: run.ID, Task: task.ID, Cell: task.Cell.ID,
				Index: task.Cell.Index, Repetition: 1, Verdict: plan.Valid,
				Values: map[string]plan.Value{"publish.rate": rate},
				Agents: []plan.AgentPart{{Agent: "a1", Host: "bench-1", Version: "1.0"}}}
			if err := dir.Finish(o); err != nil {
				t.Fatal(err)
			}
		}
		if err := dir.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := history.Of(l.copies).Fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := "/history?" + url.Values{"matrix": {matrix}, "value": {"publish.rate"}}.Encode()
	text := l.get(path, nil)
	sound(t, path, text)
	slower, steady := strings.Index(text, "mode=slower "), strings.Index(text, "mode=steady")
	if strings.Count(text, `<svg class="chart" viewBox`) != 2 || strings.Count(text, "<strong>alarm:</strong>") != 1 ||
		slower < 0 || slower > steady {
		t.Errorf("want two drawings, the one with the only alarm first:\n%s", text)
	}
	for _, tick := range []string{">1,000<", ">2<"} { // the rates of the cells differ by a factor of 500
		if !strings.Contains(text, tick) {
			t.Errorf("no chart has the tick %s: each has its own scale:\n%s", tick, text)
		}
	}
	path += "&cell=00000000abc1"
	text = l.get(path, nil)
	sound(t, path, text)
	for _, want := range []string{"-30 % since 2026-03-19", "of this cell only", `since 2026-03-19 02:00:00 UTC`,
		`<a href="/runs/run-18">nightly `, `</a> <small>run-18</small>`, "not measured &lt;/script&gt;"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page of the cell does not hold %q:\n%s", want, text)
		}
	}
	if rows := text[strings.Index(text, "<tbody>"):]; strings.Contains(text, "steady") ||
		strings.Index(rows, "run-19") > strings.Index(rows, "run-00") {
		t.Errorf("want one cell, the newest run first:\n%s", text)
	}
}

func TestFiguresForPrometheus(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil, "a1", "a2")
	l.finish(aRun("run-1", nil))
	text := l.get("/metrics", nil)
	for _, want := range []string{"lockstep_controller_leading 1", `lockstep_runs{state="done"} 1`,
		`lockstep_runs{state="queued"} 0`, `lockstep_tasks_total{verdict="valid"} 1`,
		`lockstep_agents{state="free"} 2`, `lockstep_agents{state="leaves"} 0`,
		"lockstep_record_limit_bytes 1.073741824e+09", "go_goroutines ",
		`lockstep_build_info{version="test"} 1`,
		`lockstep_controller_metrics_known{of="storage"} 1`, `lockstep_sink_points_total{outcome="written"} 0`,
		`lockstep_sink_points_total{outcome="left"} 0`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q:\n%s", want, text)
		}
	}
	if bytes := regexp.MustCompile(`(?m)^lockstep_record_bytes (\S+)$`).FindStringSubmatch(text); bytes == nil ||
		bytes[1] == "0" {
		t.Errorf("the record takes %v bytes after a run", bytes)
	}
}

// The digest of a slot is shown as a title with lines, and with a link to the digest in the run's copy. Other
// comparisons are shown unchanged.
func TestTheDigestOfASlotIsReadable(t *testing.T) {
	t.Parallel()
	l := newLab(t, users(t))
	s := schedule.New(schedule.Definition{Name: "nightly", Cron: "0 2 * * *", Zone: "UTC",
		MissedRuns: schedule.MissedSkip, Overlap: schedule.OverlapSkip,
		Matrix: schedule.Matrix{File: "n.cue", Path: "/n.cue", Text: "x"}}, "id", "me", time.Now())
	for _, run := range []string{"run-1", "run-none"} {
		s.History = append(s.History, schedule.Entry{Slot: schedule.Slot{At: time.Now()}, Run: run,
			State:    schedule.Done,
			Compared: json.RawMessage(`{"other":{"slower":3},"old":"cut","digest":{"title":"nightly: 1 worse","lines":["worse: <b>it</b>"],"run":"hidden"}}`)})
	}
	if err := l.client.PutSchedule(t.Context(), s, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(l.copies, "run-1"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.copies, "run-1", "digest.html"), []byte("the digest"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := l.get("/schedules/nightly", nil)
	for _, want := range []string{"<summary>digest: nightly: 1 worse</summary><ul><li>worse: &lt;b&gt;it&lt;/b&gt;</li></ul>", "<summary>old</summary><pre>cut</pre>", "&#34;slower&#34;: 3", `<a href="/runs/run-1/digest.html">digest</a>`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "hidden") || strings.Contains(text, "run-none/digest") {
		t.Errorf("the digest is shown raw, or one is linked that is not there:\n%s", text)
	}
	if text := l.get("/runs/run-1/digest.html", nil); text != "the digest" {
		t.Errorf("the digest is %q", text)
	}
}

// A page that takes until its limit says so, and names the leading controller.
func TestSlowPage(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	slow := httptest.NewRecorder()
	web.Slow(web.Config{Conn: l.client, Access: &web.Access{}, Log: slog.New(slog.DiscardHandler)}).ServeHTTP(slow,
		httptest.NewRequest(http.MethodGet, "/", nil))
	if text := slow.Body.String(); slow.Code != http.StatusGatewayTimeout || !strings.Contains(text, "controller head") {
		t.Errorf("status %d\n%s", slow.Code, text)
	}
}
