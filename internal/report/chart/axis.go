package chart

import (
	"math"
	"slices"
	"strconv"
)

// Kind is the scale of an axis.
type Kind int

// The kinds of axes.
const (
	Linear     Kind = iota
	Log             // positive values; others are drawn at the lower end
	Percentile      // quantiles from 0 to 1; every further nine takes the same space
	Ordinal         // positions 0, 1, 2 … of Axis.Names
)

// Axis describes one axis of a drawing.
type Axis struct {
	Label  string // the quantity with its unit
	Kind   Kind
	Zero   bool                 // Linear: includes zero, so that lengths are comparable
	Whole  bool                 // Linear: ticks are whole numbers
	Names  []string             // names of the positions (Ordinal) or of the ticks At
	At     []float64            // positions of the ticks; nil: at round numbers
	Format func(float64) string // of ticks; nil: plain numbers
	// Min and Max extend the limits, so that several drawings have the same scale. Both 0: only the values count.
	Min, Max float64
}

// tick is a position on an axis with its text.
type tick struct {
	at   float64 // 0 … 1
	text string
}

// scale is an axis with its limits, in transformed units.
type scale struct {
	axis     Axis
	from, to float64
}

// fit returns the scale of an axis for values.
func (a Axis) fit(values []float64) scale {
	s := scale{axis: a, from: math.Inf(1), to: math.Inf(-1)}
	if a.Kind == Ordinal {
		s.from, s.to = -0.5, float64(max(1, len(a.Names)))-0.5
		return s
	}
	if a.Min != 0 || a.Max != 0 {
		values = append([]float64{a.Min, a.Max}, values...)
	}
	values = append(slices.Clip(values), a.At...)
	if a.Kind == Linear && a.Zero {
		values = append([]float64{0}, values...)
	}
	for _, v := range values {
		if a.Kind == Log && v <= 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		t := a.transform(v)
		s.from, s.to = min(s.from, t), max(s.to, t)
	}
	return s.rounded()
}

// rounded extends the limits to whole ticks. An axis without values gets the limits 0 and 1.
func (s scale) rounded() scale {
	if math.IsInf(s.from, 0) {
		s.from, s.to = 0, 1
	}
	if s.axis.At != nil { // a small margin at both ends
		margin := max(0.05*(s.to-s.from), 1e-9)
		s.from, s.to = s.from-margin, s.to+margin
		return s
	}
	switch s.axis.Kind {
	case Log:
		s.from, s.to = lowerTick(s.from), -lowerTick(-s.to)
	case Linear:
		if s.axis.Zero || s.axis.Min == 0 && s.axis.Max == 0 {
			step := s.step()
			s.from, s.to = math.Floor(s.from/step+1e-9)*step, math.Ceil(s.to/step-1e-9)*step
		}
	}
	if s.to <= s.from {
		s.to = s.from + 1
	}
	return s
}

func (a Axis) transform(v float64) float64 {
	switch a.Kind {
	case Log:
		return math.Log10(v)
	case Percentile:
		return -math.Log10(1 - min(v, 1-1e-12))
	}
	return v
}

// place returns the position of a value on the axis, from 0 to 1.
func (s scale) place(v float64) float64 {
	if s.axis.Kind == Log && v <= 0 || math.IsNaN(v) {
		return 0
	}
	return max(0, min(1, (s.axis.transform(v)-s.from)/(s.to-s.from)))
}

// niceStep returns the smallest step of 1, 2 or 5 times a power of ten that divides a span into at most five parts.
func niceStep(span float64) float64 {
	if span <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(span/5)))
	for _, m := range []float64{1, 2, 5, 10} {
		if span/(m*power) <= 5+1e-9 {
			return m * power
		}
	}
	return 10 * power
}

func (s scale) step() float64 {
	step := niceStep(s.to - s.from)
	if s.axis.Whole {
		step = max(1, step)
	}
	return step
}

func (s scale) ticks() []tick {
	if s.axis.At != nil {
		var all []tick
		for i, at := range s.axis.At {
			all = append(all, tick{s.place(at), s.axis.Names[i]})
		}
		return all
	}
	switch s.axis.Kind {
	case Ordinal:
		var all []tick
		for i, name := range s.axis.Names {
			all = append(all, tick{s.place(float64(i)), name})
		}
		return all
	case Log:
		return s.decades()
	case Percentile:
		return s.nines()
	}
	var all []tick
	step := s.step()
	first := math.Ceil(s.from/step - 1e-9)
	for i := range maxTicks { // bounded: from 2⁵³ on, a float plus one is the same float
		at := (first + float64(i)) * step
		if at > s.to+step*1e-9 {
			break
		}
		all = append(all, tick{s.place(at), s.text(at)})
	}
	return all
}

// maxTicks is more than the number of ticks that niceStep and decades give on any axis.
const maxTicks = 20

// lowerTick returns the largest logarithm of 1, 2 or 5 times a power of ten that is not above x.
// The negative of lowerTick(-x) is the smallest such logarithm that is not below x.
func lowerTick(x float64) float64 {
	whole := math.Floor(x + 1e-9)
	best := whole
	for _, m := range []float64{2, 5} {
		t := whole + math.Log10(m)
		if t <= x+1e-9 {
			best = t
		}
	}
	return best
}

// decades returns ticks at powers of ten and, on a short axis, at 2 and 5 times them.
func (s scale) decades() []tick {
	var all []tick
	few := s.to-s.from <= 2.5
	each := math.Ceil((s.to - s.from) / 12)
	for i := range maxTicks {
		p := math.Floor(s.from) + float64(i)*each
		if p > s.to+1e-9 {
			break
		}
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, p)
			if t := math.Log10(v); t < s.from-1e-9 || t > s.to+1e-9 || m > 1 && !few {
				continue
			}
			all = append(all, tick{s.place(v), s.text(v)})
		}
	}
	return all
}

// nines returns ticks at 0 %, 50 %, 90 %, 99 %, 99.9 % and so on.
func (s scale) nines() []tick {
	all := []tick{{s.place(0), "0 %"}, {s.place(0.5), "50 %"}}
	for n := 1; float64(n) <= s.to+1e-9; n++ {
		decimals := max(0, n-2)
		q := 1 - math.Pow(10, -float64(n))
		all = append(all, tick{s.place(q), strconv.FormatFloat(100*q, 'f', decimals, 64) + " %"})
	}
	return all
}

func (s scale) text(v float64) string {
	v += 0 // avoids -0
	if s.axis.Format != nil {
		return s.axis.Format(v)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
