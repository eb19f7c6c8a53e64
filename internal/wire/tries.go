package wire

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/plan"
)

// Tries lists, by task, the tries of a run since it was last submitted that do not count: those that failed and were to be tried again, and
// those that have no end because their controller was lost. A submission that ended has used up its tries; that of a resumed run has its own.
// Those of a search are of all its steps.
func (c *Conn) Tries(ctx context.Context, run string) (map[string][]plan.Tried, error) {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	stream := nameOf(streamEvents, run)
	last, err := c.last(ctx, stream, subjectEvent(run))
	if err != nil || last == 0 {
		return nil, err
	}
	t := tries{of: map[string][]plan.Tried{}}
	err = c.follow(ctx, stream, []string{subjectEvent(run)}, func(m jetstream.Msg, seq uint64) bool {
		if e := c.entry(messageOf(m, seq)); e.Event != nil {
			t.take(*e.Event)
		}
		return seq < last
	})
	if err != nil {
		return nil, fmt.Errorf("read the tries of run %s: %w", run, err)
	}
	return t.of, nil
}

// tries gathers what events say of tries.
type tries struct{ of map[string][]plan.Tried }

func (t tries) take(e RunEvent) {
	list := t.of[e.Task]
	open := len(list) > 0 && list[len(list)-1].Name == e.Try
	switch {
	case e.Kind == RunEnded:
		clear(t.of)
	case e.Kind == TaskStarted:
		t.of[e.Task] = append(list, plan.Tried{Name: e.Try, Kind: plan.FailedInterrupted})
	case e.Kind == TryEnded && e.Tried != nil && open:
		list[len(list)-1] = *e.Tried
	case e.Kind == StepEnded && open:
		t.of[e.Task] = list[:len(list)-1]
	}
}
