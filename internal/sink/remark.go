package sink

import (
	"time"

	"lockstep/internal/plan"
)

// Remark is what was found of a run when it had ended: a word for its kind, and a sentence.
type Remark struct{ Kind, Text string }

// Remark writes what was found of a run as events at the time of its begin, each a nanosecond after the other, so that the same remarks are the same points.
func (s *Sink) Remark(run plan.Run, found []Remark) {
	if s == nil || len(found) == 0 {
		return
	}
	s.write()
	points := make([]Point, len(found))
	for i, r := range found {
		points[i] = Point{measureEvent, map[string]string{"run": run.ID, "matrix": run.Name, "kind": r.Kind}, map[string]any{"text": text(r.Text)}, run.Started.Add(time.Duration(i))}
	}
	s.put(points)
}
