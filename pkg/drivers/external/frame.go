package external

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Bounds of a frame, in both directions, in bytes. A batch of messages has at most windowBytes plus one message.
const (
	maxHeader  = 1 << 20
	maxBody    = 64 << 20
	maxMessage = 32 << 20

	// Bounds per publisher and per consumer of what was sent and not yet taken or handled by the receiver.
	windowMessages = 1024
	windowBytes    = 4 << 20
)

// frame is one message of the protocol: two lengths, a JSON header, and a body.
type frame struct{ header, body []byte }

// readFrame reads one frame. It may reuse header for the frame's header; the body is always new. It returns io.EOF at
// an end between frames.
func readFrame(r io.Reader, header []byte) (frame, error) {
	var lengths [8]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return frame{}, fmt.Errorf("read frame: it ends within its lengths: %w", err)
		}
		return frame{}, err
	}
	h, b := binary.BigEndian.Uint32(lengths[:4]), binary.BigEndian.Uint32(lengths[4:])
	if h < 2 || h > maxHeader || b > maxBody {
		return frame{},
			fmt.Errorf("read frame: %q is not the start of a frame (a header has 2 to %d bytes, a body at most %d); write only frames to standard output",
				lengths[:], maxHeader, maxBody)
	}
	if uint32(cap(header)) < h {
		header = make([]byte, h)
	}
	f := frame{header: header[:h]}
	if _, err := io.ReadFull(r, f.header); err != nil {
		return frame{}, fmt.Errorf("read frame: it ends within its header: %w", err)
	}
	if b == 0 {
		return f, nil
	}
	f.body = make([]byte, b)
	if _, err := io.ReadFull(r, f.body); err != nil {
		return frame{}, fmt.Errorf("read frame: it ends within its body: %w", err)
	}
	return f, nil
}

// writeFrame writes a frame to w. It does not flush w.
func writeFrame(w *bufio.Writer, header, body []byte) error {
	var lengths [8]byte
	binary.BigEndian.PutUint32(lengths[:4], uint32(len(header)))
	binary.BigEndian.PutUint32(lengths[4:], uint32(len(body)))
	for _, part := range [][]byte{lengths[:], header, body} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}
