package server

import (
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

func TestAppendExpectsRevisions(t *testing.T) {
	r := newRig(t, Options{})
	_, err := r.tryAppend("a", esdb.StreamExists{}, events(1)...)
	r.want("stream exists, of none", code(err), "wrong version")
	at, err := r.tryAppend("a", esdb.NoStream{}, events(3)...)
	r.must(err)
	if at != 2 {
		t.Errorf("three events leave the stream at %d, want 2", at)
	}
	_, err = r.tryAppend("a", esdb.NoStream{}, events(1)...)
	r.want("no stream, of one", code(err), "wrong version")
	for _, revision := range []uint64{0, 1, 3} {
		_, err = r.tryAppend("a", esdb.Revision(revision), events(1)...)
		r.want("another revision", code(err), "wrong version")
	}
	_, err = r.tryAppend("a", esdb.Revision(2), events(1)...)
	r.must(err)
	_, err = r.tryAppend("a", esdb.StreamExists{}, events(1)...)
	r.must(err)
	at, err = r.tryAppend("a", esdb.Any{}, events(1)...)
	r.must(err)
	if at != 5 {
		t.Errorf("the stream is at %d, want 5: what was refused is not stored", at)
	}
}

func TestAppendTwiceIsOnce(t *testing.T) {
	r := newRig(t, Options{})
	all := events(3)
	for _, expect := range []esdb.ExpectedRevision{esdb.NoStream{}, esdb.NoStream{}, esdb.Any{}} {
		at, err := r.tryAppend("a", expect, all...)
		r.must(err)
		if at != 2 {
			t.Errorf("the stream is at %d after an append that was made before, want 2", at)
		}
	}
	more := events(1)
	for range 2 {
		at, err := r.tryAppend("a", esdb.Revision(2), more...)
		r.must(err)
		if at != 3 {
			t.Errorf("the stream is at %d, want 3", at)
		}
	}
	_, err := r.tryAppend("a", esdb.Revision(2), events(1)...)
	r.want("another event at the same place", code(err), "wrong version")
	r.want("the stream", r.read("a", esdb.ReadStreamOptions{}, 100), "0 1 2 0")
}

func TestAppendIsLimited(t *testing.T) {
	r := newRig(t, Options{MaxAppendSize: 1000})
	fits := esdb.EventData{EventType: "t", Data: make([]byte, 500)}
	_, err := r.tryAppend("a", esdb.Any{}, fits, fits)
	r.must(err)
	_, err = r.tryAppend("a", esdb.Any{}, fits, fits, esdb.EventData{EventType: "t", Data: []byte("x")})
	if err == nil || !strings.Contains(err.Error(), "Maximum Append Size of 1000 Exceeded") {
		t.Errorf("1001 bytes at once: %v", err)
	}
	if got := r.end("a"); got != 1 {
		t.Errorf("the stream is at %d, want 1: nothing of what was refused is stored", got)
	}
}

// end returns the revision of the last event of a stream.
func (r *rig) end(stream string) uint64 {
	r.t.Helper()
	reading, err := r.db.ReadStream(r.ctx, stream, esdb.ReadStreamOptions{Direction: esdb.Backwards, From: esdb.End{}},
		1)
	r.must(err)
	defer reading.Close()
	e, err := reading.Recv()
	r.must(err)
	return e.Event.EventNumber
}

func TestRead(t *testing.T) {
	r := newRig(t, Options{})
	r.want("a stream that is not there", r.read("a", esdb.ReadStreamOptions{}, 1), "not found")
	r.append("a", 600) // more than a page
	backwards := esdb.ReadStreamOptions{Direction: esdb.Backwards, From: esdb.End{}}
	r.want("the last two", r.read("a", backwards, 2), "599 598")
	r.want("from the third", r.read("a", esdb.ReadStreamOptions{From: esdb.Revision(2)}, 3), "2 3 4")
	backwards.From = esdb.Revision(1)
	r.want("backwards from the second", r.read("a", backwards, 9), "1 0")
	r.want("beyond the end", r.read("a", esdb.ReadStreamOptions{From: esdb.Revision(700)}, 9), "")
	if n := len(strings.Fields(r.read("a", esdb.ReadStreamOptions{}, 10_000))); n != 600 {
		t.Errorf("%d of 600 events are read", n)
	}
}

func TestDelete(t *testing.T) {
	r := newRig(t, Options{})
	r.append("a", 3)
	_, err := r.db.DeleteStream(r.ctx, "a", esdb.DeleteStreamOptions{ExpectedRevision: esdb.Revision(1)})
	if err == nil {
		t.Error("a delete that expects another revision works")
	}
	_, err = r.db.DeleteStream(r.ctx, "a", esdb.DeleteStreamOptions{})
	r.must(err)
	r.want("a deleted stream", r.read("a", esdb.ReadStreamOptions{}, 9), "not found")
	at, err := r.tryAppend("a", esdb.NoStream{}, events(1)...)
	r.must(err)
	if at != 3 {
		t.Errorf("a deleted stream goes on at %d, want 3", at)
	}
	r.want("what came after the delete", r.read("a", esdb.ReadStreamOptions{}, 9), "0")

	_, err = r.db.TombstoneStream(r.ctx, "a", esdb.TombstoneStreamOptions{})
	r.must(err)
	r.want("a stream that ended", r.read("a", esdb.ReadStreamOptions{}, 9), "deleted")
	_, err = r.tryAppend("a", esdb.Any{}, events(1)...)
	if err == nil {
		t.Error("an append to a stream that ended works")
	}
}

func TestMetadataBoundsAStream(t *testing.T) {
	r := newRig(t, Options{})
	r.append("a", 10)
	var m esdb.StreamMetadata
	m.SetMaxCount(3)
	_, err := r.db.SetStreamMetadata(r.ctx, "a", esdb.AppendToStreamOptions{}, m)
	r.must(err)
	r.want("at once", r.read("a", esdb.ReadStreamOptions{}, 99), "7 8 9")
	r.append("a", 2)
	r.want("later", r.read("a", esdb.ReadStreamOptions{}, 99), "9 0 1")
}

func TestAllWithFilterCatchesUp(t *testing.T) {
	r := newRig(t, Options{})
	r.append("a-1", 2)
	r.append("b-1", 5)
	r.append("a-2", 1)
	sub, err := r.db.SubscribeToAll(r.ctx, esdb.SubscribeToAllOptions{
		From: esdb.Start{}, Filter: &esdb.SubscriptionFilter{Type: esdb.StreamFilterType, Prefixes: []string{"a-"}},
		MaxSearchWindow: 4,
	})
	r.must(err)
	defer sub.Close()
	var seen []string
	checkpoints := 0
	for {
		e := sub.Recv()
		if e.SubscriptionDropped != nil {
			t.Fatal(e.SubscriptionDropped.Error)
		}
		if e.CheckPointReached != nil {
			checkpoints++
		}
		if e.EventAppeared != nil {
			seen = append(seen, e.EventAppeared.Event.StreamID)
		}
		if e.CaughtUp != nil {
			break
		}
	}
	r.want("streams", strings.Join(seen, " "), "a-1 a-1 a-2")
	if checkpoints == 0 {
		t.Error("no checkpoint among 8 events with a window of 4")
	}
	r.append("b-1", 1)
	r.append("a-3", 1)
	for {
		if e := sub.Recv(); e.EventAppeared != nil {
			r.want("what comes later", e.EventAppeared.Event.StreamID, "a-3")
			return
		}
	}
}

func TestTruncationKeepsTheLogSmall(t *testing.T) {
	r := newRig(t, Options{})
	for range 20 {
		r.append("a", 200)
		_, err := r.db.DeleteStream(r.ctx, "a", esdb.DeleteStreamOptions{})
		r.must(err)
	}
	if n := len(r.server.store.log); n > 2048 {
		t.Errorf("$all keeps %d events although all of them are deleted", n)
	}
}
