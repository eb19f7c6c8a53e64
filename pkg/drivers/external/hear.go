package external

import (
	"encoding/json"
	"errors"
	"fmt"
)

// hear processes one frame. An error is a protocol error of the driver, which ends its process.
func (l *link) hear(f frame) error {
	var s inbound
	if err := json.Unmarshal(f.header, &s); err != nil {
		return fmt.Errorf("read header %.200q: %w", f.header, err)
	}
	if len(f.body) > 0 && s.Type != typeDeliver && s.Type != typeReturn {
		return fmt.Errorf("%s has a body of %d bytes and must have none", s.Type, len(f.body))
	}
	switch s.Type {
	case typeDone, typeFailed:
		return l.hearAnswer(s)
	case typeForward, typeEvent:
		return l.hearAsking(s)
	case typeTaken, typeConfirm, typeReturn:
		return l.hearPublisher(s, f.body)
	case typeDeliver:
		return l.hearConsumer(s, func(c *consumer) error { return c.deliver(s.Deliveries, f.body) })
	case typeClosed:
		err, _ := failure("closed", s.Message)
		if s.Consumer != 0 {
			return l.hearConsumer(s, func(c *consumer) error { c.broke(err); return nil })
		}
		return l.hearPublisher(s, nil)
	}
	return fmt.Errorf("there is no message of type %.100q", s.Type)
}

func (l *link) hearAsking(s inbound) error {
	l.mu.Lock()
	serve := l.serve
	l.mu.Unlock()
	if serve == nil {
		return fmt.Errorf("%s comes before open", s.Type)
	}
	return serve(s)
}

func (l *link) hearAnswer(s inbound) error {
	answer := l.answered(s.ID)
	if answer == nil {
		return fmt.Errorf("%s answers request %d, which is not open", s.Type, s.ID)
	}
	if s.Type == typeDone {
		answer(s.Result, nil)
		return nil
	}
	err, known := failure(s.Kind, s.Message)
	if !known {
		err = errors.New(bounded(s.Message))
		answer(nil, err)
		return fmt.Errorf("failed has kind %.100q: want closed, rejected, unsupported or other", s.Kind)
	}
	answer(nil, err)
	return nil
}

// known returns an error if a handle was never used. It returns nil for a publisher or consumer that has ended: its
// late frames are ignored. The caller holds mu.
func (l *link) known(s inbound, handle uint64) error {
	if handle == 0 || handle > l.lastHandle {
		return fmt.Errorf("%s is of publisher %d and consumer %d, which there never were", s.Type, s.Publisher,
			s.Consumer)
	}
	return nil
}

func (l *link) hearConsumer(s inbound, do func(*consumer) error) error {
	l.mu.Lock()
	c, err := l.consumers[s.Consumer], l.known(s, s.Consumer)
	l.mu.Unlock()
	if c == nil || err != nil {
		return err
	}
	return do(c)
}

func (l *link) hearPublisher(s inbound, body []byte) error {
	l.mu.Lock()
	p, err := l.publishers[s.Publisher], l.known(s, s.Publisher)
	l.mu.Unlock()
	if p == nil || err != nil {
		return err
	}
	switch s.Type {
	case typeTaken:
		return p.taken(s.Count, s.Bytes)
	case typeReturn:
		return p.returned(body)
	case typeClosed:
		err, _ := failure("closed", s.Message)
		p.broke(err)
		return nil
	}
	var refusal error
	if s.Kind != "" {
		if s.Kind != "closed" && s.Kind != "rejected" {
			return fmt.Errorf("confirm has kind %.100q: want closed or rejected, or none", s.Kind)
		}
		refusal, _ = failure(s.Kind, s.Message)
	}
	return p.confirm(s.Numbers, refusal)
}
