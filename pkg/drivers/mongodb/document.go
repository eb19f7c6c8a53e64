package mongodb

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A message is a document of five fields: its ID, the time from which it may be claimed, a random number, the number of
// claims, and its body.
const (
	fieldID     = "_id"
	fieldAt     = "at"
	fieldRandom = "r" // 0 to 2³¹-1
	fieldCount  = "n"
	fieldBody   = "body"
)

// byInsertion and byRandom are the orders of the index: unclaimed messages first.
var (
	byInsertion = bson.D{{Key: fieldAt, Value: 1}, {Key: fieldID, Value: 1}}
	byRandom    = bson.D{{Key: fieldAt, Value: 1}, {Key: fieldRandom, Value: 1}}
)

// unclaimed is the time of messages that no consumer has claimed. It is the lowest time, so that they are claimed
// first.
var unclaimed = bson.DateTime(0)

// Types and subtypes of BSON.
const (
	typeBinary   = 0x05
	typeObjectID = 0x07
	typeDateTime = 0x09
	typeInt32    = 0x10
)

// overhead is the size of a document without its body.
const overhead = 4 + (1 + 4 + 12) + (1 + 3 + 8) + (1 + 2 + 4) + (1 + 2 + 4) + (1 + 5 + 4 + 1) + 1

// appendMessage appends an unclaimed message to b. Encoding by hand costs one copy of the body and no allocation.
func appendMessage(b []byte, id bson.ObjectID, body []byte) []byte {
	order := binary.LittleEndian
	b = order.AppendUint32(b, uint32(overhead+len(body)))
	b = append(append(b, typeObjectID), fieldID+"\x00"...)
	b = append(b, id[:]...)
	b = append(append(b, typeDateTime), fieldAt+"\x00"...)
	b = order.AppendUint64(b, uint64(unclaimed))
	b = append(append(b, typeInt32), fieldRandom+"\x00"...)
	b = order.AppendUint32(b, uint32(mathrand.Int32()))
	b = append(append(b, typeInt32), fieldCount+"\x00"...)
	b = order.AppendUint32(b, 0)
	b = append(append(b, typeBinary), fieldBody+"\x00"...)
	b = order.AppendUint32(b, uint32(len(body)))
	b = append(b, bson.TypeBinaryGeneric)
	b = append(b, body...)
	return append(b, 0)
}

type claimed struct {
	id    bson.ObjectID
	count int32 // number of claims before this one
	body  []byte
}

var errForeign = errors.New("the collection contains a document that is not a message of Lockstep")

func readMessage(raw bson.Raw) (m claimed, err error) {
	var is [3]bool
	m.id, is[0] = raw.Lookup(fieldID).ObjectIDOK()
	m.count, is[1] = raw.Lookup(fieldCount).Int32OK()
	_, m.body, is[2] = raw.Lookup(fieldBody).BinaryOK()
	if is != [3]bool{true, true, true} {
		return m, fmt.Errorf("read message: %w", errForeign)
	}
	return m, nil
}

// ids creates increasing IDs that no other publisher creates: the second, the nanosecond in it, and four random bytes.
// The IDs of a publisher that connects again are larger than those of its predecessor. ids is used by one goroutine.
type ids struct {
	mine [4]byte
	last int64
}

func newIDs() *ids {
	i := &ids{}
	_, _ = rand.Read(i.mine[:]) // never fails
	return i
}

func (i *ids) next(now time.Time) (id bson.ObjectID) {
	i.last = max(i.last+1, now.UnixNano())
	binary.BigEndian.PutUint32(id[:], uint32(i.last/int64(time.Second)))
	binary.BigEndian.PutUint32(id[4:], uint32(i.last%int64(time.Second)))
	copy(id[8:], i.mine[:])
	return id
}
