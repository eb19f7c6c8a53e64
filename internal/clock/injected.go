package clock

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// Variable is the environment variable by which a test gives a process a clock of its own, as if it ran on another
// host. It is a list, separated by commas, of what the clock is off by:
//
//	+250ms          from the start of the process on (also negative)
//	drift=50ppm     and by so much more in all time after that
//	step=100ms@5s   and by so much more from 5 s after the start on
//
// Now and ID then are those of that clock: the ID is another one for each process, so that nothing takes it for this
// host's. Waits go by it too. It is read once, when the process starts; a process with a text that cannot be read does
// not start. It is for tests alone.
const Variable = "LOCKSTEP_CLOCK"

// wrong is what the clock of this process is off by; nil: nothing, which is what it is outside of tests.
var wrong = injected(os.Getenv(Variable))

// fault is a clock that is off the host's by a known amount.
type fault struct {
	begin  int64 // of the process, by the host's clock
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

// at is what this clock reads at a time of the host's.
func (f *fault) at(host int64) int64 {
	now := host + f.offset + int64(f.drift*float64(host-f.begin))
	if host >= f.stepAt {
		now += f.step
	}
	return now
}

// when is the first time of the host's clock at which this one reads at or later, to the nanosecond.
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

// host is the time of the host's own clock, by which the operating system waits, at which Now() reads at.
func host(at int64) int64 {
	if wrong == nil {
		return at
	}
	return wrong.when(at)
}
