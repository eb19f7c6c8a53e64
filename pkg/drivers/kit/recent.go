package kit

import (
	"sync"
	"time"
)

// recentLife is how long a value of Recent is used.
const recentLife = 5 * time.Second

// Recent caches values by key for a few seconds, so that connection-per-message does not request them for each message.
// The zero value is ready to use. It is safe for concurrent use.
type Recent[V any] struct{ values sync.Map }

type recent[V any] struct {
	value V
	at    time.Time
}

// Get returns the cached value, or the result of look. It does not cache errors. Concurrent calls may call look twice.
func (r *Recent[V]) Get(key string, look func() (V, error)) (V, error) {
	if known, is := r.values.Load(key); is && time.Since(known.(recent[V]).at) < recentLife {
		return known.(recent[V]).value, nil
	}
	value, err := look()
	if err == nil {
		r.values.Store(key, recent[V]{value, time.Now()})
	}
	return value, err
}

// Clear removes all values.
func (r *Recent[V]) Clear() { r.values.Clear() }
