package sink

import (
	"maps"
	"math"
	"strings"
	"time"

	"github.com/influxdata/influxdb-client-go/v2/api/write"
)

// Point is one point as InfluxDB keeps it: points that agree in Measurement, Tags and Time are one, and the fields of
// the later one replace those of the earlier. That is why writing a run again changes nothing.
type Point struct {
	Measurement string
	Tags        map[string]string
	Fields      map[string]any // int64, float64 or string: numbers are signed
	Time        time.Time
}

// with returns tags and some more; tags stay as they are.
func with(tags map[string]string, more ...string) map[string]string {
	all := make(map[string]string, len(tags)+len(more)/2)
	maps.Copy(all, tags)
	for i := 0; i < len(more); i += 2 {
		if value := tagValue(more[i+1]); value != "" { // an empty tag is no tag
			all[more[i]] = value
		}
	}
	return all
}

// maxTag bounds what a matrix can put into InfluxDB's index, in bytes.
const maxTag = 100

// plain spells text so that it may be a tag and stand in a query: line protocol cannot hold every backslash and line
// end, and between quotes Flux takes a backslash for an escape and ${ for an expression, which Grafana does not know
// when it fills in a variable.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == '\\' {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(text, "_"))
	return strings.ReplaceAll(text, "${", "$_")
}

// tagValue makes text fit for a tag.
func tagValue(text string) string {
	text = plain(text)
	if len(text) > maxTag {
		text = strings.ToValidUTF8(text[:maxTag], "")
	}
	return strings.TrimSpace(text)
}

// maxText is how much of a text field is written, in bytes.
const maxText = 2000

// text makes text fit for a field.
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

// line writes the point in line protocol. A point without fields, or whose time InfluxDB cannot hold, has none.
func (p Point) line() string {
	fields := make(map[string]any, len(p.Fields))
	for key, v := range p.Fields {
		if f, is := v.(float64); is && (math.IsNaN(f) || math.IsInf(f, 0)) {
			continue // line protocol has no way to say it
		}
		fields[key] = v
	}
	if y := p.Time.Year(); len(fields) == 0 || y < 1970 || y > 2200 {
		return ""
	}
	// The client's own writer of lines: with tags and fields in order, so that equal points are equal lines.
	return strings.TrimSuffix(write.PointToLineProtocol(write.NewPoint(p.Measurement, p.Tags, fields, p.Time),
		time.Nanosecond), "\n")
}
