package plan

import "math"

// Search finds the highest rate at which a condition holds. It doubles the rate until the condition fails, then
// bisects, and then verifies the rate that it found.
type Search struct {
	For     string   `json:"for"`     // SearchRate
	While   string   `json:"while"`   // a Condition
	From    float64  `json:"from"`    // first rate, messages per second of the cell
	Max     float64  `json:"max"`     // maximum rate
	Within  float64  `json:"within"`  // ends when the interval is at most this fraction of its lower end
	Step    Duration `json:"step"`    // duration of the measurement of each step
	Repeats int      `json:"repeats"` // number of verifications of the result, with the cell's own measurement
	Steps   int      `json:"steps"`   // maximum number of steps of all kinds
}

// SearchRate is the only valid value of Search.For.
const SearchRate = "rate"

// SearchResult is the result of a capacity search.
type SearchResult struct {
	Capacity float64 `json:"capacity"` // highest rate that held, verified if Sure; 0: none
	// lowest actual rate in its verifications: consumed, or published if there are no consumers
	Low   float64 `json:"low"`
	Fails float64 `json:"fails"` // lowest rate above it at which the condition failed at least twice; 0: none
	// verifications of Capacity, with the cell's own measurement, that held
	Verified      int  `json:"verified"`
	Verifications int  `json:"verifications"` // all verifications of Capacity
	Sure          bool `json:"sure"`          // Capacity is verified, or it is 0 because no rate held
	// reason why the limit above Capacity was not that of the broker alone; empty: it was
	Bound Flag   `json:"bound,omitempty"`
	Why   string `json:"why,omitempty"` // why there is no better result
	Steps []Step `json:"steps"`         // in order of time
}

// Step is one rate that a search tested.
type Step struct {
	Rate    float64          `json:"rate"`    // intended rate
	Attempt string           `json:"attempt"` // name of the attempt with its record
	Kind    StepKind         `json:"kind"`
	Measure Duration         `json:"measure"`
	Answer  Answer           `json:"answer"`
	Why     string           `json:"why,omitempty"`    // the part of the condition that failed, with its value
	Broken  []string         `json:"broken,omitempty"` // broken guarantees, if the step is invalid
	Values  map[string]Value `json:"values"`           // rates, quantiles of latencies, and the values of the condition
}

// StepKind is the purpose of a step of a search.
type StepKind string

const (
	StepBracket StepKind = "bracket" // finds a rate that fails and one that holds, by doubling and halving
	StepBisect  StepKind = "bisect"  // reduces the interval between them
	StepCheck   StepKind = "check"   // repeats the lowest rate that failed, to exclude an accident
	StepVerify  StepKind = "verify"  // repeats the highest rate that held, with the cell's own measurement
)

// Answer is the result of a step. It is a flag if the condition failed, but not because of the broker alone. The limit
// of the broker is then unknown.
type Answer string

// The answers that are no flags.
const (
	AnswerHeld    Answer = "held"
	AnswerFailed  Answer = "failed"  // or it is unknown whether the condition holds
	AnswerUnknown Answer = "unknown" // the step has no usable numbers
)

// Limit returns the flag of a step that failed because of the load generator or its host; empty for other answers.
func (a Answer) Limit() Flag {
	if a == AnswerHeld || a == AnswerFailed || a == AnswerUnknown {
		return ""
	}
	return Flag(a)
}

// expected returns the number of short trials of a search whose capacity is in the (geometric) middle of the range.
func (s Search) expected() int {
	bracket := 1 + math.Ceil(math.Log2(max(1, s.Max/s.From))/2)
	bisect := math.Ceil(math.Log2(math.Ln2 / math.Log1p(s.Within)))
	return max(1, min(s.Steps-s.Repeats, int(bracket+max(0, bisect))+2))
}
