package overhead

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"

	"example.org/lockstep/lockstep/pkg/drivers"
	_ "example.org/lockstep/lockstep/pkg/drivers/eventstore"
)

// eventStoreURL names an EventStoreDB, or the lab's stand-in.
const eventStoreURL = "LOCKSTEP_EVENTSTORE_URL"

// appendsAtOnce is the driver's default of concurrent appends in confirm-window.
const appendsAtOnce = 100

// BenchmarkEventStore uses EventStoreDB. With a simulated network, an agent also forwards the connections of this
// library, which is not measured here.
func BenchmarkEventStore(b *testing.B) {
	u, err := url.Parse(labAddress(b, eventStoreURL, "eventstore"))
	must(b, err)
	compare(b, subject{
		name:    "eventstore",
		options: fmt.Appendf(nil, `{"url": "esdb://%s?tls=false", "appendBatch": 1}`, u.Host), // as the bare loop
		bare:    func(b *testing.B, w work) sample { return bareEventStore(b, u.Host, w) },
	})
}

func connectEventStore(b *testing.B, address string) *kurrentdb.Client {
	config, err := kurrentdb.ParseConnectionString("esdb://" + address + "?tls=false")
	must(b, err)
	config.Logger = kurrentdb.NoopLogging()
	db, err := kurrentdb.NewClient(config)
	must(b, err)
	_, err = db.GetServerVersion() // connects
	must(b, err)
	return db
}

// bareEventStore has one connection per side, like the engine. It creates the group with the driver's settings.
func bareEventStore(b *testing.B, address string, w work) sample {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	to, from := connectEventStore(b, address), connectEventStore(b, address)
	defer func() { _, _ = to.Close(), from.Close() }()
	tasks++
	stream := "lockstep-overhead-bare-" + strconv.Itoa(tasks)
	set := kurrentdb.SubscriptionSettingsDefault()
	must(b, to.CreatePersistentSubscription(ctx, stream, "s0",
		kurrentdb.PersistentStreamSubscriptionOptions{Settings: &set, StartFrom: kurrentdb.Start{}}))
	defer func() {
		must(b, to.DeletePersistentSubscription(ctx, stream, "s0", kurrentdb.DeletePersistentSubscriptionOptions{}))
		_, err := to.DeleteStream(ctx, stream, kurrentdb.DeleteStreamOptions{})
		must(b, err)
	}()
	sub, err := from.SubscribeToPersistentSubscription(ctx, stream, "s0",
		kurrentdb.SubscribeToPersistentSubscriptionOptions{BufferSize: prefetch})
	must(b, err)
	defer func() { must(b, sub.Close()) }()

	return timed(b, w, func() error { return receiveEventStore(sub, w.n) },
		func() error { return publishEventStore(ctx, to, stream, w) })
}

func receiveEventStore(sub *kurrentdb.PersistentSubscription, n int) error {
	for i := range n {
		e := sub.Recv()
		if e.SubscriptionDropped != nil {
			return fmt.Errorf("the bare loop received %d of %d messages: %w", i, n, e.SubscriptionDropped.Error)
		}
		if err := sub.Ack(e.EventAppeared.Event); err != nil {
			return err
		}
	}
	return nil
}

// publishEventStore appends single events from as many goroutines as the driver uses. Like the driver, it uses a
// counter for ids: the library's random ids are slower.
func publishEventStore(ctx context.Context, db *kurrentdb.Client, stream string, w work) error {
	body, lanes := make([]byte, w.size), 1
	if w.mode == drivers.ConfirmWindow {
		lanes = appendsAtOnce
	}
	var next atomic.Int64
	errs := make([]error, lanes)
	base := uuid.New()
	var running sync.WaitGroup
	for lane := range lanes {
		running.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(w.n) {
					return
				}
				id := base
				binary.BigEndian.PutUint64(id[8:], uint64(i))
				event := kurrentdb.EventData{EventID: id, EventType: "lockstep", Data: body}
				if _, err := db.AppendToStream(ctx, stream, kurrentdb.AppendToStreamOptions{}, event); err != nil {
					errs[lane] = err
					return
				}
			}
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
