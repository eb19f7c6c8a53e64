package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"lockstep/internal/plan"
)

// subjectHistory asks the controller what became of cells over runs.
const subjectHistory = root + "history"

// historyTimeout is how long an answer may take: the history may be written to meanwhile.
const historyTimeout = 15 * time.Second

// fewestPoints is what an answer has room for on any server.
const fewestPoints = 500

// History asks the controller that leads for the values of cells over runs.
func (c *Conn) History(ctx context.Context, q plan.HistoryQuery) (a plan.HistoryAnswer, err error) {
	ask, err := c.encode(subjectHistory, q)
	if err != nil {
		return a, fmt.Errorf("ask for the history: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	m, err := c.ask(ctx, ask)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return a, fmt.Errorf("ask for the history: %w", ErrNoController)
	case err != nil:
		return a, fmt.Errorf("ask for the history: %w", err)
	}
	if err := c.decode(m.Header, m.Data, "the controller", &a); err != nil {
		return a, fmt.Errorf("ask for the history: %w", err)
	}
	return a, nil
}

// AnswerHistory answers History with look until stop is called. An answer that is too large for the server is asked again with fewer points.
func (c *Conn) AnswerHistory(look func(plan.HistoryQuery) (plan.HistoryAnswer, error)) (stop func(), err error) {
	return c.subscribe(subjectHistory, func(m *nats.Msg) (*nats.Msg, error) {
		var q plan.HistoryQuery
		if err := c.decode(m.Header, m.Data, "the client", &q); err != nil {
			return nil, err
		}
		for {
			a, err := look(q)
			if err != nil {
				return nil, err
			}
			answer, err := c.encode(m.Reply, a)
			points := 0
			for _, cell := range a.Cells {
				points += len(cell.Points)
			}
			if !errors.Is(err, ErrTooLarge) || points <= fewestPoints {
				return answer, err
			}
			q.Most = points / 2
		}
	})
}
