package translate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

func (t *table) find(name string) *entry {
	for _, e := range t.keys {
		if e.name == name {
			return e
		}
	}
	return nil
}

// take returns a key and marks it as used. It returns nil if the key is missing or has no value.
func (t *table) take(name string) *entry {
	e := t.find(name)
	if e == nil {
		return nil
	}
	t.use(e)
	if e.value.null {
		return nil
	}
	return e
}

// peek returns a key's text without marking the key as used; "" if it is missing.
func (t *table) peek(name string) string {
	if e := t.find(name); e != nil {
		return e.value.text
	}
	return ""
}

func (t *table) use(e *entry) {
	if !e.done {
		e.done = true
		t.report.used = append(t.report.used, fmt.Sprintf("%s:%d: %s%s", t.file, e.line, t.path, e.key))
	}
}

// lose records that a key has no counterpart, with the reason.
func (t *table) lose(name, why string, a ...any) {
	if e := t.find(name); e != nil {
		t.drop(e, why, a...)
	}
}

func (t *table) drop(e *entry, why string, a ...any) {
	e.done = true
	t.report.lost = append(t.report.lost, Lost{t.file, e.line, t.path + e.key, fmt.Sprintf(why, a...)})
}

// remark records a remark on a key that is used.
func (t *table) remark(name, why string, a ...any) {
	if e := t.find(name); e != nil {
		t.report.lost = append(t.report.lost, Lost{t.file, e.line, t.path + e.key, fmt.Sprintf(why, a...)})
	}
}

// rest drops all keys that were not used.
func (t *table) rest(of string) {
	for _, e := range t.keys {
		if !e.done {
			t.drop(e, "no known key of %s: ignored; check the spelling", of)
		}
	}
}

func (t *table) invalid(e *entry, format string, a ...any) {
	t.report.invalid(t.file, e.line, "%s%s: %s", t.path, e.key, fmt.Sprintf(format, a...))
}

// text returns a key's text, or fallback if it is missing.
func (t *table) text(name, fallback string) string {
	e := t.take(name)
	if e == nil {
		return fallback
	}
	if e.value.table != nil || e.value.isList {
		t.invalid(e, "it is %s; give text", e.value.describe())
		return fallback
	}
	return e.value.text
}

// required returns a number that must be given.
func (t *table) required(name string, minimum, maximum int64) int64 {
	if t.find(name) == nil {
		t.report.invalid(t.file, t.line, "%s%s is missing: give a number of at least %d", t.path, name, minimum)
		return minimum
	}
	return t.number(name, minimum, minimum, maximum)
}

// number returns a whole number within limits, or fallback if it is missing.
func (t *table) number(name string, fallback, minimum, maximum int64) int64 {
	e := t.take(name)
	if e == nil {
		return fallback
	}
	n, ok := e.value.whole()
	switch {
	case !ok:
		t.invalid(e, "it is %s; give a whole number", e.value.describe())
		return fallback
	case n < minimum || n > maximum:
		t.invalid(e, "%d is out of range: give %d to %d", n, minimum, maximum)
		return fallback
	}
	return n
}

// decimal returns a number within limits, which may have a fraction, or fallback if it is missing.
func (t *table) decimal(name string, fallback, minimum, maximum float64) float64 {
	e := t.take(name)
	if e == nil {
		return fallback
	}
	n, ok := e.value.real()
	if !ok || n < minimum || n > maximum {
		t.invalid(e, "it is %s; give a number from %v to %v", e.value.describe(), minimum, maximum)
		return fallback
	}
	return n
}

// yes returns a Boolean, or fallback if it is missing.
func (t *table) yes(name string, fallback bool) bool {
	e := t.take(name)
	if e == nil {
		return fallback
	}
	switch strings.ToLower(e.value.text) {
	case "true":
		return true
	case "false":
		return false
	}
	t.invalid(e, "it is %s; give true or false", e.value.describe())
	return fallback
}

// real parses a number.
func (v value) real() (float64, bool) {
	if v.table != nil || v.isList || v.null {
		return 0, false
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(v.text, "_", ""), 64)
	return n, err == nil && !math.IsInf(n, 0) && !math.IsNaN(n)
}

// whole parses a whole number, which may be written as 30.0 or 1e3.
func (v value) whole() (int64, bool) {
	n, ok := v.real()
	return int64(n), ok && n == math.Trunc(n) && math.Abs(n) < 1<<53
}
