// Package main compares Lockstep with the load generators of the brokers' own projects, with the same broker, message
// size and confirms. The tools alternate for several rounds, so that a drift of the machine affects both.
//
//	go run ./test/lab run kafka kafka-tools -- go run ./test/comparison kafka
//	go run ./test/lab run rabbitmq perftest -- go run ./test/comparison rabbitmq
//	go run ./test/lab run nats natsbench -- go run ./test/comparison nats
//
// It prints rates, the ratio of each pair, the client's CPU time per message, and both command lines.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// sizes are the message sizes in bytes.
var sizes = []int{100, 1024}

// settings are the options of the command line.
type settings struct {
	pairs   int
	warmup  time.Duration // of each tool, not counted
	measure time.Duration
	ctl     string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var s settings
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.IntVar(&s.pairs, "pairs", 6, "compare `number` pairs")
	flags.DurationVar(&s.warmup, "warmup", 8*time.Second, "omit this first `duration` of each side")
	flags.DurationVar(&s.measure, "measure", 8*time.Second, "count this `duration` of each side")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("name what to compare with: kafka, rabbitmq, nats")
	}
	dir, err := os.MkdirTemp("", "lockstep-peers-*")
	if err != nil {
		return fmt.Errorf("make a folder for records: %w", err)
	}
	defer os.RemoveAll(dir)
	if s.ctl, err = buildCtl(ctx, dir); err != nil {
		return err
	}
	for _, name := range flags.Args() {
		peer, known := peers[name]
		if !known {
			return fmt.Errorf("unknown peer %q: give kafka, rabbitmq or nats", name)
		}
		contest, err := peer()
		if err != nil {
			return err
		}
		if err := compare(ctx, out, s, dir, contest); err != nil {
			return fmt.Errorf("compare with %s: %w", contest.tool, err)
		}
	}
	return nil
}

// sample is one measurement of one tool.
type sample struct {
	rate float64       // confirmed messages per second
	cpu  time.Duration // of the client, per message
}

func compare(ctx context.Context, out io.Writer, s settings, dir string, c contest) error {
	var rows, commands []string
	for _, size := range sizes {
		var ours, theirs []sample
		for i := range s.pairs {
			turns := []func() error{
				func() error {
					x, line, err := lockstep(ctx, s, dir, c, size)
					ours, commands = append(ours, x), appendNew(commands, line)
					return err
				},
				func() error {
					x, line, err := c.theirs(ctx, s, size)
					theirs, commands = append(theirs, x), appendNew(commands, line)
					return err
				},
			}
			if i%2 == 1 {
				slices.Reverse(turns)
			}
			for _, turn := range turns {
				if err := turn(); err != nil {
					return err
				}
			}
		}
		rows = append(rows, row(size, ours, theirs))
	}
	fmt.Fprintf(out, "\nLockstep against %s, %d pairs each, medians (quartiles of the ratio)\n\n", c.tool, s.pairs)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "body\tLockstep msg/s\tpeer msg/s\tratio\tLockstep CPU µs/msg\tpeer CPU µs/msg")
	for _, r := range rows {
		fmt.Fprintln(w, r)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n", strings.Join(commands, "\n"))
	return nil
}

func row(size int, ours, theirs []sample) string {
	var ratio []float64
	for i := range ours {
		ratio = append(ratio, ours[i].rate/theirs[i].rate)
	}
	rate := func(s sample) float64 { return s.rate }
	cpu := func(s sample) float64 { return float64(s.cpu.Nanoseconds()) / 1e3 }
	return fmt.Sprintf("%d B\t%.0f\t%.0f\t%.2f (%.2f–%.2f)\t%.2f\t%.2f", size, middle(ours, rate), middle(theirs, rate),
		quantile(ratio, 0.5), quantile(ratio, 0.25), quantile(ratio, 0.75), middle(ours, cpu), middle(theirs, cpu))
}

func middle(all []sample, of func(sample) float64) float64 {
	var xs []float64
	for _, s := range all {
		xs = append(xs, of(s))
	}
	return quantile(xs, 0.5)
}

// quantile interpolates linearly between the two nearest values.
func quantile(of []float64, q float64) float64 {
	sorted := slices.SortedFunc(slices.Values(of), cmp.Compare[float64])
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

func appendNew(lines []string, line string) []string {
	if line == "" || slices.Contains(lines, line) {
		return lines
	}
	return append(lines, line)
}
