package drivertest

import (
	"maps"
	"slices"

	"example.org/lockstep/lockstep/pkg/drivers"
)

const (
	manyKeys = 5
	perKey   = 20 // messages

	// The messages without keys are large, because a client library may change the partition only when a batch is full.
	unkeyedCount, unkeyedSize = 64, 20 << 10
)

// keyOf returns the key of a message. Neighbours have the same key, so that an exchange of neighbours breaks the order.
func keyOf(seq uint64) uint32 { return uint32(seq/2) % manyKeys }

// checkKeys proves that all messages with one key reach one stream, in the order of publishing. If streams are
// distinguished, keys must select them only if PublisherSpec.Keyed is set.
func checkKeys(c *check) {
	u := c.use(c.anyMode())
	u.Keys, u.Publishers = true, 2
	if !c.declare(u).Capabilities.Keys {
		u.Bindings = 4 // keys may select a binding
	}
	d := c.need(u)
	if !keeps(u.Mode, d.Guarantees) {
		c.notApplicable("it is not guaranteed that messages arrive")
	}
	r := c.rig(u)
	in := r.inbox(nil)
	s := r.sender(1, func(spec *drivers.PublisherSpec) { spec.Keyed = true })
	for seq := range uint64(manyKeys * perKey) {
		c.must(s.publish(c.ctx, keyOf(seq), 64), "publish")
	}
	s.settle()
	in.exactly(s.kept())
	at, next := map[uint32]uint32{}, map[uint32]uint64{}
	for _, got := range in.all() {
		key := keyOf(got.id.seq)
		stream, seen := at[key]
		if seen && stream != got.stream {
			c.errorf("messages of key %d are in the streams %d and %d", key, stream, got.stream)
			return
		}
		at[key] = got.stream
		if got.redelivered == drivers.Yes || !d.Guarantees.Ordered {
			continue
		}
		if seen && got.id.seq+1 < next[key] {
			c.errorf("message %d arrives after %d, which has the same key", got.id.seq, next[key]-1)
			return
		}
		next[key] = got.id.seq + 1
	}
	keyed := slices.Compact(slices.Sorted(maps.Values(at)))
	c.logf("%d keys are in the streams %v", manyKeys, keyed)
	if !d.Capabilities.Streams || c.h.Groups {
		return
	}
	other := r.sender(2)
	for range unkeyedCount {
		c.must(other.publish(c.ctx, 0, unkeyedSize), "publish without keys")
	}
	other.settle()
	if !in.arrive(other.kept()) {
		return
	}
	used := map[uint32]bool{}
	for _, got := range in.all() {
		if got.id.publisher == other.id {
			used[got.stream] = true
		}
	}
	unkeyed := slices.Sorted(maps.Keys(used))
	c.logf("messages without keys are in the streams %v", unkeyed)
	switch {
	case len(keyed) == 1 && len(unkeyed) > 1:
		c.errorf("%d keys are all in stream %d, and messages without keys in %v: keys have no effect", manyKeys, keyed[0],
			unkeyed)
	case len(keyed) > 1 && len(unkeyed) == 1:
		c.errorf("%d messages without keys are all in stream %d, and keys in %v: the client library has to select the partition",
			unkeyedCount, unkeyed[0], keyed)
	}
}
