// Package main compares Lockstep with the load generators of the brokers' own projects, with the same broker, message
// size and acknowledgements. Both sides alternate, so that a drift of the machine affects both.
//
//	go run ./test/lab run kafka nats rabbitmq kafka-tools natsbench perftest -- go run ./test/comparison
//	go run ./test/lab run kafka kafka-tools -- go run ./test/comparison kafka-linger kafka-consume
//
// Arguments are names of contests, or of brokers. It prints a table for publishing and a table for consuming, in
// Markdown, and the settings of both sides. After each pair, it prints the rates to standard error. It fails if a ratio
// is not met, unless the row is a known one.
package main

import (
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
	"time"
)

// sizes are the message sizes in bytes.
var sizes = []int{100, 1024}

// settings are the options of the command line.
type settings struct {
	pairs   int
	warmup  time.Duration // of each side, not counted
	measure time.Duration
	dir     string // for files of both sides
	ctl     string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "comparison:", err)
		os.Exit(1)
	}
}

// run measures the chosen contests. One that fails does not end the others.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var s settings
	flags := flag.NewFlagSet("comparison", flag.ContinueOnError)
	flags.IntVar(&s.pairs, "pairs", 8, "compare `number` pairs")
	flags.DurationVar(&s.warmup, "warmup", 3*time.Second, "omit this first `duration` of each side")
	flags.DurationVar(&s.measure, "measure", 3*time.Second, "count this `duration` of each side")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(flags.Args())
	if err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "lockstep-comparison-*"); err != nil {
		return fmt.Errorf("make a folder for records: %w", err)
	}
	defer os.RemoveAll(s.dir)
	if s.ctl, err = buildCtl(ctx, s.dir); err != nil {
		return err
	}
	var publishing, consuming section
	var failures []error
	for _, c := range chosen {
		to := &publishing
		if c.consumes {
			to = &consuming
		}
		for _, size := range sizes {
			if err := compare(ctx, progress, s, c, size, to); err != nil {
				failures = append(failures, fmt.Errorf("%s with %d B: %w", c.name, size, err))
			}
		}
	}
	publishing.print(out, "Publishing", s)
	consuming.print(out, "Consuming", s)
	printKnown(out)
	return errors.Join(failures...)
}

// choose finds contests by their names, or by those of their brokers. Without names, it returns all.
func choose(names []string) ([]contest, error) {
	if len(names) == 0 {
		return contests, nil
	}
	var chosen []contest
	for _, name := range names {
		known := false
		for _, c := range contests {
			if broker, _, _ := strings.Cut(c.name, "-"); name != c.name && name != broker {
				continue
			}
			known = true
			if !slices.ContainsFunc(chosen, func(other contest) bool { return other.name == c.name }) {
				chosen = append(chosen, c)
			}
		}
		if !known {
			var all []string
			for _, c := range contests {
				all = append(all, c.name)
			}
			return nil, fmt.Errorf("unknown contest %q: give %s, or a broker", name, strings.Join(all, ", "))
		}
	}
	return chosen, nil
}

// compare measures the pairs of one contest with one message size, and adds a row.
func compare(ctx context.Context, progress io.Writer, s settings, c contest, size int, to *section) (err error) {
	both, err := c.open(ctx, s, size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, both.close()) }()
	var ours, theirs []sample
	for i := range s.pairs {
		turns := []func() error{
			func() error {
				x, err := both.ours(ctx)
				ours = append(ours, x)
				return err
			},
			func() error {
				x, err := both.theirs(ctx)
				theirs = append(theirs, x)
				return err
			},
		}
		if i%2 == 1 {
			slices.Reverse(turns)
		}
		for _, turn := range turns {
			if err := turn(); err != nil {
				return fmt.Errorf("pair %d: %w", i+1, err)
			}
		}
		fmt.Fprintf(progress, "%s, %d B, pair %d of %d: Lockstep %.0f msg/s, the tool %.0f msg/s\n", c.name, size, i+1,
			s.pairs, ours[i].rate, theirs[i].rate)
	}
	to.rows = append(to.rows, row(c, size, ours, theirs))
	if size == sizes[0] {
		to.settings = append(to.settings, both.settings)
	}
	ratio := ratios(ours, theirs, rateOf)
	if _, is := known[rowName(c, size)]; !is && verdict(ratio, c.wanted) == notMet {
		return fmt.Errorf("the ratio %s is below %.1f: find the cause, and add it to the known rows", withInterval(ratio),
			c.wanted)
	}
	return nil
}
