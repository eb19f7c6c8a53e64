package loopback

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// grid is the number of quantiles of a distribution: quantile i is at (i+½)/grid, i from 0.
const grid = 1000

// spread is a distribution of durations (#spread in schema.cue). The zero value means no delay.
type spread struct {
	text   string
	values []int64 // ns, ascending: each value goes to one of len(values) messages; nil: no delay
}

// fixed reports whether every message has the same delay.
func (s spread) fixed() bool { return len(s.values) <= 1 }

// none reports whether all delays are 0.
func (s spread) none() bool { return len(s.values) == 0 || s.values[len(s.values)-1] == 0 }

// median returns the median delay. Messages without a sequence number get it: unroutable ones and those of a ChurnKey.
func (s spread) median() int64 {
	if len(s.values) == 0 {
		return 0
	}
	return s.values[len(s.values)/2]
}

func (s spread) String() string { return s.text }

// UnmarshalJSON parses "5ms", {min, max}, {mean}, {median, sigma} or {values}.
func (s *spread) UnmarshalJSON(text []byte) error {
	var fixed string
	if json.Unmarshal(text, &fixed) == nil {
		d, err := time.ParseDuration(fixed)
		*s = spread{text: d.String(), values: []int64{int64(d)}}
		return err
	}
	var o struct {
		Min, Max, Mean, Median kit.Duration
		Sigma                  float64
		Values                 []kit.Duration
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return err
	}
	switch {
	case len(o.Values) > 0:
		all := make([]int64, len(o.Values))
		for i, v := range o.Values {
			all[i] = int64(v)
		}
		slices.Sort(all)
		*s = spread{fmt.Sprintf("one of %d times", len(all)), all}
	case o.Mean > 0: // exponential: F⁻¹(u) = -mean·ln(1-u)
		*s = spread{fmt.Sprintf("exponentially, %v on average", o.Mean),
			gridOf(func(u float64) float64 { return -float64(o.Mean) * math.Log1p(-u) })}
	case o.Median > 0: // lognormal: F⁻¹(u) = median·e^(σ·Φ⁻¹(u)), Φ⁻¹(u) = √2·erf⁻¹(2u-1)
		*s = spread{fmt.Sprintf("lognormally, median %v, sigma %v", o.Median, o.Sigma),
			gridOf(func(u float64) float64 {
				return float64(o.Median) * math.Exp(o.Sigma*math.Sqrt2*math.Erfinv(2*u-1))
			})}
	case o.Max > 0 && o.Max >= o.Min: // uniform
		*s = spread{fmt.Sprintf("%v to %v", o.Min, o.Max),
			gridOf(func(u float64) float64 {
				return float64(o.Min) + u*float64(o.Max-o.Min)
			})}
	default:
		return fmt.Errorf("a distribution %s: give {min, max} with min ≤ max, {mean}, {median, sigma} or {values}",
			strings.TrimSpace(string(text)))
	}
	return nil
}

func gridOf(inverse func(u float64) float64) []int64 {
	all := make([]int64, grid)
	for i := range all {
		all[i] = int64(math.Round(inverse((float64(i) + 0.5) / grid)))
	}
	return all
}

// dealer returns all values of a spread in random order, then again in another order. So every whole number of rounds
// has exactly the quantiles of the distribution. The order depends on the seed and the round only.
type dealer struct {
	order []int64
	at    int
	round uint64
}

func (d *dealer) next(s *spread, seed uint64) int64 {
	if len(s.values) <= 1 {
		if s.none() {
			return 0
		}
		return s.values[0]
	}
	if d.at == len(d.order) {
		d.order, d.at = append(d.order[:0], s.values...), 0
		rand.New(rand.NewPCG(seed, d.round)).Shuffle(len(d.order),
			func(i, j int) { d.order[i], d.order[j] = d.order[j], d.order[i] })
		d.round++
	}
	d.at++
	return d.order[d.at-1]
}
