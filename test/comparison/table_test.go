package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// The interval is between two order statistics. For 8 pairs it is their range, with a confidence of 99.2 %: that of the
// second and seventh is 93 %.
func TestInterval(t *testing.T) {
	eight := []float64{1.3, 0.9, 1.1, 1.0, 1.2, 0.8, 1.4, 1.6}
	twelve := append(slices.Clone(eight), 0.5, 2, 1.14, 1.05)
	for _, test := range []struct {
		ratios []float64
		want   string
	}{
		{eight, "1.15 (0.80–1.60)"},
		{twelve, "1.12 (0.90–1.40)"}, // the third and tenth: 96.1 %
		{eight[:5], "1.10"},          // 5 pairs have no interval of 95 %
	} {
		if got := withInterval(test.ratios); got != test.want {
			t.Errorf("%v: %s, want %s", test.ratios, got, test.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	below := []float64{0.8, 0.81, 0.82, 0.83, 0.84, 0.85, 0.86, 0.87}
	around := []float64{0.8, 0.81, 0.82, 0.83, 0.84, 0.85, 0.86, 1.01}
	for _, test := range []struct {
		ratios []float64
		wanted float64
		want   string
	}{
		{[]float64{1, 1, 1, 1, 1, 1, 1, 1}, 1, "met"},
		{below, 1, notMet},
		{below, 0.9, notMet},
		{below, 0.83, "met"},
		{around, 1, "met"}, // the interval contains it
		{around[:5], 1, "open: needs 6 pairs"},
		{[]float64{1.1}, 1, "met"},
	} {
		if got := verdict(test.ratios, test.wanted); got != test.want {
			t.Errorf("%v, wanted %v: %s, want %s", test.ratios, test.wanted, got, test.want)
		}
	}
}

// A ratio is Lockstep's value divided by the tool's, per pair. CPU time is per message.
func TestRow(t *testing.T) {
	us := time.Microsecond
	ours := []sample{{100, 2 * us, 4 * us}, {300, 4 * us, 8 * us}, {200, 3 * us, 6 * us}}
	theirs := []sample{{200, 8 * us, 8 * us}, {100, 8 * us, 8 * us}, {200, 8 * us, 8 * us}}
	got := row(contest{title: "RabbitMQ, PerfTest", wanted: 1}, 100, ours, theirs)
	want := "| RabbitMQ, PerfTest | 100 B | 200 | 200 | 1.00 | ≥ 1.0 | met | 3.00, 8.00 (0.38) | 6.00, 8.00 (0.75) |"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	section{}.print(&out, "Publishing", settings{})
	if out.Len() > 0 {
		t.Errorf("a section without rows prints %q", out.String())
	}
	section{rows: []string{"| a |"}, settings: []string{"one", "two"}}.print(&out, "Publishing", settings{pairs: 8})
	lines := strings.Split(out.String(), "\n")
	if at := slices.Index(lines, "| a |"); at < 2 || !strings.HasPrefix(lines[at-1], "|---|") ||
		strings.Count(lines[at-1], "|") != strings.Count(lines[at-2], "|") {
		t.Errorf("no table:\n%s", out.String())
	}
	if !strings.HasSuffix(out.String(), "```\none\n\ntwo\n```\n") {
		t.Errorf("the settings are missing:\n%s", out.String())
	}
}

func TestChoose(t *testing.T) {
	for args, want := range map[string]string{
		"":                          "rabbitmq-publish kafka-linger kafka-default kafka-go nats-publish rabbitmq-consume kafka-consume nats-consume",
		"nats":                      "nats-publish nats-consume",
		"kafka-go kafka-consume":    "kafka-go kafka-consume",
		"nats-consume nats":         "nats-consume nats-publish",
		"rabbitmq-publish kafka-go": "rabbitmq-publish kafka-go",
	} {
		chosen, err := choose(strings.Fields(args))
		if err != nil {
			t.Errorf("%q: %v", args, err)
		}
		var got []string
		for _, c := range chosen {
			got = append(got, c.name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q chooses %v, want %s", args, got, want)
		}
	}
	if _, err := choose([]string{"pulsar"}); err == nil || !strings.Contains(err.Error(), "kafka-linger") {
		t.Errorf("an unknown contest: %v", err)
	}
}

// Both sides alternate in their order. A contest with a side that fails has no row, and its error names the pair.
func TestPairs(t *testing.T) {
	var order []string
	closed := 0
	fails := 0 // run of the tool that fails; 0: none
	c := contest{name: "kafka-linger", wanted: 1, open: func(context.Context, settings, int) (sides, error) {
		runs := 0
		return sides{
			ours: func(context.Context) (sample, error) { order = append(order, "ours"); return sample{100, 1, 1}, nil },
			theirs: func(context.Context) (sample, error) {
				order = append(order, "theirs")
				if runs++; runs == fails {
					return sample{}, errors.New("it ended")
				}
				return sample{100, 1, 1}, nil
			},
			close: func() error { closed++; return nil },
		}, nil
	}}
	var progress strings.Builder
	var to section
	if err := compare(t.Context(), &progress, settings{pairs: 2}, c, 100, &to); err != nil {
		t.Fatal(err)
	}
	if want := []string{"ours", "theirs", "theirs", "ours"}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
	if len(to.rows) != 1 || closed != 1 || strings.Count(progress.String(), "\n") != 2 {
		t.Errorf("rows %v, closed %d times, progress %q", to.rows, closed, progress.String())
	}
	fails = 2
	err := compare(t.Context(), &progress, settings{pairs: 2}, c, 100, &to)
	if err == nil || err.Error() != "pair 2: it ended" || len(to.rows) != 1 || closed != 2 {
		t.Errorf("a tool that fails: error %v, rows %v, closed %d times", err, to.rows, closed)
	}
}

// A ratio that is not met is an error, except in a known row. The row is printed nevertheless.
func TestNotMet(t *testing.T) {
	for size, fails := range map[int]bool{100: false, 1024: true} {
		c := contest{name: "kafka-consume", wanted: 0.9, open: func(context.Context, settings, int) (sides, error) {
			return sides{
				ours:   func(context.Context) (sample, error) { return sample{50, 1, 1}, nil },
				theirs: func(context.Context) (sample, error) { return sample{100, 1, 1}, nil },
				close:  func() error { return nil },
			}, nil
		}}
		var to section
		if err := compare(t.Context(), io.Discard, settings{pairs: 6}, c, size, &to); (err != nil) != fails ||
			len(to.rows) != 1 {
			t.Errorf("%d B: error %v, rows %v", size, err, to.rows)
		}
	}
	var out strings.Builder
	printKnown(&out)
	for name, reason := range known {
		name, _, _ := strings.Cut(name, ",")
		if !strings.Contains(out.String(), "- "+name) || reason == "" ||
			!slices.ContainsFunc(contests, func(c contest) bool { return c.name == name }) {
			t.Errorf("the known row %q, with the reason %q, is in\n%s", name, reason, out.String())
		}
	}
}
