package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Tools of the JVM do not run with the lab's options, which disable the C2 compiler.
func TestToolsRunInAWholeVirtualMachine(t *testing.T) {
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skip("there is no java")
	}
	cmd := exec.CommandContext(t.Context(), java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-XX:+PrintFlagsFinal", "-version")
	cmd.Env = append(os.Environ(), javaOptions)
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 3 && f[2] == "=" {
			flags[f[1]] = f[3]
		}
	}
	for flag, want := range map[string]string{"TieredStopAtLevel": "4", "UseSerialGC": "false", "UseG1GC": "true",
		"MaxHeapSize": "536870912"} {
		if flags[flag] != want {
			t.Errorf("%s is %q, want %s", flag, flags[flag], want)
		}
	}
}

// The files are outputs of the tools. Their summaries at the end contain no further rate, except that of nats bench,
// which has no other.
func TestOutputsOfTools(t *testing.T) {
	for file, test := range map[string]struct {
		pattern *regexp.Regexp
		want    []float64
	}{
		"perftest-publish.txt": {perfTestConfirmed, []float64{1428, 1940, 1862, 4673}},
		"perftest-consume.txt": {perfTestReceived, []float64{5397, 7069, 17318, 13090}},
		"kafka-produce.txt": {kafkaProduced, []float64{0.3, 8472.4, 9277.6, 11416, 6046.7, 10338.3, 4203.7, 5460.2, 24026.9, 7678.7,
			14504, 54890.3, 11680.3, 53152.1, 90267.5, 43301.4, 54772.1, 50646, 112046, 41387.7, 62837.2, 142824.4}},
		"kafka-consume.txt": {kafkaConsumed, []float64{0.3117, 114696, 740699.3144}},
		"nats-publish.txt":  {natsBenched, []float64{112910}},
		"nats-consume.txt":  {natsBenched, []float64{132318}},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		var got []float64
		for line := range strings.Lines(string(text)) {
			if rate, ok := rateIn(strings.TrimSuffix(line, "\n"), test.pattern); ok {
				got = append(got, rate)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: rates %v, want %v", file, got, test.want)
		}
	}
}

// Rates count for the time since the previous report. The first is that of the first second.
func TestMeter(t *testing.T) {
	start := time.Now()
	m := meter{warmup: 2 * time.Second, measure: 3 * time.Second}
	for i, report := range []struct {
		after float64 // seconds
		rate  float64
		cpu   time.Duration
		over  bool
	}{
		{1, 10, 5 * time.Second, false},
		{2, 20, 6 * time.Second, false}, // the end of the warm-up, after 30 messages
		{3, 100, 7 * time.Second, false},
		{4.5, 200, 8 * time.Second, false},
		{5, 200, 8 * time.Second, true}, // 500 messages in 3 s, with 2 s of CPU
	} {
		at := start.Add(time.Duration(report.after * float64(time.Second)))
		if _, ok := m.sample(); ok != (i > 2) {
			t.Errorf("a measurement before report %d: %v", i, ok)
		}
		if over := m.add(at, report.rate, report.cpu); over != report.over {
			t.Errorf("after report %d, the measurement is over: %v", i, over)
		}
	}
	got, _ := m.sample()
	if want := (sample{rate: 500.0 / 3, cpu: 4 * time.Millisecond}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if m.last.messages != 530 {
		t.Errorf("%v messages in total, want 530", m.last.messages)
	}
}

// tool returns the command of a tool that is a shell script.
func tool(script string) []string { return []string{"sh", "-c", script} }

var quick = settings{warmup: time.Second, measure: 50 * time.Millisecond}

const reports = "for i in 1 2 3 4 5; do echo 'id: 1, confirmed: 1,000 msg/s'; sleep 0.05; done"

// A tool is ended when it has been measured, or ends by itself afterwards.
func TestWatchedTools(t *testing.T) {
	for name, script := range map[string]string{"endless": "while :; do " + reports + "; done",
		"finite": strings.ReplaceAll(reports, "0.05", "0.02")} {
		x, err := watch(t.Context(), quick, perfTestConfirmed, tool(script))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if x.rate < 999 || x.rate > 1001 || x.whole <= 0 {
			t.Errorf("%s: %+v, want 1000 msg/s and the CPU time of the process", name, x)
		}
	}
}

// An error contains the output of the tool.
func TestToolsThatFail(t *testing.T) {
	for _, test := range []struct{ script, want, detail string }{
		{"echo 'no such broker' >&2; exit 3", "exit status 3", "no such broker"},
		{reports + "; echo 'connection lost'; exit 1", "exit status 1", "connection lost"},
		{"echo 'nothing to do'", "reported no rate after its warm-up", "nothing to do"},
		{"echo 'id: 1, confirmed: 1,000 msg/s'", "reported no rate after its warm-up", ""},
	} {
		slow := settings{warmup: time.Second, measure: time.Hour}
		_, err := watch(t.Context(), slow, perfTestConfirmed, tool(test.script))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.detail) {
			t.Errorf("%s: error %v, want %q with %q", test.script, err, test.want, test.detail)
		}
	}
	for _, test := range []struct{ script, want, detail string }{
		{"echo 'no such stream' >&2; exit 1", "exit status 1", "no such stream"},
		{"echo done", "reported no rate", "done"},
	} {
		_, err := whole(t.Context(), natsBenched, 10, tool(test.script))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.detail) {
			t.Errorf("%s: error %v, want %q with %q", test.script, err, test.want, test.detail)
		}
	}
	if _, err := watch(t.Context(), quick, perfTestConfirmed, []string{"/no/such/tool"}); err == nil {
		t.Error("a tool that does not exist has a result")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := watch(ctx, quick, perfTestConfirmed, tool("echo started; exec sleep 600"))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "started") {
		t.Errorf("a tool that hangs: error %v", err)
	}
}
