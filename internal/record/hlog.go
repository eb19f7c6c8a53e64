package record

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// hlogTag marks the messages that are not measured. Tools ignore tagged lines by default.
const hlogTag = "warm-up"

// WriteHlog writes a series as an HdrHistogram interval log (format 1.3), one line per window with samples, in order of
// time. Times are seconds, maxima milliseconds, and values of the histograms nanoseconds. Lines of messages outside the
// measurement have the tag warm-up. Negative samples are not included.
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

// hlogTimes returns T0 and the base time of the log, in ms since 1970. The base is a whole second, because the header
// has no fractions. It is not after the first line, because readers do not support negative times. Without a wall clock
// it is 0.
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
