package runs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTimelineEventsAreStoredOnce proves that repeating a copy does not repeat its entries in the timeline, and that a
// truncated line is ignored.
func TestTimelineEventsAreStoredOnce(t *testing.T) {
	r, err := Create(t.TempDir(), someRun("timeline"))
	if err != nil {
		t.Fatal(err)
	}
	if all, err := r.Timeline(); len(all) != 0 || err != nil {
		t.Fatalf("%+v, %v; the run has no events", all, err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	start := TimelineEvent{At: at, Kind: TimelineStart, Task: "t-r1", Name: "abc", Attempt: 1,
		Agents: []string{"a1", "a2"}}
	failed := TimelineEvent{At: at.Add(time.Second), Kind: TimelineGiveUp, Task: "t-r1", Name: "abc",
		Text: "amqp://u:p4ss@h went away"}
	again := start
	again.At, again.Name, again.Attempt = at.Add(2*time.Second), "def", 2
	for _, e := range []TimelineEvent{start, failed, again, start, failed} {
		if err := r.AddEvent(e); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.OpenFile(filepath.Join(r.Dir(), timelineFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"at":"2026-`); err != nil {
		t.Fatal(err)
	}
	file.Close()
	if r, err = Open(filepath.Dir(r.Dir()), "timeline"); err != nil { // as a follower after the writer was killed
		t.Fatal(err)
	}
	last := TimelineEvent{At: at.Add(time.Hour), Kind: TimelineEnd, Text: "done"}
	for _, e := range []TimelineEvent{start, failed, again, last} {
		if err := r.AddEvent(e); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(r.Dir(), timelineFile))
	if lines := strings.Split(strings.TrimSpace(string(text)), "\n"); err != nil || len(lines) != 5 ||
		lines[3] != `{"at":"2026-` || !strings.HasSuffix(lines[4], `"text":"done"}`) {
		t.Errorf("%v, want four whole lines and the one that was cut off:\n%s", err, text)
	}
	if w := r.Warnings(); len(w) != 1 || !strings.Contains(w[0], "line 4 is truncated") {
		t.Errorf("warnings %q", w)
	}
	all, err := r.Timeline()
	if err != nil || len(all) != 4 || all[0].Agents[1] != "a2" || all[2].Attempt != 2 || all[3].Text != "done" {
		t.Fatalf("%+v, %v; want four", all, err)
	}
	if strings.Contains(all[1].Text, "p4ss") {
		t.Errorf("the secret is kept: %q", all[1].Text)
	}
}
