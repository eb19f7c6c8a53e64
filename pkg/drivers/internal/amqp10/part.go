package amqp10

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/Azure/go-amqp"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// part is what publishers and consumers have in common: Done and Err, and an AMQP session with one link. The broker can
// end it alone. Then the next message reports it, because the library does not.
type part struct {
	kit.State
	conn    *conn
	session *amqp.Session
	once    sync.Once
	err     error // of close
}

// attach opens an AMQP session, and a link in it.
func (p *part) attach(ctx context.Context, link func(*amqp.Session) error) error {
	err := p.conn.within(ctx, func() (err error) {
		if p.session, err = p.conn.amqp.NewSession(ctx, nil); err != nil {
			return err
		}
		return link(p.session)
	})
	if err != nil && p.session != nil {
		go func() { // ctx may have ended: others use the connection
			ctx, cancel := context.WithTimeout(context.Background(), farewell)
			defer cancel()
			_ = p.session.Close(ctx)
		}()
	}
	return err
}

// watch ends the part when its connection ends, even while its handler is running.
func (p *part) watch() {
	select {
	case <-p.conn.Done():
		p.EndWith(p.conn, nil)
	case <-p.Done():
	}
}

// close ends the link with AMQP's handshake, after which the broker has received everything that was sent on it. It
// also ends the AMQP session, unless the connection is closed next. If the broker does not answer, it breaks the
// connection, because no other user gets an answer on it either.
func (p *part) close(link func(context.Context) error, last bool) error {
	p.once.Do(func() {
		whole := p.End()
		ctx, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		err := link(ctx)
		if !last && ctx.Err() == nil {
			err = errors.Join(err, p.session.Close(ctx))
		}
		if ctx.Err() != nil {
			p.conn.cut(errors.New("the broker did not answer the end of a link"))
		}
		if err != nil && whole && !over(p.conn.Done()) { // otherwise Err has the reason
			p.err = fmt.Errorf("close link at %s: %w", p.conn.address, err)
		}
	})
	return p.err
}
