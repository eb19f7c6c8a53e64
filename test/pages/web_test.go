package pages

import (
	"bytes"
	"context"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/cli"
	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	_ "example.org/lockstep/lockstep/pkg/drivers/loopback"
	"example.org/lockstep/lockstep/test/browser"
)

// logs collects the output of a daemon.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// find waits for a text in the output, and returns its part in parentheses.
func (l *logs) find(t *testing.T, what string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if found := regexp.MustCompile(what).FindStringSubmatch(l.String()); found != nil {
			return found[1]
		}
		if time.Now().After(deadline) {
			t.Fatalf("the daemon does not say %s:\n%s", what, l)
		}
	}
}

// daemon runs a program until the end of the test.
func daemon(t *testing.T, program func(context.Context, *logs) int) *logs {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	said, left := &logs{}, make(chan int, 1)
	go func() { left <- program(ctx, said) }()
	t.Cleanup(func() {
		stop()
		if code := <-left; code != 0 {
			t.Errorf("a daemon exited with %d:\n%s", code, said)
		}
	})
	return said
}

// TestWebPageInABrowser executes a run on a fleet of one controller and two agents, and opens every page during the run
// and afterwards.
func TestWebPageInABrowser(t *testing.T) {
	b := chromium(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	dir := t.TempDir()
	control := daemon(t, func(ctx context.Context, said *logs) int {
		return cli.Controller(ctx, []string{"--open", "--listen", "127.0.0.1:0", "--dir", dir, "--web", "127.0.0.1:0"},
			nil, said, said)
	})
	server, site := control.find(t, `url=(\S+)`), "http://"+control.find(t, `what=web at=(\S+)`)
	for _, name := range []string{"load-1", "load-2"} {
		daemon(t, func(ctx context.Context, said *logs) int {
			return cli.Agent(ctx, []string{"--server", server, "--name", name, "--dir", filepath.Join(dir, name)}, nil,
				said, said)
		})
	}
	ran := &logs{}
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Ctl(ctx, []string{"run", "--server", server, "--runs", t.TempDir(), "testdata/web.cue"}, nil, ran,
			ran)
	}()
	id := wait(ctx, t, b, site)
	live := visit(ctx, t, b, site+"/runs/"+id)
	until(ctx, t, live,
		`document.querySelector("#live .rates") !== null && document.querySelector("#live svg") !== null`)
	picture(ctx, t, live, "web-live")
	if code := <-ended; code != 0 {
		t.Fatalf("ctl run exited with %d:\n%s", code, ran)
	}
	// the page has reloaded itself
	until(ctx, t, live,
		`document.querySelector("#live") === null && document.querySelectorAll("section.table tbody tr").length === 2`)
	page := visit(ctx, t, b, site+"/runs/"+id)
	until(ctx, t, page, `document.querySelector(".files .report") !== null || (location.reload(), false)`)
	if !eval[bool](ctx, t, page,
		`typeof alerted === "undefined" && document.images.length === 0 && document.querySelector("section.table h3").innerText.includes("</script>")`) {
		t.Error("a name became part of the page, or is not shown")
	}
	if rates := eval[[]float64](ctx, t, page, `(document.querySelectorAll("section.table thead th")[1].click(),
		[...document.querySelectorAll("section.table tbody tr")].map(r => Number(r.cells[1].querySelector("data").value)))`); len(rates) != 2 || rates[0] > rates[1] {
		t.Errorf("a click on the heading sorts the rates as %v", rates)
	}
	earlier(t, filepath.Join(dir, "runs"), id)
	for at, path := range map[string]string{"web-run": "/runs/" + id, "web-runs": "/", "web-agents": "/agents",
		"web-schedules": "/schedules",
		"web-history":   "/history?" + url.Values{"matrix": {"web"}}.Encode(), "web-missing": "/runs/none"} {
		p := visit(ctx, t, b, site+path)
		if at == "web-history" {
			until(ctx, t, p,
				`document.querySelectorAll("figure svg").length === 2 && document.querySelectorAll("figure svg .m").length >= 12`)
		}
		narrow(ctx, t, p, at)
	}
	// its policy allows the script
	until(ctx, t, visit(ctx, t, b, site+"/runs/"+id+"/report.html"), `document.querySelector("figure .readout") !== null`)
}

// earlier creates seven earlier copies of a run, one per day, and adds them to the history. One has no number.
func earlier(t *testing.T, copies, id string) {
	t.Helper()
	last, err := runs.Open(copies, filepath.Join(copies, id))
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := last.Outcomes()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		run := last.Plan()
		run.ID, run.Started = id+"-"+strconv.Itoa(i), time.Now().AddDate(0, 0, i-7).UTC()
		dir, err := runs.Create(copies, run)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range outcomes {
			o.Run, o.Values = run.ID, maps.Clone(o.Values)
			for name, v := range o.Values {
				v.Flags = nil // a flag of this machine would leave no point to draw
				if v.Number *= 0.8 + 0.03*float64(i); i == 4 {
					v = plan.Value{NA: "not measured"}
				}
				o.Values[name] = v
			}
			if err := dir.Finish(o); err != nil {
				t.Fatal(err)
			}
		}
		if err := dir.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := history.Of(copies).Fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// visit opens a page of the site, and fails if it has console messages or requests to other hosts.
func visit(ctx context.Context, t *testing.T, b *browser.Browser, address string) *browser.Page {
	t.Helper()
	page, err := b.Open(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, said := range page.Complaints() {
			if !strings.HasSuffix(address, "/runs/none") { // the expected "not found"
				t.Errorf("the console of %s says %q", address, said)
			}
		}
		for _, asked := range page.Requests() {
			if !strings.HasPrefix(asked, "http://"+at.Host+"/") {
				t.Errorf("%s asks %s", address, asked)
			}
		}
	})
	return page
}

// wait returns the id of the current run.
func wait(ctx context.Context, t *testing.T, b *browser.Browser, site string) string {
	t.Helper()
	for {
		page := visit(ctx, t, b, site)
		id := eval[string](ctx, t, page,
			`[...document.querySelectorAll("section[aria-labelledby=active] tbody tr")].filter(r => r.innerText.includes("running")).map(r => r.querySelector("a").pathname.slice("/runs/".length)).join()`)
		if id != "" {
			return id
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("no run is shown as running")
		}
	}
}

// until waits for a condition in the page.
func until(ctx context.Context, t *testing.T, p *browser.Page, condition string) {
	t.Helper()
	for {
		var is bool
		if err := p.Eval(ctx, condition, &is); err == nil && is { // a page that is loading does not respond
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("it never came about that %s:\n%s", condition,
				eval[string](context.WithoutCancel(ctx), t, p, `document.body.innerText`))
		}
	}
}

// narrow checks a page on a phone and on a screen, in dark and light colours: nothing exceeds its width, and the
// colours change.
func narrow(ctx context.Context, t *testing.T, p *browser.Page, name string) {
	t.Helper()
	colours := map[string]bool{}
	for _, look := range []struct {
		name   string
		width  int
		height int
		dark   bool
	}{{"phone", 360, 740, true}, {"screen", 1280, 800, false}} {
		if err := p.Size(ctx, look.width, look.height); err != nil {
			t.Fatal(err)
		}
		if err := p.Dark(ctx, look.dark); err != nil {
			t.Fatal(err)
		}
		if wide := eval[int](ctx, t, p, `document.documentElement.scrollWidth`); wide > look.width {
			t.Errorf("%s is %d wide on a screen of %d", name, wide, look.width)
		}
		colours[eval[string](ctx, t, p, `getComputedStyle(document.body).backgroundColor`)] = true
		picture(ctx, t, p, name+"-"+look.name)
	}
	if len(colours) != 2 {
		t.Errorf("%s has one background in dark and light: %v", name, colours)
	}
}

// picture stores a picture of the page, for manual review.
func picture(ctx context.Context, t *testing.T, p *browser.Page, name string) {
	t.Helper()
	to := os.Getenv("LOCKSTEP_SCREENSHOTS")
	if to == "" {
		return
	}
	shot, err := p.Screenshot(ctx)
	if err == nil {
		err = os.WriteFile(filepath.Join(to, name+".png"), shot, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
