package relay

import "encoding/binary"

// fields reads a method's arguments, in order. Reading beyond their end makes them bad and gives zeros.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) take(n int) []byte {
	if n < 0 || n > len(f.rest) {
		f.bad, f.rest = true, nil
		return make([]byte, min(max(n, 0), 8)) // enough for any number
	}
	taken := f.rest[:n]
	f.rest = f.rest[n:]
	return taken
}

func (f *fields) u16() uint16 { return binary.BigEndian.Uint16(f.take(2)) }
func (f *fields) u32() uint32 { return binary.BigEndian.Uint32(f.take(4)) }

// short reads a short string.
func (f *fields) short() string {
	text := string(f.take(int(f.take(1)[0])))
	if f.bad {
		return ""
	}
	return text
}

// long reads a long string, or a table as its bytes.
func (f *fields) long() string {
	text := string(f.take(int(f.u32())))
	if f.bad {
		return ""
	}
	return text
}

// start begins a method with numbers of 16 bits as its first arguments.
func start(m method, numbers ...uint16) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(m))
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	return b
}

func appendShort(b []byte, text string) []byte {
	text = text[:min(len(text), 255)]
	return append(append(b, byte(len(text))), text...)
}

func appendLong(b []byte, text string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

// properties is the table by which either side introduces itself, with the extensions of RabbitMQ that pass through.
func properties() string {
	var can []byte
	for _, name := range []string{
		"publisher_confirms", "basic.nack", "consumer_cancel_notify", "exchange_exchange_bindings",
		"connection.blocked", "authentication_failure_close", "per_consumer_qos",
	} {
		can = append(appendShort(can, name), 't', 1)
	}
	table := appendLong(append(appendShort(nil, "product"), 'S'), product)
	table = appendLong(append(appendShort(table, "version"), 'S'), "0")
	table = appendLong(append(appendShort(table, "capabilities"), 'F'), string(can))
	return string(table)
}
