package export

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"example.org/lockstep/lockstep/internal/plan"
)

// ErrUnknown is wrapped by the error about unknown names of values.
var ErrUnknown = errors.New("choose values")

// Left counts the results that an export left out: those not valid, and those without any of the values.
type Left struct{ Invalid, Empty int }

// GoBench writes outcomes in the format of Go benchmarks, for benchstat. It writes one line per valid repetition of a
// cell and group, with the same name for all repetitions. names are the values to write; none: those of the run's
// tables. The run and the subjects are comments: benchstat does not compare benchmarks with different configuration
// lines ("key: value").
func GoBench(w io.Writer, p plan.Run, outcomes []plan.Outcome, names []string) (Left, error) {
	infos, err := chosen(p, names)
	if err != nil {
		return Left{}, err
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "# matrix %s, run %s\n", oneLine(p.Name), oneLine(p.ID))
	for _, info := range infos {
		if b := info.Better; b != plan.NeitherBetter {
			_, unit := metric(info, 0)
			fmt.Fprintf(out, "Unit %s better=%s\n", unit, b)
		}
	}
	var left Left
	subject := ""
	for _, x := range parts(p, outcomes) {
		if x.verdict != plan.Valid {
			left.Invalid++
			continue
		}
		line := benchmark(p, x, infos)
		if line == "" {
			left.Empty++
			continue
		}
		s := fmt.Sprintf("# driver %s, product %s, version %s\n", oneLine(x.task.Cell.Broker.Driver),
			oneLine(x.subject.Product), oneLine(x.subject.Version))
		if s != subject {
			subject = s
			fmt.Fprint(out, s)
		}
		fmt.Fprintln(out, line)
	}
	return left, out.Flush()
}

// chosen returns the values with the given names.
func chosen(p plan.Run, names []string) ([]plan.ValueInfo, error) {
	if len(names) == 0 {
		for _, t := range p.Tables {
			for _, name := range t.Values {
				_, name = plan.SplitGroup(name)
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		names = []string{"publish.rate", "consume.rate", "publish.p99"}
	}
	var infos []plan.ValueInfo
	var known []string
	for _, info := range p.Metrics.Values() {
		known = append(known, info.Name)
		if slices.Contains(names, info.Name) || slices.Contains(names, "all") {
			infos = append(infos, info)
		}
	}
	var unknown []string
	for _, name := range names {
		if name != "all" && !slices.Contains(known, name) {
			unknown = append(unknown, fmt.Sprintf("unknown value %q%s", name, plan.DidYouMean(name, known)))
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("%w: %s (docs/reference/values.md lists them; all are all of them)", ErrUnknown,
			strings.Join(unknown, "; "))
	}
	return infos, nil
}

// benchmark returns the line of one repetition; empty if it has none of the values.
func benchmark(p plan.Run, x part, infos []plan.ValueInfo) string {
	var b strings.Builder
	for _, info := range infos {
		if v, has := x.values[info.Name]; has && v.NA == "" && v.Over == 0 { // benchstat has no lower bounds
			n, unit := metric(info, v.Number)
			fmt.Fprintf(&b, " %s %s", strconv.FormatFloat(n, 'f', -1, 64), unit)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "Benchmark" + benchName(p, x) + " 1" + b.String()
}

// benchName returns the name of the matrix with the coordinates: "Quick/broker=rabbit/threads=5". A dash and a number
// at its end would be read as GOMAXPROCS, so "-1" is appended to such a name.
func benchName(p plan.Run, x part) string {
	parts := []string{strings.ToUpper(word(p.Name)[:1]) + word(p.Name)[1:]}
	for _, c := range x.task.Cell.Coordinates {
		parts = append(parts, word(c.Axis)+"="+word(c.Text()))
	}
	if x.group != "" {
		parts = append(parts, "group="+word(x.group))
	}
	name := strings.Join(parts, "/")
	if i := strings.LastIndexByte(name, '-'); i >= 0 && i+1 < len(name) &&
		strings.Trim(name[i+1:], "0123456789") == "" {
		name += "-1"
	}
	return name
}

// word returns a text that is valid in the name of a benchmark: without blanks and slashes, and not empty.
func word(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) || r == '/' {
			return '_'
		}
		return r
	}, s)
	if s == "" {
		return "_"
	}
	return s
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// metric returns a value in a unit that contains its name: 1200 publish-msg/s, 4500000 publish-p99-ns. benchstat shows
// nanoseconds as seconds with a prefix.
func metric(info plan.ValueInfo, n float64) (float64, string) {
	name := strings.ReplaceAll(info.Name, ".", "-")
	switch info.Unit {
	case plan.Seconds:
		return math.Round(n * 1e9), name + "-ns"
	case plan.PerSecond, plan.Text: // the number behind the text is a rate
		return n, strings.TrimSuffix(name, "-rate") + "-msg/s"
	case plan.BytesRate:
		return n, strings.TrimSuffix(name, "-bytes") + "-B/s"
	case plan.Bytes:
		return n, name + "-B"
	}
	return n, name
}
