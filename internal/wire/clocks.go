package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"lockstep/internal/clock"
)

// clockAnswer is what a peer's clock read when it heard a question, and when it answered. The asker knows the other two times.
type clockAnswer struct {
	Clock    string `json:"clock"`
	Heard    int64  `json:"heard"`
	Answered int64  `json:"answered"`
	// Slew is by how much the clock is ahead of CLOCK_MONOTONIC_RAW, give or take SlewBound: see clock.Slew.
	Slew      int64 `json:"slew"`
	SlewBound int64 `json:"slewBound"`
}

const clockTimeout = time.Second

// AnswerClock makes this process's clock the reference that all agents compare theirs with, until stop is called.
func (c *Conn) AnswerClock() (stop func(), err error) {
	return c.subscribe(subjectClock, func(m *nats.Msg) (*nats.Msg, error) {
		heard := clock.Now()
		if err := c.check(m.Header, "an agent"); err != nil {
			return nil, err
		}
		slew, bound := clock.Slew()
		return c.encode(m.Reply, clockAnswer{Clock: clock.ID(), Heard: heard, Answered: clock.Now(), Slew: slew, SlewBound: bound})
	})
}

// AskClock asks the reference for its time once, and returns the four times, by how much both clocks were slewed, and
// the id of its clock.
func (c *Conn) AskClock(ctx context.Context) (reference string, x clock.Exchange, err error) {
	ask, err := c.message(subjectClock, nil)
	if err != nil {
		return "", x, err
	}
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	x.Sent = clock.Now()
	m, err := c.ask(ctx, ask)
	x.Received = clock.Now()
	slew, bound := clock.Slew()
	var a clockAnswer
	if err == nil {
		err = c.decode(m.Header, m.Data, "the controller", &a)
	}
	if err == nil && a.Clock == "" {
		err = errors.New("the answer names no clock")
	}
	if err != nil {
		return "", x, fmt.Errorf("ask the controller for its time: %w", err)
	}
	x.Heard, x.Answered = a.Heard, a.Answered
	x.Slew, x.OtherSlew, x.SlewBound = slew, a.Slew, bound+a.SlewBound
	return a.Clock, x, nil
}
