package wire

import (
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
func (l *Lease) AnswerClock() (stop func(), err error) {
	c := l.conn
	return c.subscribe(subjectClock("*"), func(m *nats.Msg) (*nats.Msg, error) {
		heard := clock.Now()
		if err := c.check(m.Header, "an agent"); err != nil {
			return nil, err
		}
		slew, bound := clock.Slew()
		answer, err := c.encode(m.Reply, clockAnswer{Clock: clock.ID(), Heard: heard, Answered: clock.Now(), Slew: slew, SlewBound: bound})
		if err == nil {
			stamp(answer, l.who.Epoch)
		}
		return answer, err
	})
}
