package record

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// hlogTag marks what is recorded but does not count; tools leave tagged lines out unless they are asked for.
const hlogTag = "warm-up"

// WriteHlog writes a series as an HdrHistogram interval log (format 1.3): a line for every window with samples, in
// order of time; times are seconds, maxima milliseconds, and the histograms' values nanoseconds. Lines of messages that
// were not due inside the measurement have the tag warm-up. Negative samples are in none of them.
func (m *Merged) WriteHlog(w io.Writer, s Series) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := bufio.NewWriter(w)
	if err := m.writeHlog(b, s); err != nil {
		return fmt.Errorf("write %v histograms: %w", s, err)
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write %v histograms: %w", s, err)
	}
	return nil
}

func (m *Merged) writeHlog(w io.Writer, s Series) error {
	var lines []*Window
	for _, x := range m.sorted() {
		if h := x.Hists[s]; h != nil && h.Count() > 0 {
			lines = append(lines, x)
		}
	}
	log := hdrhistogram.NewHistogramLogWriter(w)
	origin, zero := m.hlogTimes(lines)
	log.SetBaseTime(zero)
	for _, header := range []func() error{
		func() error { return log.OutputComment(fmt.Sprintf("[Lockstep series %v, values in nanoseconds]", s)) },
		log.OutputLogFormatVersion,
		func() error { return log.OutputBaseTime(zero) },
		func() error { return log.OutputStartTime(zero) },
		log.OutputLegend,
	} {
		if err := header(); err != nil {
			return err
		}
	}
	for _, x := range lines {
		if err := log.OutputIntervalPackedHistogram(hlogLine(x, s, origin)); err != nil {
			return err
		}
	}
	return nil
}

// hlogTimes returns T0 and the time of the log's zero, both in milliseconds since 1970. Zero is a whole second, as the
// header knows no fractions, and not after the first line, as readers know no negative times. Without a wall clock zero
// is 0.
func (m *Merged) hlogTimes(lines []*Window) (origin, zero int64) {
	first := int64(0)
	if len(lines) > 0 {
		first = min(lines[0].Start/int64(time.Millisecond), 0)
	}
	if m.epoch.IsZero() {
		return -first, 0
	}
	origin = m.epoch.UnixMilli()
	zero = max(origin+first, 0)
	return origin, zero - zero%1000
}

func hlogLine(x *Window, s Series, origin int64) *hdrhistogram.PackedHistogram {
	h := x.Hists[s]
	h.settle()
	p := h.settled.Clone()
	start := origin + x.Start/int64(time.Millisecond)
	p.SetStartTimeMs(start)
	p.SetEndTimeMs(start + x.Length/int64(time.Millisecond))
	if !x.Measured {
		p.SetTag(hlogTag)
	}
	return p
}
