package test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"example.org/lockstep/lockstep/internal/plan"
)

// FerretDB is the stand-in for MongoDB. Its findAndModify is not atomic: two consumers that claim at the same time may
// get the same message. Lockstep's ledger must detect each such duplicate, and no other. A forwarder between client and
// server, which uses no code of Lockstep, counts the claims of each document.
func TestLedgerFindsTheDuplicatesOfFerretDBThatStandsInForMongoDB(t *testing.T) {
	server := variable(t, "LOCKSTEP_FERRETDB_URL")
	t.Parallel()
	outcomes, repeated := runClaims(t, server)
	var all uint64
	for i, o := range outcomes {
		t.Logf("%s: %v %v; %+v", o.Cell, o.Verdict, o.Reasons, o.Ledger)
		if o.Ledger.Duplicated != repeated[i] {
			t.Errorf("outcome %d: got %d duplicates, want %d as counted by the forwarder", i, o.Ledger.Duplicated,
				repeated[i])
		}
		if l := o.Ledger; l.Sent != messagesPerCell || l.Confirmed != messagesPerCell ||
			l.Received != messagesPerCell ||
			l.Lost+l.Undrained > 0 {
			t.Errorf("outcome %d: got ledger %+v, want %d messages sent, confirmed and received", i, l, messagesPerCell)
		}
		all += o.Ledger.Duplicated
	}
	if all == 0 {
		t.Fatal("duplicates of the server: got none, want at least 1 to detect")
	}
	// A claim can expire, so a claimed message may be delivered again. A message that was deleted with its claim may
	// not.
	if each := outcomes[0]; each.Verdict != plan.Valid {
		t.Errorf("acknowledgement each, which allows duplicates: got verdict %s with reasons %v, want valid",
			each.Verdict, each.Reasons)
	}
	automatic := outcomes[1]
	if n := automatic.Ledger.Duplicated; n > 0 && (automatic.Verdict != plan.Invalid ||
		!strings.Contains(strings.Join(automatic.Reasons, "\n"), fmt.Sprint(n))) {
		t.Errorf("acknowledgement automatic, %d duplicates: got verdict %s, reasons %v, want invalid with this number",
			n, automatic.Verdict, automatic.Reasons)
	}
}

// Through the lab's proxy, which serialises changes, the claims of the same server are atomic as in MongoDB. There are
// no duplicates.
func TestLedgerFindsNoDuplicatesWhereClaimsAreAtomicAsInMongoDB(t *testing.T) {
	server := variable(t, "LOCKSTEP_MONGODB_URL")
	t.Parallel()
	outcomes, repeated := runClaims(t, server)
	for i, o := range outcomes {
		if o.Ledger.Duplicated > 0 || repeated[i] > 0 || o.Verdict != plan.Valid ||
			o.Ledger.Received != messagesPerCell {
			t.Errorf("outcome %d: got verdict %s, reasons %v, ledger %+v, %d repeated claims, want no duplicates",
				i, o.Verdict, o.Reasons, o.Ledger, repeated[i])
		}
	}
}

// messagesPerCell is the number of messages of each cell.
const messagesPerCell = 400

// runClaims runs a cell for each acknowledgement mode, with four consumers of one queue. It returns the outcomes, and
// the number of repeated claims in each that the forwarder counted.
func runClaims(t *testing.T, server string) ([]plan.Outcome, []uint64) {
	t.Helper()
	w := newClaimCounter(t, server)
	dir := t.TempDir()
	file := writeMatrix(t, dir, fmt.Sprintf(`package matrix
name: "claims"
brokers: queue: {driver: "mongodb", options: {url: "mongodb://%s/", visibility: "10m", pollInterval: "2ms", claimers: 2}}
axes: ack: ["each", "automatic"]
cell: {
	axis: _
	publishers: {mode: "confirm-batch", batch: 100, count: %d}
	consumers: {threads: 4, ack: axis.ack}
	warmup: "0s", measure: "2m", drain: {idle: "1m", timeout: "10m"}
}
tables: [{rows: ["ack"], values: ["publish.rate", "lost", "duplicated"]}]
`, w.address, messagesPerCell))
	ctl := start(t, dir, "ctl", "run", file)
	ctl.ExitCode()
	r := readRecord(t, dir, ctl)
	if len(r.outcomes) != 2 {
		t.Fatalf("outcomes: got %d, want 2:\n%s", len(r.outcomes), r.text)
	}
	outcomes := []plan.Outcome{r.outcomeAt("ack=each"), r.outcomeAt("ack=automatic")}
	var repeated []uint64
	for _, o := range outcomes {
		repeated = append(repeated, w.repeatedClaims(t, o))
	}
	return outcomes, repeated
}

// claimCounter forwards MongoDB's protocol, and counts the claims of each document by collection.
type claimCounter struct {
	address string

	mu       sync.Mutex
	claims   map[string]map[string]int
	returned map[string]uint64 // claims that a consumer returned because the response was too late
}

func newClaimCounter(t *testing.T, server string) *claimCounter {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &claimCounter{address: l.Addr().String(), claims: map[string]map[string]int{}, returned: map[string]uint64{}}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { w.forward(ctx, near, u.Host) })
		}
	})
	return w
}

// forward forwards the requests of one connection and their responses.
func (w *claimCounter) forward(ctx context.Context, near net.Conn, address string) {
	defer near.Close()
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })()
	for {
		request, err := readWire(near)
		if err != nil {
			return
		}
		if _, err := far.Write(request); err != nil {
			return
		}
		answer, err := readWire(far)
		if err != nil {
			return
		}
		w.count(body(request), updates(request), body(answer))
		if _, err := near.Write(answer); err != nil {
			return
		}
	}
}

// readWire reads one message. Its first four bytes are its length.
func readWire(from io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint32(head))
	if n < 16 || n > 64<<20 {
		return nil, errors.New("no message of MongoDB's protocol")
	}
	whole := slices.Grow(head, n-4)[:n]
	_, err := io.ReadFull(from, whole[4:])
	return whole, err
}

// body returns the document of a message of kind 2013 that begins with a section of kind 0; otherwise nil.
func body(message []byte) bson.Raw {
	if len(message) < 26 || binary.LittleEndian.Uint32(message[12:]) != 2013 || message[20] != 0 {
		return nil
	}
	n := int(binary.LittleEndian.Uint32(message[21:]))
	if n < 5 || n > len(message)-21 {
		return nil
	}
	return bson.Raw(message[21 : 21+n])
}

// updates returns the number of documents in the section of kind 1 that follows the body. A consumer returns several
// claims with one request.
func updates(message []byte) (n uint64) {
	first := body(message)
	if first == nil || len(message) < 26+len(first) || message[21+len(first)] != 1 {
		return 0
	}
	rest := message[21+len(first):]
	_, documents, _ := bytes.Cut(rest[5:1+binary.LittleEndian.Uint32(rest[1:])], []byte{0}) // after the name
	for ; len(documents) >= 5; documents = documents[binary.LittleEndian.Uint32(documents):] {
		n++
	}
	return n
}

// count counts the document in the response to a claim, and the claims that a request returns.
func (w *claimCounter) count(request bson.Raw, returned uint64, answer bson.Raw) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if collection, is := request.Lookup("update").StringValueOK(); is {
		w.returned[collection] += returned
	}
	collection, is := request.Lookup("findAndModify").StringValueOK()
	id, got := answer.Lookup("value", "_id").ObjectIDOK()
	if !is || !got {
		return
	}
	if w.claims[collection] == nil {
		w.claims[collection] = map[string]int{}
	}
	w.claims[collection][id.Hex()]++
}

// repeatedClaims returns the number of repeated claims of a task's queue, without those that consumers returned.
func (w *claimCounter) repeatedClaims(t *testing.T, o plan.Outcome) (n uint64) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	queue := ""
	for name := range w.claims {
		if strings.HasPrefix(name, plan.Task{Run: o.Run, ID: o.Task}.Topic()+"-") && strings.HasSuffix(name, "_s0_q0") {
			queue = name
		}
	}
	if len(w.claims[queue]) != messagesPerCell {
		t.Errorf("messages with a claim: got %d, want %d", len(w.claims[queue]), messagesPerCell)
	}
	for _, times := range w.claims[queue] {
		n += uint64(times - 1)
	}
	return n - w.returned[queue]
}
