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
	case typeForward, typeEvent, typeRetried:
		return l.hearAsking(s)
	case typeTaken, typeConfirm, typeReturn:
		p, err := find[*publisher](l, s, s.Publisher)
		if p == nil || err != nil {
			return err
		}
		return p.hear(s, f.body)
	case typeDeliver:
		c, err := find[*consumer](l, s, s.Consumer)
		if c == nil || err != nil {
			return err
		}
		return c.deliver(s.Deliveries, f.body)
	case typeClosed:
		p, err := find[part](l, s, max(s.Conn, s.Publisher, s.Consumer))
		if p == nil || err != nil {
			return err
		}
		why, _ := failure("closed", s.Message)
		p.lose(why)
		return nil
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

// find returns the part of a frame. It returns nil for one that has ended: its late frames are ignored. A handle that
// was never used is an error.
func find[P part](l *link, s inbound, handle uint64) (P, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, _ := l.parts[handle].(P)
	if handle == 0 || handle > l.lastHandle {
		return p, fmt.Errorf("%s is of connection %d, publisher %d and consumer %d, which there never were", s.Type, s.Conn,
			s.Publisher, s.Consumer)
	}
	return p, nil
}
