package test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	influxdb2 "github.com/influxdata/influxdb-client-go/v2"
	"github.com/influxdata/influxdb-client-go/v2/api/query"
)

// grafana runs the queries of a dashboard as Grafana does. It fills in the variables by their queries, in order, and
// then the variables of the InfluxDB data source.
type grafana struct {
	t        *testing.T
	db       influx
	from, to time.Time
	interval time.Duration
	chosen   map[string][]string

	mayBeEmpty map[string]bool // panels whose values are not in the record, by title
}

// dashboardFile is the part of a dashboard that affects its queries.
type dashboardFile struct {
	Title      string
	Templating struct{ List []dashboardVariable }
	Panels     []struct {
		Title, Type string
		Targets     []dashboardQuery
	}
	Annotations struct {
		List []struct {
			Name   string
			Target dashboardQuery
		}
	}
}

type dashboardVariable struct {
	Name, Type, Regex string
	Query             string
	Multi             bool
	Current           struct{ Value any }
}

type dashboardQuery struct{ RefID, Query string }

func dashboardOf(t *testing.T, path string) dashboardFile {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d dashboardFile
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return d
}

// chooseVariables determines the options of each variable and selects the first one, or the one in picks. For a
// variable with multiple values, it selects all.
func (g *grafana) chooseVariables(d dashboardFile, picks map[string]string) {
	g.chosen = map[string][]string{}
	for _, v := range d.Templating.List {
		options := strings.Split(v.Query, ",")
		if v.Type == "query" {
			options = g.options(v)
		}
		if len(options) == 0 {
			g.t.Fatalf("%s: options of the variable %s: got none, want at least 1\n%s", d.Title, v.Name,
				g.fill(v.Query))
		}
		g.chosen[v.Name] = options[:1]
		if v.Multi {
			g.chosen[v.Name] = options
		}
		if pick, ok := picks[v.Name]; ok {
			if !slices.Contains(options, pick) {
				g.t.Fatalf("%s: options of the variable %s: got %q, want %q among them", d.Title, v.Name, options, pick)
			}
			g.chosen[v.Name] = []string{pick}
		}
	}
}

// options returns the first text column of the first table. If a pattern has a group named value, that part of each
// text is returned.
func (g *grafana) options(v dashboardVariable) (options []string) {
	answer := g.query(g.fill(v.Query))
	if answer.err != nil {
		g.t.Fatalf("query of the variable %s: %v\n%s", v.Name, answer.err, g.fill(v.Query))
	}
	column := ""
	for _, c := range answer.columns {
		if c.DataType() == "string" && c.Name() != "result" && column == "" {
			column = c.Name()
		}
	}
	pattern := regexp.MustCompile(`^(?<value>.*)$`)
	if v.Regex != "" {
		pattern = regexp.MustCompile(strings.TrimSuffix(strings.TrimPrefix(v.Regex, "/"), "/"))
	}
	for _, r := range answer.rows {
		if found := pattern.FindStringSubmatch(fmt.Sprint(r[column])); found != nil &&
			!slices.Contains(options, found[pattern.SubexpIndex("value")]) {
			options = append(options, found[pattern.SubexpIndex("value")])
		}
	}
	return options
}

var (
	variablePattern = regexp.MustCompile(`\$\{(\w+)(?::(\w+))?\}`)
	barePattern     = regexp.MustCompile(`\$\w+|\[\[\w+`) // Grafana would treat these as variables, too
)

// fill replaces the variables of the dashboard and of the data source in a query.
func (g *grafana) fill(text string) string {
	text = variablePattern.ReplaceAllStringFunc(text, func(found string) string {
		part := variablePattern.FindStringSubmatch(found)
		values, ok := g.chosen[part[1]]
		switch {
		case !ok:
			g.t.Fatalf("%s: unknown variable, or one that is defined later", found)
		case part[2] == "doublequote":
			quoted := make([]string, len(values))
			for i, v := range values {
				quoted[i] = `"` + strings.ReplaceAll(v, `"`, `\"`) + `"`
			}
			return strings.Join(quoted, ",")
		case part[2] == "" && len(values) == 1:
			return values[0]
		}
		g.t.Fatalf("%s with %d values: format not supported by this test", found, len(values))
		return ""
	})
	if bare := barePattern.FindString(text); bare != "" {
		g.t.Errorf("query with %s, which Grafana would replace as a variable\n%s", bare, text)
	}
	return strings.NewReplacer("v.timeRangeStart", g.from.UTC().Format(time.RFC3339Nano), "v.timeRangeStop",
		g.to.UTC().Format(time.RFC3339Nano),
		"v.windowPeriod", g.interval.String(), "v.defaultBucket", fmt.Sprintf("%q", g.db.bucket)).Replace(text)
}

// answer is the result of a query.
type answer struct {
	err     error
	columns []*query.FluxColumn
	tables  int
	rows    []map[string]any
	problem string // what Grafana cannot show
}

func (g *grafana) query(flux string) (a answer) {
	client := influxdb2.NewClientWithOptions(g.db.url, g.db.token, influxdb2.DefaultOptions().SetHTTPRequestTimeout(120))
	defer client.Close()
	r, err := client.QueryAPI(g.db.org).Query(g.t.Context(), flux)
	if err != nil {
		return answer{err: err}
	}
	defer r.Close()
	numbers := map[int]bool{}
	for r.Next() {
		a.columns = r.TableMetadata().Columns()
		numbers[r.Record().Table()] = true
		a.rows = append(a.rows, r.Record().Values())
		if a.problem == "" {
			a.problem = displayProblem(a.columns, r.Record().Values())
		}
	}
	a.err, a.tables = r.Err(), len(numbers)
	return a
}

// displayProblem returns why Grafana could not show a result. Rows with a measurement are points of a series, and their
// other columns are labels. All else is a table.
func displayProblem(columns []*query.FluxColumn, values map[string]any) string {
	types := map[string]string{}
	for _, c := range columns {
		types[c.Name()] = c.DataType()
	}
	if _, series := types["_measurement"]; !series {
		return ""
	}
	if types["_time"] == "" || types["_value"] == "" {
		return "a series without times or values"
	}
	for name, kind := range types {
		if !strings.HasPrefix(name, "_") && name != "result" && name != "table" &&
			(kind != "string" || values[name] == nil) {
			return fmt.Sprintf("the label %s is not a string: %v", name, values[name])
		}
	}
	return ""
}
