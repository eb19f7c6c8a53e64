package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runview"
	"example.org/lockstep/lockstep/internal/terminal"
	"example.org/lockstep/lockstep/internal/wire"
)

var update = flag.Bool("update", false, "rewrite golden files")

// recorded are the events of a real run: two cells of two groups, one of which falls behind.
type recorded struct {
	After    time.Duration    `json:"after"`
	Progress recordedProgress `json:"progress"`
}

// recordedProgress is a controller.Progress with the fields of entries, which were not recorded.
type recordedProgress struct {
	controller.Progress
	Run    *plan.Run
	Agents []string
	Live   runview.Metrics // of a snapshot
	End    wire.End
}

var recording = sync.OnceValues(func() (all []recorded, err error) {
	f, err := os.Open("testdata/progress.jsonl")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for d := json.NewDecoder(f); d.More(); {
		var r recorded
		if err := d.Decode(&r); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
})

// viewAt returns the view at a time of the recording.
func viewAt(t *testing.T, after time.Duration) (v view, now time.Time) {
	t.Helper()
	events, err := recording()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	v = newView(wire.Submission{})
	for _, r := range events {
		if r.After > after {
			break
		}
		show(v, r.Progress, began.Add(r.After))
	}
	return v, began.Add(after)
}

// show applies a recorded event. Snapshots were not recorded, only the metrics that were computed from them.
func show(v view, p recordedProgress, now time.Time) {
	e := wire.Entry{}
	switch p.Kind {
	case wire.RunAccepted:
		v.run.Apply(wire.Entry{Plan: p.Run}, now)
		e.Event = &wire.RunEvent{Kind: wire.RunAccepted, At: p.At, Of: p.Of}
	case wire.TaskStarted:
		e.Event = &wire.RunEvent{Kind: wire.TaskStarted, At: p.At, N: p.N, Of: p.Of, Task: p.Task.ID, Agents: p.Agents}
	case "live":
		v.run.Attempt.Since, v.run.Attempt.ReportedAt = p.Live.Since, now
		v.run.Attempt.Series = []runview.Metrics{p.Live}
	case controller.TaskEnded:
		e.Outcome = &p.Outcome
	case wire.RunEnded:
		e.Event = &wire.RunEvent{Kind: wire.RunEnded, At: p.At, End: &p.End}
	}
	v.run.Apply(e, now)
}

// moments are times of the recording with different views.
var moments = []struct {
	name  string
	after time.Duration
}{
	{"before the run", 0}, {"connecting", time.Second}, {"warm-up", 2400 * time.Millisecond},
	{"measuring", 5400 * time.Millisecond}, {"draining", 10 * time.Second},
	{"the second cell", 14700 * time.Millisecond}, {"the end", 21 * time.Second},
}

// TestFrames compares the live view on terminals of several widths with golden files.
func TestFrames(t *testing.T) {
	t.Parallel()
	for _, columns := range []int{120, 80, 64, 59, 30} {
		var b strings.Builder
		for _, m := range moments {
			v, now := viewAt(t, m.after)
			fmt.Fprintf(&b, "%s\n%s\n", m.name, strings.Repeat("=", columns))
			for _, line := range v.frame(columns, now, terminal.Painter{}) {
				b.WriteString(display.Cut(line, columns-1) + "\n")
			}
			b.WriteByte('\n')
		}
		golden(t, fmt.Sprintf("testdata/frames-%d.txt", columns), b.String())
	}
}

// TestFramesFit proves that only texts that the screen cuts (names, and bars on narrow terminals) are wider than the
// terminal, and that colours change no character.
func TestFramesFit(t *testing.T) {
	t.Parallel()
	for columns := 24; columns < 130; columns++ {
		for _, m := range moments {
			v, now := viewAt(t, m.after)
			plain, painted := v.frame(columns, now, terminal.Painter{}),
				v.frame(columns, now, terminal.Painter{Colours: true})
			for i, line := range plain {
				if v.run.Attempt != nil && strings.Contains(line, nameOf(v.run.Attempt)) || i < 3 && columns < 60 {
					continue
				}
				if w := display.Width(line); w > columns-1 {
					t.Errorf("%d columns, %s: %d: %q", columns, m.name, w, line)
				}
				if strings.ContainsRune(line, '\x1b') {
					t.Errorf("a style where colours are off: %q", line)
				}
			}
			if bare(strings.Join(painted, "\n")) != strings.Join(plain, "\n") {
				t.Errorf("%d columns, %s: colours change the text:\n%q\n%q", columns, m.name, painted, plain)
			}
		}
	}
}

// bare returns text without styles.
func bare(text string) string {
	for {
		before, after, found := strings.Cut(text, "\x1b[")
		if !found {
			return text
		}
		_, after, _ = strings.Cut(after, "m")
		text = before + after
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), rewrite it with -update:\n%s", path, diff)
	}
}

// A matrix without axes has one cell without a name.
func TestFrameOfACellWithoutName(t *testing.T) {
	e := controller.Progress{N: 1, Of: 7, Task: plan.Task{}}
	if got := taskOf(e); got != "[1/7]" {
		t.Errorf("%q", got)
	}
	e.Task.Cell.Coordinates = []plan.Coordinate{{Axis: "mode", Value: []byte(`"x"`)}}
	if got := taskOf(e); got != "[1/7] mode=x" {
		t.Errorf("%q", got)
	}
}
