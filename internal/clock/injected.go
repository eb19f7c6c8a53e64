package clock

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// Variable is the environment variable with which a test gives a process a wrong clock, as on another host. It is a
// comma-separated list of errors:
//
//	+250ms          from the start of the process (may be negative)
//	drift=50ppm     growing error from the start of the process
//	step=100ms@5s   additional error from 5 s after the start
//
// Now, ID and all waits then use that clock. The ID differs per process, so that no process treats it as the host's
// clock. The variable is read once, when the process starts. An invalid value causes a panic at the start. It is for
// tests only.
const Variable = "LOCKSTEP_CLOCK"

// wrong is the error of this process's clock; nil outside of tests.
var wrong = injected(os.Getenv(Variable))

// fault is a known error of a clock relative to the host's.
type fault struct {
	begin  int64 // start of the process, by the host's clock
	offset int64
	drift  float64 // ns per ns
	step   int64
	stepAt int64 // by the host's clock
	name   string
}

func injected(text string) *fault {
	if text == "" {
		return nil
	}
	f, err := parseFault(text, truth())
	if err != nil {
		panic(fmt.Sprintf("%s=%s: %v; want a list like +250ms,drift=50ppm,step=100ms@5s", Variable, text, err))
	}
	return f
}

func parseFault(text string, begin int64) (*fault, error) {
	f := &fault{begin: begin, stepAt: math.MaxInt64, name: fmt.Sprintf("injected-%d-%d", os.Getpid(), begin)}
	for _, part := range strings.Split(text, ",") {
		var err error
		switch name, value, _ := strings.Cut(part, "="); name {
		case "drift":
			var ppm float64
			ppm, err = strconv.ParseFloat(strings.TrimSuffix(value, "ppm"), 64)
			f.drift = ppm / 1e6
		case "step":
			by, at, _ := strings.Cut(value, "@")
			var step, when time.Duration
			if step, err = time.ParseDuration(by); err == nil {
				when, err = time.ParseDuration(at)
			}
			f.step, f.stepAt = int64(step), begin+int64(when)
		default:
			var offset time.Duration
			offset, err = time.ParseDuration(part)
			f.offset = int64(offset)
		}
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", part, err)
		}
	}
	return f, nil
}

// at returns the reading of this clock at a time of the host's clock.
func (f *fault) at(host int64) int64 {
	now := host + f.offset + int64(f.drift*float64(host-f.begin))
	if host >= f.stepAt {
		now += f.step
	}
	return now
}

// when returns the earliest time of the host's clock at which this clock reads at or later, to the nanosecond.
func (f *fault) when(at int64) int64 {
	before := f.undrift(at - f.offset)
	if before < f.stepAt {
		return before
	}
	return max(f.undrift(at-f.offset-f.step), f.stepAt)
}

func (f *fault) undrift(at int64) int64 {
	return f.begin + int64(math.Ceil(float64(at-f.begin)/(1+f.drift)))
}

// host returns the time of the host's own clock at which Now() returns at. The operating system waits by that clock.
func host(at int64) int64 {
	if wrong == nil {
		return at
	}
	return wrong.when(at)
}
