package engine

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"hash/fnv"

	"example.org/lockstep/lockstep/internal/plan"
)

// EnvelopeSize is the length in bytes of the envelope at the beginning of every body. No message can be smaller.
//
//	 0  version (2)          32 send time, ns since T0
//	 1  kind                 40 identity of the clock of both times
//	 4  publisher            48 correction: ns to add to both times for the reference clock
//	 8  task                 56 length of the body
//	16  sequence, from 0     60 CRC-32C of bytes 64… (the payload), then of bytes 0…59
//	24  intended send time, ns since T0
//
// Numbers are little endian. The checksum covers the payload first. A publisher with a constant payload therefore
// computes only the part of the header for each message.
const EnvelopeSize = plan.MinMessageSize

const envelopeVersion = 2

var (
	errCorrupt = errors.New("envelope does not verify")
	errForeign = errors.New("envelope of another task")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// envelope is the content of an envelope.
type envelope struct {
	publisher  uint32
	sequence   uint64
	intended   int64
	send       int64
	clock      uint64 // identity of the clock that intended and send were read from
	correction int64  // of the publisher's agent: see Engine.Correct
}

// identity returns the number that represents a task or a clock in envelopes.
func identity(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s)) // never returns an error
	return h.Sum64()
}

// stamp writes the fields that are the same in every message of a publisher, and returns the checksum of the payload.
func stamp(body []byte, task, clock uint64, publisher uint32) (payloadSum uint32) {
	clear(body[:EnvelopeSize])
	body[0] = envelopeVersion
	binary.LittleEndian.PutUint32(body[4:], publisher)
	binary.LittleEndian.PutUint64(body[8:], task)
	binary.LittleEndian.PutUint64(body[40:], clock)
	putLength(body)
	return crc32.Checksum(body[EnvelopeSize:], castagnoli)
}

// putLength writes the length of a body. It is called again when a stamped buffer is shortened.
func putLength(body []byte) { binary.LittleEndian.PutUint32(body[56:], uint32(len(body))) }

// put writes the fields of one message, and the checksum, into a stamped body.
func put(body []byte, payloadSum uint32, sequence uint64, intended, send, correction int64) {
	_ = body[EnvelopeSize-1]
	binary.LittleEndian.PutUint64(body[16:], sequence)
	binary.LittleEndian.PutUint64(body[24:], uint64(intended))
	binary.LittleEndian.PutUint64(body[32:], uint64(send))
	binary.LittleEndian.PutUint64(body[48:], uint64(correction))
	binary.LittleEndian.PutUint32(body[60:], crc32.Update(payloadSum, castagnoli, body[:60]))
}

// claims reports whether a body that does not verify has the beginning of an envelope of the task.
func claims(body []byte, task uint64) bool {
	return len(body) >= 16 && body[0] == envelopeVersion && binary.LittleEndian.Uint64(body[8:]) == task
}

// open verifies a body and returns its envelope. It returns errCorrupt or errForeign.
func open(body []byte, task uint64) (envelope, error) {
	if len(body) < EnvelopeSize || body[0] != envelopeVersion ||
		binary.LittleEndian.Uint32(body[56:]) != uint32(len(body)) {
		return envelope{}, errCorrupt
	}
	sum := crc32.Update(crc32.Checksum(body[EnvelopeSize:], castagnoli), castagnoli, body[:60])
	if sum != binary.LittleEndian.Uint32(body[60:]) {
		return envelope{}, errCorrupt
	}
	if binary.LittleEndian.Uint64(body[8:]) != task {
		return envelope{}, errForeign
	}
	return envelope{
		publisher:  binary.LittleEndian.Uint32(body[4:]),
		sequence:   binary.LittleEndian.Uint64(body[16:]),
		intended:   int64(binary.LittleEndian.Uint64(body[24:])),
		send:       int64(binary.LittleEndian.Uint64(body[32:])),
		clock:      binary.LittleEndian.Uint64(body[40:]),
		correction: int64(binary.LittleEndian.Uint64(body[48:])),
	}, nil
}
