package history

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"lockstep/internal/plan"
)

// A point is the values of one outcome. Its key orders the points of a cell by time; its texts are numbers of a dictionary.

// pointKey is the cell, the begin of the run, the run, and the repetition.
func pointKey(cell string, at time.Time, run string, repetition int) []byte {
	key := append([]byte(cell), 0)
	key = binary.BigEndian.AppendUint64(key, uint64(at.UnixNano()))
	key = append(append(key, run...), 0)
	return binary.BigEndian.AppendUint16(key, uint16(repetition))
}

func readKey(key []byte, cell string) (at time.Time, run string, repetition int, err error) {
	const times, end = 8, 3
	rest := key[min(len(key), len(cell)+1):]
	if len(rest) < times+end {
		return at, "", 0, fmt.Errorf("read a point of cell %s: %w", cell, ErrDamaged)
	}
	at = time.Unix(0, int64(binary.BigEndian.Uint64(rest))).UTC()
	return at, string(rest[times : len(rest)-end]), int(binary.BigEndian.Uint16(rest[len(rest)-2:])), nil
}

// Kinds of values, the lowest two bits of the number that names one.
const (
	kindZero = iota
	kindNumber
	kindNone // why there is none
	kindMore // number, bound, samples beyond the range, flags
)

// dictionary numbers texts, within one transaction.
type dictionary struct {
	numbers, texts *bbolt.Bucket
	known          map[string]uint64
	read           map[uint64]string
}

func dictionaryOf(tx *bbolt.Tx) *dictionary {
	return &dictionary{numbers: tx.Bucket(bucketNames), texts: tx.Bucket(bucketTexts), known: map[string]uint64{}, read: map[uint64]string{}}
}

// find is the number of a text that is known.
func (d *dictionary) find(text string) (uint64, bool) {
	if n, has := d.known[text]; has {
		return n, true
	}
	b := d.numbers.Get([]byte("t" + text))
	if b == nil {
		return 0, false
	}
	n, _ := binary.Uvarint(b)
	d.known[text] = n
	return n, true
}

func (d *dictionary) number(text string) (uint64, error) {
	if n, has := d.find(text); has {
		return n, nil
	}
	n, err := d.texts.NextSequence()
	if err == nil {
		key := binary.AppendUvarint(nil, n)
		if err = d.texts.Put(key, []byte(text)); err == nil {
			err = d.numbers.Put([]byte("t"+text), key)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("keep a name: %w", err)
	}
	d.known[text] = n
	return n, nil
}

func (d *dictionary) text(n uint64) string {
	if text, has := d.read[n]; has {
		return text
	}
	text := string(d.texts.Get(binary.AppendUvarint(nil, n)))
	d.read[n] = text
	return text
}

// head is what a point says besides its values.
type head struct{ environment, subject, version, verdict string }

// encode writes a point.
func (d *dictionary) encode(h head, values map[string]plan.Value) ([]byte, error) {
	var out []byte
	for _, text := range []string{h.environment, h.subject, h.version, h.verdict} {
		n, err := d.number(text)
		if err != nil {
			return nil, err
		}
		out = binary.AppendUvarint(out, n)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		n, err := d.number(name)
		if err == nil {
			out, err = d.appendValue(out, n<<2, values[name])
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (d *dictionary) appendValue(out []byte, name uint64, v plan.Value) ([]byte, error) {
	switch {
	case v.NA != "":
		n, err := d.number(v.NA)
		return binary.AppendUvarint(binary.AppendUvarint(out, name|kindNone), n), err
	case v.Bound != 0 || v.Over != 0 || len(v.Flags) > 0:
		out = binary.AppendUvarint(out, name|kindMore)
		out = binary.BigEndian.AppendUint64(out, math.Float64bits(v.Number))
		out = binary.BigEndian.AppendUint64(out, math.Float64bits(v.Bound))
		out = binary.AppendUvarint(binary.AppendUvarint(out, v.Over), uint64(len(v.Flags)))
		for _, f := range v.Flags {
			n, err := d.number(string(f))
			if err != nil {
				return nil, err
			}
			out = binary.AppendUvarint(out, n)
		}
		return out, nil
	case v.Number == 0:
		return binary.AppendUvarint(out, name), nil // kindZero is none of the bits
	}
	return binary.BigEndian.AppendUint64(binary.AppendUvarint(out, name|kindNumber), math.Float64bits(v.Number)), nil
}

// decode reads a point's head, and one of its values; has tells whether there is one of that name.
func (d *dictionary) decode(point []byte, wanted uint64) (h head, v plan.Value, has bool, err error) {
	r := reader{rest: point}
	for _, to := range []*string{&h.environment, &h.subject, &h.version, &h.verdict} {
		*to = d.text(r.uvarint())
	}
	for len(r.rest) > 0 && !r.short {
		name := r.uvarint()
		value := d.value(&r, int(name&3), name>>2 == wanted)
		if name>>2 == wanted {
			v, has = value, true
			break
		}
	}
	if r.short {
		err = ErrDamaged
	}
	return h, v, has, err
}

// value reads one value; its texts only if it is wanted.
func (d *dictionary) value(r *reader, kind int, wanted bool) (v plan.Value) {
	switch kind {
	case kindNumber:
		v.Number = r.float()
	case kindNone:
		if n := r.uvarint(); wanted {
			v.NA = d.text(n)
		}
	case kindMore:
		v.Number, v.Bound, v.Over = r.float(), r.float(), r.uvarint()
		for range min(r.uvarint(), 64) {
			if n := r.uvarint(); wanted {
				v.Flags = append(v.Flags, plan.Flag(d.text(n)))
			}
		}
	}
	return v
}

// reader reads numbers; short says that there were too few bytes.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) uvarint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.rest, r.short = nil, true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) float() float64 {
	if len(r.rest) < 8 {
		r.rest, r.short = nil, true
		return 0
	}
	bits := binary.BigEndian.Uint64(r.rest)
	r.rest = r.rest[8:]
	return math.Float64frombits(bits)
}
