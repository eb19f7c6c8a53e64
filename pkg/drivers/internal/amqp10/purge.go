package amqp10

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	purgers     = 8               // queues emptied at a time
	purgeCredit = 1000            //
	purgeAgain  = 2 * time.Second // without the mark, before another is sent
)

// Purge empties queues, and makes those that are not there where the broker makes queues as they are used, off the
// measured path. It is for brokers that have no other way: it puts a mark into each queue and takes out everything up
// to the mark.
func (s *Session) Purge(ctx context.Context, queues []Terminus) error {
	s.adminMu.Lock()
	defer s.adminMu.Unlock()
	l, err := s.aside(ctx)
	if err != nil {
		return err
	}
	return l.within(ctx, func() error {
		session, err := l.NewSession(ctx, nil)
		if err != nil {
			return fmt.Errorf("empty queues at %s: %w", l.address, err)
		}
		err = each(queues, func(q Terminus) error {
			if err := purge(ctx, session, q); err != nil {
				return fmt.Errorf("empty %s at %s: %w", q.Address, l.address, err)
			}
			return nil
		})
		return errors.Join(err, session.Close(ctx))
	})
}

// each does a few at a time and joins their errors.
func each(queues []Terminus, do func(Terminus) error) error {
	var wg sync.WaitGroup
	next := make(chan Terminus)
	errs := make([]error, min(purgers, len(queues)))
	for i := range errs {
		wg.Go(func() {
			for q := range next {
				errs[i] = errors.Join(errs[i], do(q))
			}
		})
	}
	for _, q := range queues {
		next <- q
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// purge takes messages settled, so that none is on its way back when it ends.
func purge(ctx context.Context, session *amqp.Session, queue Terminus) error {
	settled := amqp.SenderSettleModeSettled
	sender, err := session.NewSender(ctx, queue.Address, &amqp.SenderOptions{TargetCapabilities: queue.Capabilities})
	if err != nil {
		return err
	}
	receiver, err := session.NewReceiver(ctx, queue.Address, &amqp.ReceiverOptions{
		Credit: purgeCredit, SourceCapabilities: queue.Capabilities, RequestedSenderSettleMode: &settled,
	})
	if err != nil {
		return err
	}
	for found := false; !found; {
		mark := []byte("mark " + rand.Text())
		if err := sender.Send(ctx, amqp.NewMessage(mark), nil); err != nil {
			return err
		}
		if found, err = receiveUntil(ctx, receiver, mark); err != nil {
			return err
		}
	}
	return errors.Join(sender.Close(ctx), receiver.Close(ctx))
}

// receiveUntil forgets messages until the mark comes. If it does not, another consumer may have got it that is still to
// be gone.
func receiveUntil(ctx context.Context, receiver *amqp.Receiver, mark []byte) (bool, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, purgeAgain)
		m, err := receiver.Receive(wait, nil)
		cancel()
		switch {
		case err == nil && bytes.Equal(m.GetData(), mark):
			return true, nil
		case err == nil:
		case ctx.Err() == nil && wait.Err() != nil:
			return false, nil
		default:
			return false, err
		}
	}
}
