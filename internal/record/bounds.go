package record

import (
	"encoding/json"
	"fmt"
)

// Limits of the decoded size of a snapshot, relative to its encoded size. They protect the memory of readers from
// hostile snapshots. Agents never write a list element in fewer bytes than minElement. Beyond a fixed allowance, their
// windows, histograms and pages never expand by more than these factors.
const (
	minElement   = 16
	freeWindows  = 1 << 13 // about 600 bytes each, while a snapshot is read
	bytesAWindow = 64
	freePayload  = 1 << 20 // bytes of histograms; each byte is at most one bucket
	payloadEach  = 2
	freePages    = 1 << 14 // pages neither full nor empty: 512 bytes each
	bytesAPage   = 32
)

// Memory of the parts of a Merged in bytes. Each is an upper bound, including the maps and the unused capacity of
// lists. TestMemoryIsAnUpperBound compares them with the heap.
const (
	memorySnapshot     = 192
	memoryHost         = 512
	memoryAgent        = 2 << 10
	memoryGroup        = 4 << 10
	memoryWindow       = 640
	memoryHist         = 768 // without buckets
	memoryElement      = 256 // of a list
	memoryGap          = 144
	memoryPublisher    = 2 << 10
	memorySubscription = 256 // of a publisher
	memoryPage         = 64  // of a full page
)

// budget is the remaining allowance of the snapshot that is being read.
type budget struct{ size, payload, pages int }

func newBudget(size int) *budget {
	return &budget{size: size, payload: freePayload + payloadEach*size, pages: freePages + size/bytesAPage}
}

func (b *budget) unpack(payload int) error {
	if b.payload -= payload; b.payload < 0 {
		return fmt.Errorf("its histograms unpack to more than %d bytes, the bound for %d bytes of snapshot",
			freePayload+payloadEach*b.size, b.size)
	}
	return nil
}

func (b *budget) page() error {
	if b.pages--; b.pages < 0 {
		return fmt.Errorf("it has more than %d pages of sets, the bound for %d bytes of snapshot",
			freePages+b.size/bytesAPage, b.size)
	}
	return nil
}

// list is a list in a snapshot. Its elements are counted before memory is allocated for them.
type list[T any] []T

func (l *list[T]) UnmarshalJSON(data []byte) error {
	limit := max(1, len(data)/minElement)
	if _, windows := any(l).(*list[windowText]); windows {
		limit = freeWindows + len(data)/bytesAWindow
	}
	n := elements(data)
	if n > limit {
		return fmt.Errorf("read snapshot: a list has %d elements in %d bytes: the bound is %d", n, len(data), limit)
	}
	all := make([]T, 0, n)
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*l = nil
	if len(all) > 0 {
		*l = all
	}
	return nil
}

// elements returns the number of elements of a valid JSON list.
func elements(data []byte) (n int) {
	depth, text, some := 0, false, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text:
			if c == '\\' {
				i++
			}
			text = c != '"'
		case c == '"':
			text, some = true, true
		case c == '[' || c == '{':
			some = some || depth > 0
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 1:
			n++
		case c > ' ' && depth > 0:
			some = true
		}
	}
	if some {
		n++
	}
	return n
}
