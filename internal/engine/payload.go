package engine

import (
	"fmt"
	"hash/crc32"
	"math/bits"
	"math/rand/v2"

	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
)

// contents is what the bodies of one publisher hold behind the envelope, and how long they are, where that differs from message to
// message. Its publisher's goroutine owns it.
type contents struct {
	sizes *sizes // nil: bodies are as long as their buffers
	// tape is what bodies are cut out of, one after the other; nil: their payload stays. All publishers of the agent read the same one.
	tape   []byte
	at     int
	repeat float64  // the part of each payload that is no tape but zeros
	sums   []uint32 // without a tape: CRC-32C of the payload's first 0, 1, 2 … strides
	draws  rand.PCG
}

// stride is how much of a payload's checksum is left to compute at most: about 0.2 µs.
const stride = 4096

// leastTape keeps what compressors look back on (32 KiB … 1 MiB) from seeing a piece again.
const leastTape = 1 << 20

// tape makes what bodies are cut out of; nil if their payload stays the same.
func (e *Engine) makeTape(access drivers.Access) ([]byte, error) {
	p, least := e.work.Message.Payload, e.work.Message.Size-EnvelopeSize
	switch p.Kind {
	case plan.PayloadCompressible:
		tape := make([]byte, max(leastTape, least))
		rand.NewChaCha8(seed(e.task, 0, 'c')).Read(tape) // never fails
		return tape, nil
	case plan.PayloadFile:
		tape, err := access.ReadPayload(p.File)
		if err != nil {
			return nil, fmt.Errorf("read payload file: %w; each agent that publishes needs it", err)
		}
		if len(tape) < max(1, least) {
			return nil, fmt.Errorf("read payload file %s: it has %d bytes, and the largest body takes %d of it; give a larger file or smaller messages",
				p.File, len(tape), least)
		}
		return tape, nil
	}
	return nil, nil
}

// seed tells random streams of a task apart: by publisher, and by what they are for.
func seed(task uint64, publisher int, what byte) [32]byte {
	return [32]byte{byte(publisher), byte(publisher >> 8), byte(publisher >> 16), byte(task), byte(task >> 8), byte(task >> 16), byte(task >> 24), what}
}

// newContents is nil for a publisher whose bodies are all alike.
func (e *Engine) newContents(publisher int, payload []byte) *contents {
	m := e.work.Message
	if len(m.Sizes) == 0 && e.tape == nil {
		return nil
	}
	c := &contents{tape: e.tape, draws: *rand.NewPCG(e.task, 1<<32|uint64(publisher))}
	if len(m.Sizes) > 0 {
		c.sizes = newSizes(m.Sizes)
	}
	if m.Payload.Kind == plan.PayloadCompressible {
		c.repeat = m.Payload.Repeat
	}
	if c.tape != nil {
		c.at = int(c.draws.Uint64() % uint64(len(c.tape)))
		if m.Payload.Kind == plan.PayloadFile {
			c.at = 0
		}
		return c
	}
	c.sums = make([]uint32, len(payload)/stride+1)
	for i := 1; i < len(c.sums); i++ {
		c.sums[i] = crc32.Update(c.sums[i-1], castagnoli, payload[(i-1)*stride:i*stride])
	}
	return c
}

// fill makes the next body in a stamped buffer, all but its times, and returns it with the checksum of its payload.
func (c *contents) fill(buffer []byte) (body []byte, payloadSum uint32) {
	body = buffer
	if c.sizes != nil {
		body = buffer[:c.sizes.draw(&c.draws)]
		putLength(body)
	}
	payload := body[EnvelopeSize:]
	if c.tape == nil {
		i := len(payload) / stride
		return body, crc32.Update(c.sums[i], castagnoli, payload[i*stride:])
	}
	n := len(payload) - int(c.repeat*float64(len(payload)))
	if c.at+n > len(c.tape) {
		c.at = 0
	}
	copy(payload, c.tape[c.at:c.at+n])
	c.at += n
	clear(payload[n:])
	return body, crc32.Checksum(payload, castagnoli)
}

// sizes is a distribution of sizes: a share is drawn by its weight, and uniformly within it.
type sizes struct {
	shares []plan.SizeShare
	choose *alias
}

func newSizes(shares []plan.SizeShare) *sizes {
	weights := make([]float64, len(shares))
	for i, s := range shares {
		weights[i] = s.Weight
	}
	return &sizes{shares, newAlias(weights)}
}

func (s *sizes) draw(r *rand.PCG) int {
	share := &s.shares[s.choose.draw(r)]
	return share.Least + below(r, share.Most-share.Least+1)
}

// below is uniform in [0, n), n up to 2³²: a product, whose unevenness of n/2⁶⁴ nobody sees, costs less than a division.
func below(r *rand.PCG, n int) int {
	hi, _ := bits.Mul64(r.Uint64(), uint64(n))
	return int(hi)
}

// prepare completes the next message in a buffer and returns its body.
func (p *publisher) prepare(buffer []byte, due, send int64) []byte {
	if p.contents == nil {
		put(buffer, p.payloadSum, p.sequence, due, send, p.e.correction.Load())
		return buffer
	}
	body, sum := p.contents.fill(buffer)
	put(body, sum, p.sequence, due, send, p.e.correction.Load())
	return body
}
