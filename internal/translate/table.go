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
			t.drop(e, "not known as a key of %s: left out; is it spelt right?", of)
		}
	}
}

func (t *table) fault(e *entry, format string, a ...any) {
	t.report.fault(t.file, e.line, "%s%s: %s", t.path, e.key, fmt.Sprintf(format, a...))
}

// text returns a key's text, or fallback if it is missing.
func (t *table) text(name, fallback string) string {
	e := t.take(name)
	if e == nil {
		return fallback
	}
	if e.value.table != nil || e.value.isList {
		t.fault(e, "it is %s; it has to be text", e.value.describe())
		return fallback
	}
	return e.value.text
}

// required returns a number that must be given.
func (t *table) required(name string, least, most int64) int64 {
	if t.find(name) == nil {
		t.report.fault(t.file, t.line, "%s%s is missing: a number of %d or more", t.path, name, least)
		return least
	}
	return t.number(name, least, least, most)
}

// number returns a whole number within limits, or fallback if it is missing.
func (t *table) number(name string, fallback, least, most int64) int64 {
	e := t.take(name)
	if e == nil {
		return fallback
	}
	n, ok := e.value.whole()
	switch {
	case !ok:
		t.fault(e, "it is %s; it has to be a whole number", e.value.describe())
		return fallback
	case n < least || n > most:
		t.fault(e, "%d is out of bounds: %d to %d", n, least, most)
		return fallback
	}
	return n
}

// decimal returns a number within limits, which may have a fraction, or fallback if it is missing.
func (t *table) decimal(name string, fallback, least, most float64) float64 {
	e := t.take(name)
	if e == nil {
		return fallback
	}
	n, ok := e.value.real()
	if !ok || n < least || n > most {
		t.fault(e, "it is %s; it has to be a number from %v to %v", e.value.describe(), least, most)
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
	t.fault(e, "it is %s; it has to be true or false", e.value.describe())
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
