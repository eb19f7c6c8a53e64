package kit

import (
	"io"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Spare is a connection that is made on demand, and again after it has ended, for example for declarations. The zero
// value is ready to use. It is safe for concurrent use.
type Spare[C interface {
	comparable
	drivers.Ended
	io.Closer
}] struct {
	mu   sync.Mutex
	conn C
}

// Get returns the connection. It calls connect if there is none, or if it has ended.
func (s *Spare[C]) Get(connect func() (C, error)) (C, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none C
	if s.conn != none {
		select {
		case <-s.conn.Done():
			_ = s.conn.Close()
			s.conn = none
		default:
			return s.conn, nil
		}
	}
	c, err := connect()
	if err != nil {
		return none, err
	}
	s.conn = c
	return c, nil
}
