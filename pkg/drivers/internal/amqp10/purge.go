package amqp10

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

const (
	purgeCredit = 1000
	purgeAgain  = 2 * time.Second // maximum wait for a message before a new mark is sent
)

// Purge empties queues, outside the measured path. Brokers that create queues on first use also create missing ones. It
// is for brokers without a purge operation: it sends a mark to each queue, and removes all messages up to the mark.
func (s *Session) Purge(ctx context.Context, queues []Terminus) error {
	s.adminMu.Lock()
	defer s.adminMu.Unlock()
	c, err := s.management(ctx)
	if err != nil {
		return err
	}
	return c.within(ctx, func() error {
		session, err := c.amqp.NewSession(ctx, nil)
		if err != nil {
			return fmt.Errorf("empty queues at %s: %w", c.address, err)
		}
		err = kit.Each(len(queues), func(i int) error {
			if err := purge(ctx, session, queues[i]); err != nil {
				return fmt.Errorf("empty %s at %s: %w", queues[i].Address, c.address, err)
			}
			return nil
		})
		return errors.Join(err, session.Close(ctx))
	})
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
