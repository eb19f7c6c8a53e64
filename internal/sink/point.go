package sink

import (
	"maps"
	"math"
	"strings"
	"time"

	"github.com/influxdata/influxdb-client-go/v2/api/write"
)

// Point is one point as InfluxDB stores it. Points with equal Measurement, Tags and Time are one point, and later
// fields replace earlier ones. So writing a run again changes nothing.
type Point struct {
	Measurement string
	Tags        map[string]string
	Fields      map[string]any // int64, float64 or string; integers are signed
	Time        time.Time
}

// with returns a copy of tags with additional pairs of keys and values.
func with(tags map[string]string, more ...string) map[string]string {
	all := make(map[string]string, len(tags)+len(more)/2)
	maps.Copy(all, tags)
	for i := 0; i < len(more); i += 2 {
		if value := tagValue(more[i+1]); value != "" { // InfluxDB has no empty tags
			all[more[i]] = value
		}
	}
	return all
}

// maxTag is the maximum length of a tag in bytes. It bounds what a matrix can add to InfluxDB's index.
const maxTag = 100

// plain replaces characters that are not allowed in a tag or a query. Line protocol cannot represent every backslash
// and line end. In quotes, Flux reads a backslash as an escape and ${ as an expression, which Grafana does not consider
// when it inserts a variable.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == '\\' {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(text, "_"))
	return strings.ReplaceAll(text, "${", "$_")
}

// tagValue makes text valid for a tag.
func tagValue(text string) string {
	text = plain(text)
	if len(text) > maxTag {
		text = strings.ToValidUTF8(text[:maxTag], "")
	}
	return strings.TrimSpace(text)
}

// maxText is the maximum length of a text field in bytes.
const maxText = 2000

// text makes text valid for a field.
func text(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSpace(s), "_"))
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}

// line returns the point in line protocol; empty: it has no fields, or InfluxDB cannot store its time.
func (p Point) line() string {
	fields := make(map[string]any, len(p.Fields))
	for key, v := range p.Fields {
		if f, is := v.(float64); is && (math.IsNaN(f) || math.IsInf(f, 0)) {
			continue // line protocol cannot represent it
		}
		fields[key] = v
	}
	if y := p.Time.Year(); len(fields) == 0 || y < 1970 || y > 2200 {
		return ""
	}
	// The client's own encoder sorts tags and fields, so that equal points are equal lines.
	return strings.TrimSuffix(write.PointToLineProtocol(write.NewPoint(p.Measurement, p.Tags, fields, p.Time),
		time.Nanosecond), "\n")
}
