package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/stats"
)

// confidence is that of the intervals.
const confidence = 0.95

// sample is one measurement of one side.
type sample struct {
	rate  float64       // messages per second
	cpu   time.Duration // of the client process per message, in the measured time
	whole time.Duration // of the client process per message, over its whole life
}

// known are the rows whose ratio may be below the wanted one, with the reasons.
var known = map[string]string{
	"kafka-go, 100 B":      oneBatch,
	"kafka-go, 1024 B":     oneBatch,
	"kafka-consume, 100 B": "Lockstep verifies and counts each message, and the tool only counts",
}

const oneBatch = "kafka-go sends one batch at a time, and the tool has up to five requests in flight"

func rowName(c contest, size int) string { return fmt.Sprintf("%s, %d B", c.name, size) }

func printKnown(out io.Writer) {
	fmt.Fprint(out, "\nRows that may be below the wanted ratio:\n\n")
	for _, name := range slices.Sorted(maps.Keys(known)) {
		fmt.Fprintf(out, "- %s: %s\n", name, known[name])
	}
}

// section is a table, with the settings of its contests.
type section struct {
	rows     []string
	settings []string
}

func (t section) print(out io.Writer, title string, s settings) {
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s, medians of %d interleaved pairs (with the 95 %% interval of the ratio), warm-up %v, measured time %v:\n\n",
		title, s.pairs, s.warmup, s.measure)
	fmt.Fprintln(out, "| contest | body | Lockstep msg/s | tool msg/s | ratio | wanted | verdict | CPU µs/msg: Lockstep, tool (ratio) | with start and warm-up |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|")
	for _, r := range t.rows {
		fmt.Fprintln(out, r)
	}
	fmt.Fprintf(out, "\nSettings, with 100 B:\n\n```\n")
	for i, text := range t.settings {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, text)
	}
	fmt.Fprintln(out, "```")
}

// row returns the row of one contest with one message size. A ratio is Lockstep's value divided by the tool's.
func row(c contest, size int, ours, theirs []sample) string {
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	cpu := func(s sample) float64 { return micros(s.cpu) }
	whole := func(s sample) float64 { return micros(s.whole) }
	ratio := ratios(ours, theirs, rateOf)
	return fmt.Sprintf("| %s | %d B | %.0f | %.0f | %s | ≥ %.1f | %s | %s | %s |", c.title, size, median(ours, rateOf),
		median(theirs, rateOf), withInterval(ratio), c.wanted, verdict(ratio, c.wanted), sideBySide(ours, theirs, cpu),
		sideBySide(ours, theirs, whole))
}

// withInterval prints the median with its 95 % interval, if there are enough values for one.
func withInterval(xs []float64) string {
	i := stats.MedianInterval(xs, confidence)
	if !i.Holds(confidence) {
		return fmt.Sprintf("%.2f", stats.Median(xs))
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", stats.Median(xs), i.Low, i.High)
}

// verdict reports whether the median reaches the ratio that is wanted, or its interval contains that.
func verdict(ratios []float64, wanted float64) string {
	i := stats.MedianInterval(ratios, confidence)
	switch {
	case stats.Median(ratios) >= wanted:
		return "met"
	case !i.Holds(confidence):
		return fmt.Sprintf("open: needs %d pairs", stats.MinForMedian(confidence))
	case i.Contains(wanted):
		return "met"
	}
	return notMet
}

const notMet = "not met"

func rateOf(s sample) float64 { return s.rate }

func sideBySide(ours, theirs []sample, of func(sample) float64) string {
	return fmt.Sprintf("%.2f, %.2f (%.2f)", median(ours, of), median(theirs, of), stats.Median(ratios(ours, theirs, of)))
}

func median(all []sample, of func(sample) float64) float64 {
	var xs []float64
	for _, s := range all {
		xs = append(xs, of(s))
	}
	return stats.Median(xs)
}

// ratios returns the ratio of each pair.
func ratios(ours, theirs []sample, of func(sample) float64) []float64 {
	var xs []float64
	for i := range ours {
		xs = append(xs, of(ours[i])/of(theirs[i]))
	}
	return xs
}
