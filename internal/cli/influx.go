package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/metrics"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/sink"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// influxFlags select the InfluxDB for the points of a run. The first source that names one is used alone: --no-influx,
// --influx, the matrix, the environment. Settings of two sources are never combined, so that no token goes to a server
// that it is not for.
type influxFlags struct {
	file   string
	none   bool
	needed bool // the command requires an InfluxDB and has no --no-influx
}

// add adds --influx and --no-influx. instead names the default InfluxDB in the help.
func (f *influxFlags) add(c *cobra.Command, instead string) {
	c.Flags().StringVar(&f.file, "influx", "", "write points to the InfluxDB of this JSON `file` (default: that of "+
		instead+")")
	c.Flags().BoolVar(&f.none, "no-influx", false, "write no points to InfluxDB")
}

// open opens a sink for a run, or returns nil if no InfluxDB is named. matrix is the InfluxDB of the matrix, or nil.
// Invalid settings are an error before anything is measured. InfluxDB is not contacted.
func (f *influxFlags) open(matrix *plan.Influx, stderr io.Writer, log *slog.Logger) (*sink.Sink, error) {
	to, from, err := f.choose(matrix)
	if err != nil {
		return nil, exit{ExitBadMatrix, err}
	}
	if to == nil {
		if from != "" {
			fmt.Fprintln(stderr, from)
		}
		return nil, nil
	}
	target, err := f.resolve(*to, from, drivers.FullAccess())
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(stderr, "writing points to InfluxDB at %v (from %s)\n", target, from)
	return sink.Open(target, sink.Tuning{}, version(), log), nil
}

// daemon returns a function that opens a sink for each run that a controller copies, and the counters of all sinks. It
// uses only the InfluxDB of the controller's file or environment. The one of a matrix is never used: its author could
// have the controller's secrets sent there. References in the file are read through access.
func (f *influxFlags) daemon(dir string, access drivers.Access, log *slog.Logger) (open func() *sink.Sink,
	count metrics.Points, err error) {
	if err := f.check(); err != nil {
		return nil, nil, err
	}
	to, from, err := f.choose(nil)
	switch {
	case err != nil:
		return nil, nil, exit{ExitBadMatrix, err}
	case to == nil && from != "":
		log.Warn(from)
		return nil, nil, nil
	case to == nil:
		return nil, nil, nil
	case dir == "" && f.file != "":
		return nil, nil, usageErrorf("--influx without --dir: points are made from the copies of runs; pass --dir")
	case dir == "":
		log.Warn("no points are written to the InfluxDB of the environment: this needs --dir, because points are made from the copies of runs")
		return nil, nil, nil
	}
	if f.file == "" {
		access = drivers.FullAccess() // the operator sets these variables, and no file refers to them
	}
	target, err := f.resolve(*to, from, access)
	if err != nil {
		return nil, nil, err
	}
	log.Info("writing points of all runs to InfluxDB", "to", target.String(), "by", from)
	counters := &sink.Counters{}
	return func() *sink.Sink {
		s := sink.Open(target, sink.Tuning{}, version(), log)
		s.Count(counters)
		return s
	}, counters, nil
}

// resolve resolves the references in the settings of an InfluxDB through access. from names their source in errors.
func (f *influxFlags) resolve(to plan.Influx, from string, access drivers.Access) (sink.Target, error) {
	target, err := sink.Resolve(to, access)
	switch {
	case err == nil:
		return target, nil
	case f.needed:
		return target, usageErrorf("%s: %w", from, err)
	}
	return target, usageErrorf("%s: %w; correct it, or pass --no-influx", from, err)
}

// choose returns the settings of the InfluxDB and their source. With nil settings, a from that is not empty is a
// warning to print.
func (f *influxFlags) choose(matrix *plan.Influx) (to *plan.Influx, from string, err error) {
	switch {
	case f.none:
		return nil, "", nil
	case f.file != "":
		text, err := os.ReadFile(f.file)
		if err != nil {
			return nil, "", fmt.Errorf("read InfluxDB settings: %w", err)
		}
		i, err := sink.ReadFile(text)
		if err != nil {
			return nil, "", fmt.Errorf("read InfluxDB settings from %s: %w", f.file, err)
		}
		return &i, f.file, nil
	case matrix != nil:
		return matrix, "the matrix", nil
	}
	i, missing := sink.FromEnvironment(os.LookupEnv)
	switch {
	case i != nil:
		return i, "the environment", nil
	case missing != "":
		return nil, "no points are written to the InfluxDB of the environment: " + missing + " is not set", nil
	}
	return nil, "", nil
}

// check returns an error for flags that exclude each other.
func (f *influxFlags) check() error {
	if f.none && f.file != "" {
		return usageErrorf("both --influx and --no-influx given; pass one of them")
	}
	return nil
}
