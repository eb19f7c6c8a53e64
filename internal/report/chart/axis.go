package chart

import (
	"math"
	"slices"
	"strconv"
)

// Kind is how an axis places its values.
type Kind int

// The kinds of axes.
const (
	Linear     Kind = iota
	Log             // values above zero; others are drawn at the lower end
	Percentile      // of shares 0 … 1, by how few samples are above: every nine has the same room
	Ordinal         // positions 0, 1, 2 … of Axis.Names
)

// Axis describes one axis of a drawing.
type Axis struct {
	Label  string // what it is, with its unit
	Kind   Kind
	Zero   bool                 // Linear: the axis has zero on it, so that lengths compare
	Whole  bool                 // Linear: there is nothing between whole numbers
	Names  []string             // Ordinal, or of At
	At     []float64            // where the ticks are; nil: where numbers are round
	Format func(float64) string // of ticks; nil: plain numbers
	// Min and Most are limits besides those of what is drawn, so that drawings side by side have one scale; 0, 0: none.
	Min, Max float64
}

// tick is a line of the grid; a minor one has no text.
type tick struct {
	at   float64 // 0 … 1
	text string
}

// scale is an axis that knows its limits, in transformed units.
type scale struct {
	Axis
	from, to float64
}

// fit makes the scale of an axis for these values.
func (a Axis) fit(values []float64) scale {
	s := scale{Axis: a, from: math.Inf(1), to: math.Inf(-1)}
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

// rounded widens the limits to whole ticks, and gives an empty axis some.
func (s scale) rounded() scale {
	if math.IsInf(s.from, 0) {
		s.from, s.to = 0, 1
	}
	if s.At != nil { // a little room at both ends
		room := max(0.05*(s.to-s.from), 1e-9)
		s.from, s.to = s.from-room, s.to+room
		return s
	}
	switch s.Kind {
	case Log:
		s.from, s.to = lowerTick(s.from), -lowerTick(-s.to)
	case Linear:
		if s.Zero || s.Min == 0 && s.Max == 0 {
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

// place is where a value is between the ends of the axis.
func (s scale) place(v float64) float64 {
	if s.Kind == Log && v <= 0 || math.IsNaN(v) {
		return 0
	}
	return max(0, min(1, (s.transform(v)-s.from)/(s.to-s.from)))
}

// niceStep is a step of 1, 2 or 5 times a power of ten that divides a span in at most five.
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
	if s.Whole {
		step = max(1, step)
	}
	return step
}

func (s scale) ticks() []tick {
	if s.At != nil {
		var all []tick
		for i, at := range s.At {
			all = append(all, tick{s.place(at), s.Names[i]})
		}
		return all
	}
	switch s.Kind {
	case Ordinal:
		var all []tick
		for i, name := range s.Names {
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
	for i := range maxTicks { // counted: beyond 2⁵³ a float plus one is the same float
		at := (first + float64(i)) * step
		if at > s.to+step*1e-9 {
			break
		}
		all = append(all, tick{s.place(at), s.text(at)})
	}
	return all
}

// maxTicks is more than a step (niceStep) or a decade (decades) leaves of any axis.
const maxTicks = 20

// lowerTick is the greatest logarithm of 1, 2 or 5 times a power of ten that is not above x; of -x, its negative is the
// least not below x.
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

// decades are powers of ten, with 2 and 5 times them where there are few.
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

// nines are 0 %, 50 % and 90, 99, 99.9 … %.
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
	v += 0 // no -0
	if s.Format != nil {
		return s.Format(v)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
