package translate

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// field is a field in CUE. Its value is text, a number, a Boolean, fields, a list or an expression.
type field struct {
	name  string
	value any
}

// expression is literal CUE.
type expression string

// seconds, milliseconds and minutes format durations as in matrices.
func seconds(n int64) string      { return strconv.FormatInt(n, 10) + "s" }
func milliseconds(n int64) string { return strconv.FormatInt(n, 10) + "ms" }
func minutes(n int64) string      { return strconv.FormatInt(n, 10) + "m" }

var identifier = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)

func label(name string) string {
	if identifier.MatchString(name) {
		return name
	}
	return quote(name)
}

// quote formats text as a JSON string, which is valid CUE.
func quote(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string never fails
	return strings.TrimSuffix(b.String(), "\n")
}

// literal formats a value on one line.
func literal(v any) string {
	switch v := v.(type) {
	case expression:
		return string(v)
	case string:
		return quote(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []field:
		parts := make([]string, len(v))
		for i, f := range v {
			parts[i] = label(f.name) + ": " + literal(f.value)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			parts[i] = literal(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// write writes fields, one per line, without indentation.
func write(b *strings.Builder, fields []field) {
	for _, f := range fields {
		path, v := label(f.name)+":", f.value
		for {
			inner, isTable := v.([]field)
			if !isTable || len(inner) != 1 {
				break
			}
			path, v = path+" "+label(inner[0].name)+":", inner[0].value
		}
		if inner, isTable := v.([]field); isTable && len(inner) > 0 {
			b.WriteString(path + " {\n")
			write(b, inner)
			b.WriteString("}\n")
			continue
		}
		b.WriteString(path + " " + literal(v) + "\n")
	}
}

// matrix writes a whole file, without alignment.
func matrix(from string, lost []Lost, fields []field) string {
	var b strings.Builder
	b.WriteString("// " + from + "\n")
	if len(lost) > 0 {
		b.WriteString("//\n// Settings without an exact counterpart:\n//\n")
		for _, l := range lost {
			b.WriteString("//\t" + strings.Map(printable, l.String()) + "\n")
		}
	}
	b.WriteString("package matrix\n\n")
	for i, f := range fields {
		if i > 0 {
			b.WriteString("\n")
		}
		write(&b, []field{f})
	}
	return b.String()
}

// printable replaces control characters, so that a comment stays on its line.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

var unnamed = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// name converts any text to a valid name of a matrix.
func name(text, fallback string) string {
	text = strings.Trim(unnamed.ReplaceAllString(text, "-"), "-._")
	if len(text) > 100 {
		text = strings.TrimRight(text[:100], "-._")
	}
	if text == "" {
		return fallback
	}
	return text
}
