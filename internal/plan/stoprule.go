package plan

// StopRule ends the repetitions of a cell when the confidence interval of a value is narrow enough. Run.Repeat is then
// the maximum number of repetitions. Package sampling evaluates it.
type StopRule struct {
	Rule       string  `json:"rule"`            // as written in the matrix
	Value      string  `json:"value,omitempty"` // name as in tables; empty: the default of Of
	Within     float64 `json:"within"`          // maximum half-width of the interval, as a fraction of the median
	Confidence float64 `json:"confidence"`      // confidence of the interval
}

// Of returns the name of the value that the rule applies to in a workload.
func (u StopRule) Of(w Workload) string {
	switch {
	case u.Value != "":
		return u.Value
	case w.Search != nil:
		return "capacity"
	}
	return "publish.rate"
}

// DefaultConfidence is the confidence of intervals and comparisons in rules without one.
const DefaultConfidence = 0.95
