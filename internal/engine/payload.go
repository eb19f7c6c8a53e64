package engine

import (
	"fmt"
	"hash/crc32"
	"math/bits"
	"math/rand/v2"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// payloadGenerator makes the payloads of one publisher whose bodies differ in size or payload. The publisher's
// goroutine owns it.
type payloadGenerator struct {
	sizes  []plan.SizeShare // a share is drawn by weight, then a size uniformly within it
	choose *alias           // draws a share; nil: bodies fill their buffers
	// source is cut into payloads, one after the other. nil: the payload is constant. It is read-only, and shared by
	// the agent's publishers.
	source []byte
	at     int      // position in source
	repeat float64  // the fraction of each payload that is zeros
	sums   []uint32 // without source: CRC-32C of the first 0, 1, 2 … strides of the payload
	draws  rand.PCG
}

// stride is the maximum number of bytes whose checksum is computed per message with a constant payload: about 0.2 µs.
const stride = 4096

// minSource is larger than the window of compressors (32 KiB … 1 MiB), so that they do not find repetitions.
const minSource = 1 << 20

// newPayloadSource returns the bytes that payloads are cut from. It returns nil if the payload is constant.
func newPayloadSource(m plan.Message, task uint64, access drivers.Access) ([]byte, error) {
	largest := m.Size - EnvelopeSize
	switch m.Payload.Kind {
	case plan.PayloadCompressible:
		source := make([]byte, max(minSource, largest))
		rand.NewChaCha8(seed(task, 0, 'c')).Read(source) // never returns an error
		return source, nil
	case plan.PayloadFile:
		source, err := access.ReadPayload(m.Payload.File)
		if err != nil {
			return nil, fmt.Errorf("read payload file: %w; each agent that publishes needs it", err)
		}
		if len(source) < max(1, largest) {
			return nil,
				fmt.Errorf("read payload file %s: it has %d bytes, and the largest body takes %d of it; give a larger file or smaller messages",
					m.Payload.File, len(source), largest)
		}
		return source, nil
	}
	return nil, nil
}

// seed returns the seed of one of a task's random streams. There is one per publisher and purpose.
func seed(task uint64, publisher int, purpose byte) [32]byte {
	return [32]byte{byte(publisher), byte(publisher >> 8), byte(publisher >> 16), byte(task), byte(task >> 8),
		byte(task >> 16), byte(task >> 24),
		purpose}
}

// newPayloadGenerator returns nil for a publisher whose bodies are all alike. payload is the constant payload that is
// used without a source.
func newPayloadGenerator(m plan.Message, task uint64, source []byte, publisher int, payload []byte) *payloadGenerator {
	if len(m.Sizes) == 0 && source == nil {
		return nil
	}
	g := &payloadGenerator{source: source, draws: *rand.NewPCG(task, 1<<32|uint64(publisher))}
	if len(m.Sizes) > 0 {
		weights := make([]float64, len(m.Sizes))
		for i, s := range m.Sizes {
			weights[i] = s.Weight
		}
		g.sizes, g.choose = m.Sizes, newAlias(weights)
	}
	if m.Payload.Kind == plan.PayloadCompressible {
		g.repeat = m.Payload.Repeat
	}
	if g.source != nil {
		g.at = int(g.draws.Uint64() % uint64(len(g.source)))
		if m.Payload.Kind == plan.PayloadFile {
			g.at = 0
		}
		return g
	}
	g.sums = make([]uint32, len(payload)/stride+1)
	for i := 1; i < len(g.sums); i++ {
		g.sums[i] = crc32.Update(g.sums[i-1], castagnoli, payload[(i-1)*stride:i*stride])
	}
	return g
}

// fill makes the next body in a stamped buffer, and returns it with the checksum of its payload. The caller writes the
// fields of the message with put.
func (g *payloadGenerator) fill(buffer []byte) (body []byte, payloadSum uint32) {
	body = buffer
	if g.choose != nil {
		share := &g.sizes[g.choose.draw(&g.draws)]
		body = buffer[:share.Min+below(&g.draws, share.Max-share.Min+1)]
		putLength(body)
	}
	payload := body[EnvelopeSize:]
	if g.source == nil {
		i := len(payload) / stride
		return body, crc32.Update(g.sums[i], castagnoli, payload[i*stride:])
	}
	n := len(payload) - int(g.repeat*float64(len(payload)))
	if g.at+n > len(g.source) {
		g.at = 0
	}
	copy(payload, g.source[g.at:g.at+n])
	g.at += n
	clear(payload[n:])
	return body, crc32.Checksum(payload, castagnoli)
}

// below returns a uniform number in [0, n), n ≤ 2³². Multiplication is cheaper than division. Its bias of n/2⁶⁴ is
// negligible.
func below(r *rand.PCG, n int) int {
	hi, _ := bits.Mul64(r.Uint64(), uint64(n))
	return int(hi)
}
