package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Limits of documents from other processes and from records.
const (
	// MaxDocument is the maximum size in bytes of a run as the control plane stores it: JSON without indentation. A
	// cell has at least 1,500 bytes.
	MaxDocument = 16 << 20
	// MaxFile is the maximum size in bytes of a document in a file of a record or a bundle. Indentation makes it up to
	// four times as long.
	MaxFile  = 4 * MaxDocument
	MaxCells = 10_000 // per run
	MaxTasks = 50_000 // per run: cells × repetitions
)

const (
	maxMemory = 64 << 20 // bytes that lists, maps and pointers of a document may allocate
	maxDepth  = 100      // nesting depth of lists and objects
	// shortDocument is the size in bytes up to which a document is not metered: it cannot allocate more than maxMemory.
	shortDocument = 64 << 10
)

// ErrTooLarge is wrapped by the errors of documents beyond these limits.
var ErrTooLarge = errors.New("too large")

// ReadRun decodes the run of a record, of at most limit bytes. It checks the format and Run.CheckShape.
func ReadRun(r io.Reader, limit int64) (Run, error) {
	var run Run
	err := Decode(r, limit, &run)
	if err == nil || run.Version != 0 { // a run of another format may not decode: report the format first
		err = cmp.Or(CheckFormat(run.Version), err)
	}
	if err == nil {
		err = run.CheckShape()
	}
	if err != nil {
		return Run{}, err
	}
	return run, nil
}

// Decode reads one JSON document of at most limit bytes into the value that v points to. The memory that its decoded
// form needs is counted before anything is allocated. An empty object of three bytes may otherwise become an element of
// a thousand bytes.
func Decode(r io.Reader, limit int64, v any) error {
	_, err := decodeMetered(r, limit, shortDocument, v)
	return err
}

// DecodeSized is Decode that returns an estimate of the bytes of memory that the decoded document uses.
func DecodeSized(r io.Reader, limit int64, v any) (size int, err error) {
	return decodeMetered(r, limit, 0, v)
}

// decodeMetered meters documents of more than unmetered bytes.
func decodeMetered(r io.Reader, limit int64, unmetered int, v any) (size int, err error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return 0, err
	}
	if int64(len(text)) > limit {
		return 0, fmt.Errorf("more than %d bytes: %w", limit, ErrTooLarge)
	}
	m := meter{tokens: json.NewDecoder(bytes.NewReader(text)), fields: map[reflect.Type]map[string]reflect.Type{}}
	if len(text) > unmetered {
		if err := m.value(reflect.TypeOf(v), 0); err != nil {
			return 0, err
		}
	}
	return len(text) + int(m.memory), json.Unmarshal(text, v)
}

// meter counts the memory that decoding a document allocates.
type meter struct {
	tokens *json.Decoder
	memory uintptr // bytes
	cells  int
	fields map[reflect.Type]map[string]reflect.Type // types of the fields of structs, by folded name
}

// value counts the next value, which is decoded into type t. t is nil for unknown fields and for types with their own
// decoder.
func (m *meter) value(t reflect.Type, depth int) error {
	token, err := m.tokens.Token()
	if err != nil {
		return err
	}
	open, nested := token.(json.Delim)
	if !nested {
		return nil // a decoded scalar is not larger than its text
	}
	if depth > maxDepth {
		return fmt.Errorf("more than %d lists and objects in each other: %w", maxDepth, ErrTooLarge)
	}
	// Processes accepts one object or a list.
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && open == '{') {
		t = t.Elem()
	}
	for m.tokens.More() {
		field := ""
		if open == '{' {
			key, err := m.tokens.Token()
			if err != nil {
				return err
			}
			field, _ = key.(string)
		}
		inner, err := m.charge(t, field)
		if err == nil {
			err = m.value(inner, depth+1)
		}
		if err != nil {
			return err
		}
	}
	_, err = m.tokens.Token()
	return err
}

// charge counts one element of a value of type t, and returns the type of the element.
func (m *meter) charge(t reflect.Type, field string) (inner reflect.Type, err error) {
	const unknown = 64 // estimate for an element of unknown type
	size := uintptr(unknown)
	switch {
	case t == nil:
	case t.Kind() == reflect.Struct:
		size = 0 // fields were counted with the struct
		if inner = m.field(t, field); inner != nil && inner.Kind() == reflect.Pointer {
			size = inner.Elem().Size()
		}
	case t.Kind() == reflect.Map:
		inner = t.Elem()
		size = 2 * (t.Key().Size() + inner.Size())
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		inner = t.Elem()
		size = inner.Size()
	}
	if m.memory += size; m.memory > maxMemory {
		return nil, fmt.Errorf("it takes more than %d bytes of memory: %w", maxMemory, ErrTooLarge)
	}
	if inner == reflect.TypeFor[Cell]() {
		if m.cells++; m.cells > MaxCells {
			return nil, fmt.Errorf("more than %d cells: %w", MaxCells, ErrTooLarge)
		}
	}
	return inner, nil
}

// field returns the type of the struct field into which encoding/json decodes a key; nil if there is none.
func (m *meter) field(t reflect.Type, key string) reflect.Type {
	fold := func(s string) string { return strings.ToLower(strings.ToUpper(s)) } // case folding, as encoding/json does
	if m.fields[t] == nil {
		m.fields[t] = map[string]reflect.Type{}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			m.fields[t][fold(cmp.Or(name, f.Name))] = f.Type
		}
	}
	return m.fields[t][fold(key)]
}
