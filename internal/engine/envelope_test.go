package engine

import (
	"errors"
	"testing"
)

func TestEnvelopeRoundTrip(t *testing.T) {
	body := make([]byte, 100)
	for i := range body {
		body[i] = byte(i)
	}
	sum := stamp(body, 7, 9, 3)
	for _, want := range []envelope{{3, 0, 0, 0, 9, 0}, {3, 1 << 40, -5, 17, 9, -250e6},
		{3, 42, 1 << 50, 1<<50 + 1, 9, 1 << 60}} {
		put(body, sum, want.sequence, want.intended, want.send, want.correction)
		got, err := open(body, 7)
		if err != nil || got != want {
			t.Errorf("open: got %+v, error %v, want %+v", got, err, want)
		}
	}
	if _, err := open(body, 8); !errors.Is(err, errForeign) {
		t.Errorf("body of another task: got error %v, want errForeign", err)
	}
}

// Every changed bit of the header and the payload, and every changed length, is detected.
func TestEnvelopeCatchesEveryFlippedBit(t *testing.T) {
	body := make([]byte, 80)
	put(body, stamp(body, 7, 9, 3), 12345, 678, 910, -11)
	for i := range body {
		for bit := range 8 {
			body[i] ^= 1 << bit
			if _, err := open(body, 7); !errors.Is(err, errCorrupt) {
				t.Errorf("byte %d, bit %d flipped: got error %v, want errCorrupt", i, bit, err)
			}
			body[i] ^= 1 << bit
		}
	}
	if _, err := open(body[:79], 7); !errors.Is(err, errCorrupt) {
		t.Errorf("shortened body: got error %v, want errCorrupt", err)
	}
	if _, err := open(append(body, 0), 7); !errors.Is(err, errCorrupt) {
		t.Errorf("extended body: got error %v, want errCorrupt", err)
	}
	if _, err := open(nil, 7); !errors.Is(err, errCorrupt) {
		t.Errorf("empty body: got error %v, want errCorrupt", err)
	}
}

func FuzzOpen(f *testing.F) {
	body := make([]byte, 64)
	put(body, stamp(body, 7, 9, 3), 1, 2, 3, 4)
	f.Add(body)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := open(b, 7); err == nil && len(b) < EnvelopeSize {
			t.Errorf("open of %d bytes: got no error", len(b))
		}
	})
}
