package amqp10

import (
	"context"
	"fmt"
	"strconv"

	"github.com/Azure/go-amqp"
)

// Request is a message to an address of the broker that answers messages, such as a management address.
type Request struct {
	Properties map[string]any
	Body       string
}

// Reply is the answer to a Request.
type Reply struct {
	Properties map[string]any
	Body       string
}

// maxAsked is the maximum number of unanswered requests. It is below the receiver's credit, so that neither side
// blocks the other.
const maxAsked = 50

// asker sends requests on an AMQP session of its own. The broker creates an address for the replies.
type asker struct {
	to       string
	session  *amqp.Session
	sender   *amqp.Sender
	answers  *amqp.Receiver
	requests uint64
}

// Ask sends requests to one address, outside the measured path, and returns the replies in the same order. It sends
// each request once. After an error, it is unknown which requests were carried out.
func (s *Session) Ask(ctx context.Context, address string, requests ...Request) ([]Reply, error) {
	s.adminMu.Lock()
	defer s.adminMu.Unlock()
	c, err := s.management(ctx)
	if err != nil {
		return nil, err
	}
	var replies []Reply
	err = c.within(ctx, func() error {
		if err := s.prepareAsker(ctx, c, address); err != nil {
			return err
		}
		for len(replies) < len(requests) {
			some := requests[len(replies):]
			answers, err := s.asker.ask(ctx, some[:min(len(some), maxAsked)])
			if err != nil {
				return err
			}
			replies = append(replies, answers...)
		}
		return nil
	})
	if err != nil {
		s.dropAsker(ctx)
		return nil, fmt.Errorf("query %s at %s: %w", address, c.address, err)
	}
	return replies, nil
}

func (s *Session) prepareAsker(ctx context.Context, c *conn, address string) (err error) {
	if s.asker != nil && s.asker.to == address {
		return nil
	}
	s.dropAsker(ctx)
	a := &asker{to: address}
	if a.session, err = c.amqp.NewSession(ctx, nil); err != nil {
		return err
	}
	s.asker = a
	a.answers, err = a.session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true, Credit: 2 * maxAsked})
	if err != nil {
		return err
	}
	a.sender, err = a.session.NewSender(ctx, address, nil)
	return err
}

func (s *Session) dropAsker(ctx context.Context) {
	if s.asker != nil {
		_ = s.asker.session.Close(ctx)
	}
	s.asker = nil
}

func (a *asker) ask(ctx context.Context, requests []Request) ([]Reply, error) {
	replyTo, wanted := a.answers.Address(), map[string]int{}
	for i, r := range requests {
		a.requests++
		id := strconv.FormatUint(a.requests, 10)
		wanted[id] = i
		m := amqp.Message{
			Properties:            &amqp.MessageProperties{ReplyTo: &replyTo, CorrelationID: id},
			ApplicationProperties: r.Properties, Value: r.Body,
		}
		if err := a.sender.Send(ctx, &m, nil); err != nil {
			return nil, err
		}
	}
	replies := make([]Reply, len(requests))
	for len(wanted) > 0 {
		m, err := a.answers.Receive(ctx, nil)
		if err != nil {
			return nil, err
		}
		if err := a.answers.AcceptMessage(ctx, m); err != nil {
			return nil, err
		}
		if m.Properties == nil {
			continue
		}
		id := fmt.Sprint(m.Properties.CorrelationID)
		if i, ok := wanted[id]; ok {
			body, _ := m.Value.(string)
			replies[i] = Reply{m.ApplicationProperties, body}
			delete(wanted, id)
		}
	}
	return replies, nil
}
