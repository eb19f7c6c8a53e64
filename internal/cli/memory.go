package cli

import (
	"errors"
	"fmt"
	"strconv"

	"example.org/lockstep/lockstep/internal/rules"
	"example.org/lockstep/lockstep/internal/wire"
)

// memory is a flag with a number of bytes, at least wire.MinRecord; 0: not set.
type memory int64

func (m *memory) String() string {
	if *m == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*m), 10)
}

func (m *memory) Set(text string) error {
	n, ok := rules.Memory(text)
	if !ok {
		return errors.New("not a size; pass for example 4GiB, 500MB or 1073741824")
	}
	if n < wire.MinRecord || n > maxRecord {
		return fmt.Errorf("out of range; pass %d MiB to %d TiB", int64(wire.MinRecord)>>20, int64(maxRecord)>>40)
	}
	*m = memory(n)
	return nil
}

func (*memory) Type() string { return "bytes" }

// maxRecord is the maximum of --record-limit.
const maxRecord = 64 << 40
