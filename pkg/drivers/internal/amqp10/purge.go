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
	purgers     = 8               // number of queues purged at a time
	purgeCredit = 1000            //
	purgeAgain  = 2 * time.Second // maximum wait for a message before a new mark is sent
)

// Purge empties queues, outside the measured path. Brokers that create queues on first use also create missing ones. It
// is for brokers without a purge operation: it sends a mark to each queue, and removes all messages up to the mark.
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

// each calls do for all queues, a few at a time, and joins the errors.
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

// purge empties one queue. It receives messages as settled, so that none is returned to the queue later.
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

// receiveUntil drops messages until it receives the mark. It returns false if no message arrives in time: another
// consumer that has not ended yet may have received the mark.
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
