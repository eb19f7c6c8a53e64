package plan

import (
	"encoding/json"
	"math"
	"time"
)

// Search looks for the highest rate at which a condition holds, in steps: it doubles the rate until the condition
// fails, then halves the interval, then holds the rate that it found.
type Search struct {
	For     string   `json:"for"`     // SearchRate
	While   string   `json:"while"`   // a Condition
	From    float64  `json:"from"`    // the first rate, messages a second of the cell
	Max     float64  `json:"max"`     // no rate above this is tried
	Within  float64  `json:"within"`  // ends when the interval is at most this part of its lower end
	Step    Duration `json:"step"`    // the measurement of each step
	Repeats int      `json:"repeats"` // how often the rate found is then held, each for the cell's own measurement
	Steps   int      `json:"steps"`   // most steps of all kinds together
}

// SearchRate is what Search.For can be.
const SearchRate = "rate"

// UnmarshalJSON fills in the defaults of a search for what is left out.
func (s *Search) UnmarshalJSON(text []byte) error {
	type plain Search
	p := plain{For: SearchRate, From: 1000, Max: 10_000_000, Within: 0.02, Step: Duration(5 * time.Second), Repeats: 3,
		Steps: 60}
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	*s = Search(p)
	return nil
}

// SearchResult is what a search for capacity tried, and found.
type SearchResult struct {
	Capacity float64 `json:"capacity"` // the highest rate that held, verified if Sure; 0: none did
	// the lowest rate that really passed in its verifications: received or, without consumers, sent
	Low   float64 `json:"low"`
	Fails float64 `json:"fails"` // the lowest rate above it at which the condition failed at least twice; 0: none did
	// verifications of Capacity, for the cell's own measurement, that held
	Verified      int  `json:"verified"`
	Verifications int  `json:"verifications"` // verifications of Capacity that were run
	Sure          bool `json:"sure"`          // Capacity is verified, or it is 0 because no rate holds
	// why the limit above Capacity was not the broker's alone; empty: it was
	Bound Flag   `json:"bound,omitempty"`
	Why   string `json:"why,omitempty"` // why there is no better answer
	Steps []Step `json:"steps"`         // in the order of time
}

// Step is one rate that a search tried.
type Step struct {
	Rate    float64          `json:"rate"`    // that was asked for
	Attempt string           `json:"attempt"` // names the attempt of the task that holds its record
	Kind    StepKind         `json:"kind"`
	Measure Duration         `json:"measure"`
	Answer  Answer           `json:"answer"`
	Why     string           `json:"why,omitempty"`    // the part of the condition that failed, with its value
	Broken  []string         `json:"broken,omitempty"` // guarantees, if the step is invalid
	Values  map[string]Value `json:"values"`           // rates, quantiles of latencies, and what the condition compares
}

// StepKind is what a step of a search is for.
type StepKind string

// The kinds of steps.
const (
	StepBracket StepKind = "bracket" // looks for a rate that fails, and one that holds, by doubling and halving
	StepBisect  StepKind = "bisect"  // makes the interval between them smaller
	StepCheck   StepKind = "check"   // the lowest rate that failed, again: it may have been an accident
	StepVerify  StepKind = "verify"  // the highest rate that held, for as long as the cell measures
)

// Answer is what came of a step.
type Answer string

// The answers.
const (
	AnswerHeld    Answer = "held"
	AnswerFailed  Answer = "failed"  // or it is not known whether the condition holds
	AnswerUnknown Answer = "unknown" // the step gave no usable numbers

	// The condition failed, but not by the broker alone: it is not known which rate the broker could take.
	AnswerClientBound Answer = Answer(ClientBound)
	AnswerSharedHost  Answer = Answer(SharedHost)
	AnswerHostBusy    Answer = Answer(HostBusy)
)

// Limit is the flag of a step that failed not by the broker alone; empty if there is none.
func (a Answer) Limit() Flag {
	if a == AnswerHeld || a == AnswerFailed || a == AnswerUnknown {
		return ""
	}
	return Flag(a)
}

// trialDrain is how much longer than drain.idle the drain of a trial may take.
const trialDrain = time.Second

// Step is the task with the load of one trial of its search. What could not be sent soon after the measurement has
// failed the trial: the drain is as long as it takes to find lost messages, and no longer.
func (t Task) Step(rate float64, measure Duration) Task {
	w := &t.Cell.Workload
	w.Publishers.Rate, w.Measure, w.Search = rate, measure, nil
	w.Drain.Timeout = min(w.Drain.Timeout, w.Drain.Idle+Duration(trialDrain))
	return t
}

// expected is how many short trials a search takes if it finds a capacity in the (geometric) middle of what it may try,
// and nothing unforeseen.
func (s Search) expected() int {
	bracket := 1 + math.Ceil(math.Log2(max(1, s.Max/s.From))/2)
	bisect := math.Ceil(math.Log2(math.Ln2 / math.Log1p(s.Within)))
	return max(1, min(s.Steps-s.Repeats, int(bracket+max(0, bisect))+2))
}
