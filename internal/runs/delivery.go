package runs

import (
	"fmt"

	"lockstep/internal/plan"
)

// deliveryFile has the results of writing the run's points to InfluxDB: a line for the run, and one for each time that
// it was resumed, copied again or replayed.
const deliveryFile = "sink.jsonl"

// AddDelivery stores the result of writing the points of the run to InfluxDB. Unlike the others, it may be called while
// another process writes: points may be written again while the run continues.
func (r *Run) AddDelivery(d plan.Delivery) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.appendLine(deliveryFile, d); err != nil {
		return fmt.Errorf("keep what was written to InfluxDB of run %s: %w", r.plan.ID, err)
	}
	return nil
}

// Deliveries returns the results of writing the points of the run to InfluxDB, in order of time. What is damaged is
// left out, with a warning.
func (r *Run) Deliveries() []plan.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, err := linesOf[plan.Delivery](r, deliveryFile)
	if err != nil {
		r.warn(fmt.Sprintf("%s left out: %v", deliveryFile, err))
	}
	return all
}
