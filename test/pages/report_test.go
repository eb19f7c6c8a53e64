// Package pages proves in a browser that reports and web pages load without errors, without requests to other hosts,
// and with readable contents.
package pages

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/test/browser"
)

// chromium starts the lab's browser.
func chromium(t *testing.T) *browser.Browser {
	t.Helper()
	program := os.Getenv("LOCKSTEP_CHROMIUM")
	if program == "" && os.Getenv("LOCKSTEP_LAB") == "required" {
		t.Fatal(`LOCKSTEP_CHROMIUM is not set although LOCKSTEP_LAB is "required"`)
	}
	if program == "" {
		t.Skip("no browser: go run ./test/lab run chromium -- go test ./test/pages")
	}
	b, err := browser.Start(program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// ctl builds the program and returns a function that runs it. Exit code 3 is accepted: cells failed.
func ctl(t *testing.T) func(args ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ctl")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/ctl").CombinedOutput(); err != nil {
		t.Fatalf("build ctl: %v\n%s", err, out)
	}
	return func(args ...string) string {
		t.Helper()
		out, err := exec.Command(program, args...).CombinedOutput()
		if code := (&exec.ExitError{}); err != nil && (!errors.As(err, &code) || code.ExitCode() != 3) {
			t.Fatalf("ctl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
}

// look opens a page, and fails if it has console messages or requests. The caller checks its contents.
func look(ctx context.Context, t *testing.T, b *browser.Browser, path string) *browser.Page {
	t.Helper()
	page, err := b.Open(ctx, "file://"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if all := page.Complaints(); len(all) > 0 {
			t.Errorf("the console of %s says %q", filepath.Base(path), all)
		}
		if all := page.Requests(); len(all) != 1 {
			t.Errorf("%s makes requests: %q", filepath.Base(path), all)
		}
	})
	return page
}

func eval[T any](ctx context.Context, t *testing.T, p *browser.Page, expression string) (value T) {
	t.Helper()
	if err := p.Eval(ctx, expression, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestReportInABrowser runs a matrix with all kinds of errors and opens its report without a network: in light and dark
// colours, on a phone, and in print. LOCKSTEP_SCREENSHOTS names a folder for pictures, for manual review.
func TestReportInABrowser(t *testing.T) {
	b, call := chromium(t), ctl(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	folder := t.TempDir()
	printed := call("run", "--runs", folder, "testdata/page.cue")
	run, err := runs.Open(folder, "latest")
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	path := filepath.Join(run.Dir(), "report.html")
	if !strings.Contains(printed, "report: "+path) {
		t.Errorf("ctl run does not say where the report is:\n%s", printed)
	}
	page := look(ctx, t, b, path)
	sameTables(ctx, t, page, run)
	sorts(ctx, t, page)
	filters(ctx, t, page)
	reads(ctx, t, page)
	drawn(ctx, t, page)
	fits(ctx, t, page)
	colours(ctx, t, page)
	paper(ctx, t, page)
	if !eval[bool](ctx, t, page,
		`typeof alerted === "undefined" && document.scripts.length === 2 && document.images.length === 0`) {
		t.Error("a name became part of the page")
	}
	several := filepath.Join(t.TempDir(), "two.html")
	call("run", "--runs", folder, "testdata/page.cue")
	call("show", "--runs", folder, "-o", "html", "-f", several, run.Plan().ID, "latest")
	two := look(ctx, t, b, several)
	if got := eval[string](ctx, t, two, `document.querySelector("#t1 thead").innerText`); !strings.Contains(got,
		"run=A") || !strings.Contains(got, "run=B") {
		t.Errorf("the report of two runs has columns %q", got)
	}
}

// sameTables compares the numbers in the browser with those of the record.
func sameTables(ctx context.Context, t *testing.T, page *browser.Page, run *runs.Run) {
	t.Helper()
	outcomes, err := run.Outcomes()
	if err != nil {
		t.Fatal(err)
	}
	got := eval[[]string](ctx, t, page,
		`[...document.querySelectorAll("section.table tbody td data")].map(d => d.value + " " + d.innerText)`)
	var want []string
	for _, table := range report.Build(run.Plan(), outcomes) {
		for _, row := range table.Layout().Rows {
			for _, s := range row {
				if s.Of != nil && s.Of.Number != nil {
					want = append(want, strconv.FormatFloat(*s.Of.Number, 'g', -1, 64)+" "+s.Text)
				}
			}
		}
	}
	if len(want) < 20 || len(got) != len(want) {
		t.Fatalf("the page shows %d numbers, the record has %d", len(got), len(want))
	}
	for i := range want {
		number, text, _ := strings.Cut(got[i], " ")
		wanted, wantedText, _ := strings.Cut(want[i], " ")
		x, err := strconv.ParseFloat(number, 64)
		y, _ := strconv.ParseFloat(wanted, 64)
		if err != nil || x != y || text != wantedText {
			t.Errorf("number %d is %q, want %q", i, got[i], want[i])
		}
	}
	for _, text := range []string{"broken guarantee", "connection refused", "All of it",
		"</script><script>alert(1)</script>", "🐇"} {
		if !eval[bool](ctx, t, page, `document.body.innerText.includes(`+strconv.Quote(text)+`)`) {
			t.Errorf("%q is not to be seen", text)
		}
	}
}

// sorts clicks the heading of the publish rate: the rows are then in ascending, descending and their first order. Rows
// without a number are last in both.
func sorts(ctx context.Context, t *testing.T, page *browser.Page) {
	t.Helper()
	const rates = `[...document.querySelectorAll("#t1 tbody tr")].map(r => { const d = r.cells[3].querySelector("data"); return d ? Number(d.value) : -1 })`
	first := eval[[]float64](ctx, t, page, rates)
	for i, direction := range []float64{1, -1} {
		got := eval[[]float64](ctx, t, page, `document.querySelectorAll("#t1 thead th")[3].click(), `+rates)
		absent := slices.Index(got, -1)
		if absent < 5 || slices.ContainsFunc(got[absent:], func(x float64) bool { return x != -1 }) ||
			!slices.IsSortedFunc(got[:absent], func(a, b float64) int { return int(direction) * cmp.Compare(a, b) }) {
			t.Errorf("after %d clicks the rates are %v", i+1, got)
		}
	}
	if got := eval[[]float64](ctx, t, page, `document.querySelectorAll("#t1 thead th")[3].click(), `+rates); !slices.Equal(got, first) {
		t.Errorf("after three clicks the rates are %v, want %v", got, first)
	}
}

// filters types the name of a broker into the field above the first table, and removes it.
func filters(ctx context.Context, t *testing.T, page *browser.Page) {
	t.Helper()
	typed := func(text string) []string {
		return eval[[]string](ctx, t, page, `(() => { const f = document.querySelector("#t1 .filter input"); f.value = `+strconv.Quote(text)+`;
			f.dispatchEvent(new Event("input")); return [...document.querySelectorAll("#t1 tbody tr")].filter(r => r.offsetHeight > 0).map(r => r.innerText) })()`)
	}
	all := len(typed(""))
	got := typed("NATS")
	if len(got) != 2 || slices.ContainsFunc(got, func(row string) bool { return !strings.Contains(row, "nats") }) {
		t.Errorf("the rows of nats are %q", got)
	}
	if left := len(typed("")); left != all || all < 6 {
		t.Errorf("%d rows before the filter, and %d after it", all, left)
	}
}

// reads touches a bar: the line below its chart has the value.
func reads(ctx context.Context, t *testing.T, page *browser.Page) {
	t.Helper()
	got := eval[[]string](ctx, t, page, `(() => { const s = document.querySelector("#axes figure > svg"), v = s.querySelector("title"), r = v.parentNode.getBoundingClientRect();
		s.dispatchEvent(new PointerEvent("pointerdown", {clientX: r.left + r.width / 2, clientY: r.top + r.height / 2}));
		return [v.textContent, s.parentNode.querySelector(".readout").innerText] })()`)
	if got[0] == "" || strings.Join(strings.Fields(got[0]), " ") != strings.Join(strings.Fields(got[1]), " ") {
		t.Errorf("the line shows %q, want %q", got[1], got[0])
	}
}

// drawn checks the drawings of unfolded cells: they exist, and no element is empty or outside of its drawing.
func drawn(ctx context.Context, t *testing.T, page *browser.Page) {
	t.Helper()
	titles := eval[[]string](ctx, t, page, `(document.querySelectorAll("details").forEach(d => d.open = true),
		[...document.querySelectorAll("figure")].filter(f => { const s = f.querySelector(":scope > svg"), r = s && s.getBoundingClientRect(); return s && r.width > 200 && r.height > 40 }).map(f => f.querySelector("figcaption").innerText))`)
	all := strings.Join(titles, "\n")
	for _, want := range []string{"Throughput over broker", "End-to-end latency over broker",
		"Publish latency, distribution", "Rates over time", "Latency over time",
		"Latency of each step by rate"} {
		if !strings.Contains(all, want) {
			t.Errorf("no drawing is called %q; there are:\n%s", want, all)
		}
	}
	outside := eval[[]string](ctx, t, page, `[...document.querySelectorAll("figure > svg")].flatMap(s => { const o = s.getBoundingClientRect();
		return [...s.querySelectorAll("text, path.l, rect:not(.hover)")].filter(e => { const r = e.getBoundingClientRect();
			return r.right > o.right + 2 || r.left < o.left - 2 || r.top < o.top - 2 || r.bottom > o.bottom + 2 }).map(e => s.getAttribute("aria-label") + ": " + e.outerHTML) })`)
	if len(outside) > 0 {
		t.Errorf("%d elements are outside of their drawings, as %.300s", len(outside), outside[0])
	}
	if broken := eval[int](ctx, t, page,
		`[...document.querySelectorAll("svg *")].filter(e => [...e.attributes].some(a => /NaN|Infinity|undefined/.test(a.value))).length`); broken > 0 {
		t.Errorf("%d elements have no place", broken)
	}
	if filled := eval[int](ctx, t, page,
		`[...document.querySelectorAll("svg rect.hollow")].filter(e => getComputedStyle(e).fill !== getComputedStyle(document.body).backgroundColor).length`); filled > 0 {
		t.Errorf("%d hollow bars are filled: what was received looks as what was sent", filled)
	}
	if empty := eval[[]string](ctx, t, page,
		`[...document.querySelectorAll("figure > svg")].filter(s => !s.querySelector(".l, .m, rect[class^=s], rect[class^=plain], .whisker")).map(s => s.getAttribute("aria-label"))`); len(empty) > 0 {
		t.Errorf("nothing is drawn in %q", empty)
	}
	if !eval[bool](ctx, t, page,
		`document.querySelectorAll("svg .fault").length > 0 && document.querySelectorAll("svg .mark").length > 0`) {
		t.Error("nothing marks the fault")
	}
	keep(ctx, t, page, "light")
}

// fits checks the width of the page on a phone and on a large screen.
func fits(ctx context.Context, t *testing.T, page *browser.Page) {
	t.Helper()
	for _, width := range []int{390, 1400} {
		if err := page.Size(ctx, width, 900); err != nil {
			t.Fatal(err)
		}
		if got := eval[int](ctx, t, page, `document.documentElement.scrollWidth`); got > width {
			t.Errorf("at %d pixels the page is %d wide", width, got)
		}
		if width == 390 {
			keep(ctx, t, page, "phone")
		}
	}
}

// colours checks the contrast of text in light and dark colours: at least 4.5, as WCAG requires (level AA).
func colours(ctx context.Context, t *testing.T, page *browser.Page) {
	t.Helper()
	const contrast = `(() => {
		const light = c => { const [r, g, b] = c.match(/[\d.]+/g).map(x => { x /= 255; return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4 }); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
		const ground = light(getComputedStyle(document.body).backgroundColor);
		const of = (e, what) => { const l = light(getComputedStyle(e)[what]); return (Math.max(l, ground) + 0.05) / (Math.min(l, ground) + 0.05) };
		return [ground, Math.min(...[...document.querySelectorAll("p, td, th, li, h1, h2, small, a, .badge, code")].map(e => of(e, "color")), ...[...document.querySelectorAll("svg text")].map(e => of(e, "fill")))];
	})()`
	var grounds []float64
	for _, dark := range []bool{false, true} {
		if err := page.Dark(ctx, dark); err != nil {
			t.Fatal(err)
		}
		got := eval[[]float64](ctx, t, page, contrast)
		if grounds = append(grounds, got[0]); got[1] < 4.5 {
			t.Errorf("dark %v: the lowest contrast of text is %.2f", dark, got[1])
		}
	}
	if grounds[0] < 0.8 || grounds[1] > 0.1 {
		t.Errorf("the page's ground is %.2f in light and %.2f in dark", grounds[0], grounds[1])
	}
	keep(ctx, t, page, "dark")
}

func paper(ctx context.Context, t *testing.T, page *browser.Page) {
	t.Helper()
	pdf, err := page.PDF(ctx)
	if err != nil || !strings.HasPrefix(string(pdf), "%PDF") || len(pdf) < 50_000 {
		t.Errorf("it does not print: %d bytes, %v", len(pdf), err)
	}
}

func keep(ctx context.Context, t *testing.T, page *browser.Page, name string) {
	t.Helper()
	dir := os.Getenv("LOCKSTEP_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture, err := page.Screenshot(ctx)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}
