package test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	influxdb2 "github.com/influxdata/influxdb-client-go/v2"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/sink"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/test/lab/labtest"
	"example.org/lockstep/lockstep/test/process"
)

// influx is an InfluxDB instance of the lab.
type influx struct {
	t                       *testing.T
	url, org, bucket, token string
	process                 string // name for labtest.Control; empty for the shared instance
}

// sharedInflux returns the shared InfluxDB.
func sharedInflux(t *testing.T) influx {
	t.Helper()
	return influx{t, variable(t, "LOCKSTEP_INFLUX_URL"), variable(t, "LOCKSTEP_INFLUX_ORG"),
		variable(t, "LOCKSTEP_INFLUX_BUCKET"), variable(t, "LOCKSTEP_INFLUX_TOKEN"), ""}
}

// longTimeouts is a tuning of the sink with long timeouts, for an InfluxDB on a busy machine.
var longTimeouts = sink.Tuning{Request: time.Minute, Flush: 5 * time.Minute, Patience: 5 * time.Minute}

// ownInflux starts an InfluxDB that the test may kill.
func ownInflux(t *testing.T) influx {
	t.Helper()
	own := labtest.Own(t, "influxd")
	return influx{t, own.Variable("LOCKSTEP_INFLUX_URL"), own.Variable("LOCKSTEP_INFLUX_ORG"),
		own.Variable("LOCKSTEP_INFLUX_BUCKET"), own.Variable("LOCKSTEP_INFLUX_TOKEN"), own.Process(1)}
}

// sink opens a sink that writes to it.
func (i influx) sink() *sink.Sink {
	i.t.Helper()
	target, err := sink.Resolve(plan.Influx{URL: i.url, Org: i.org, Bucket: i.bucket, Token: i.token},
		drivers.FullAccess())
	if err != nil {
		i.t.Fatal(err)
	}
	return sink.Open(target, longTimeouts, "test", nil)
}

// env returns the variables (NAME=value) that configure ctl to use it.
func (i influx) env() []string {
	return []string{"INFLUX_URL=" + i.url, "INFLUX_ORG=" + i.org, "INFLUX_BUCKET=" + i.bucket,
		"INFLUX_TOKEN=" + i.token}
}

// query runs a Flux query. It returns the number of each row, by the texts of the given columns.
func (i influx) query(flux string, columns ...string) map[string]float64 {
	i.t.Helper()
	client := influxdb2.NewClientWithOptions(i.url, i.token, influxdb2.DefaultOptions().SetHTTPRequestTimeout(120))
	defer client.Close()
	answer, err := client.QueryAPI(i.org).Query(i.t.Context(), flux)
	if err != nil {
		i.t.Fatalf("%v\n%s", err, flux)
	}
	defer answer.Close()
	rows := map[string]float64{}
	for answer.Next() {
		var key []string
		for _, c := range columns {
			key = append(key, fmt.Sprint(answer.Record().ValueByKey(c)))
		}
		place := strings.Join(key, " ")
		if _, twice := rows[place]; twice {
			i.t.Errorf("rows of %q: got at least 2, want 1\n%s", place, flux)
		}
		switch v := answer.Record().Value().(type) {
		case float64:
			rows[place] = v
		case int64:
			rows[place] = float64(v)
		default:
			i.t.Fatalf("value of %q: got %v, want a number\n%s", place, v, flux)
		}
	}
	if answer.Err() != nil {
		i.t.Fatalf("%v\n%s", answer.Err(), flux)
	}
	return rows
}

// fieldQuery returns the beginning of a query for one field of a run.
func (i influx) fieldQuery(run, measurement, field string) string {
	return fmt.Sprintf(`from(bucket: %q) |> range(start: -1d) |> filter(fn: (r) => r.run == %q and r._measurement == %q and r._field == %q)`,
		i.bucket, run, measurement, field)
}

// points returns the number of points of a run, by measurement and field.
func (i influx) points(run string) map[string]float64 {
	i.t.Helper()
	return i.query(fmt.Sprintf(`from(bucket: %q) |> range(start: -1d) |> filter(fn: (r) => r.run == %q)
	|> group(columns: ["_measurement", "_field"]) |> count()`, i.bucket, run), "_measurement", "_field")
}

// measuredFor is the duration of the measurement in each cell of the matrix of startWithSink.
const measuredFor = 3 * time.Second

// sinkRun is a run with a sink.
type sinkRun struct {
	record
	dir       string // working folder of the process, with all its files
	delivered []plan.Delivery
}

// runWithSink runs a small matrix. env are variables (NAME=value) for ctl, and influxCUE is a part of the matrix.
func runWithSink(t *testing.T, env []string, influxCUE string, args ...string) sinkRun {
	t.Helper()
	ctl, dir := startWithSink(t, env, influxCUE, args...)
	return awaitSinkRun(t, ctl, dir)
}

func awaitSinkRun(t *testing.T, ctl *process.Process, dir string) sinkRun {
	t.Helper()
	ctl.Exits(0)
	x := sinkRun{record: readRecord(t, dir, ctl), dir: dir}
	x.checkAllValid()
	x.delivered = x.run.Deliveries()
	return x
}

// startWithSink starts ctl with a small matrix. The parameters are those of runWithSink.
func startWithSink(t *testing.T, env []string, influxCUE string, args ...string) (ctl *process.Process, dir string) {
	t.Helper()
	dir = t.TempDir()
	text := fmt.Sprintf(`package matrix
name: "sunk"
brokers: fake: {driver: "loopback", options: name: "sunk"}
axes: threads: [1, 2]
cell: {
	axis: _
	publishers: {mode: "confirm-window", rate: 500, threads: axis.threads}
	warmup: "500ms", measure: "%v"
}
%s
tables: [{rows: ["threads"], values: ["publish.rate", "consume.rate", "lost"]}]
`, measuredFor, influxCUE)
	return startWith(t, env, dir, "ctl", append([]string{"run", writeMatrix(t, dir, text)}, args...)...), dir
}

// checkDelivery checks that every point was written or dropped, that a replay is requested if points were dropped, and
// that the rates are those of the load.
func (x sinkRun) checkDelivery() plan.Delivery {
	x.t.Helper()
	if len(x.delivered) == 0 {
		x.t.Fatal("deliveries in the record: got none, want at least 1")
	}
	d, replays := x.delivered[0], x.delivered[1:]
	if d.Points == 0 || d.Points != d.Written+d.Dropped || d.End != "done" || d.Replayed {
		x.t.Errorf("delivery: got %+v, want each point written or dropped, end \"done\", and no replay", d)
	}
	if d.Dropped > 0 && (len(replays) != 1 || !replays[0].Replayed) || d.Dropped == 0 && len(replays) > 0 {
		x.t.Errorf("replays with %d dropped points: got %+v, want 1 if points were dropped, and none otherwise",
			d.Dropped, replays)
	}
	written := d.Written
	for _, r := range replays {
		written = max(written, r.Written)
	}
	if !strings.Contains(x.text, fmt.Sprintf("InfluxDB: %d points written", written)) {
		x.t.Errorf("output of ctl: got no summary of %d written points:\n%s", written, x.text)
	}
	for _, o := range x.outcomes {
		if rate := x.metric(o, "publish.rate"); long() && (rate < 400 || rate > 600) {
			x.t.Errorf("%s: publish.rate: got %v, want 500 ± 100", x.name(o), rate)
		}
	}
	return d
}

// checkReplayRequested checks that the summary has the number of dropped points, the number after the replay, and the
// command for a replay.
func (x sinkRun) checkReplayRequested(run string) {
	x.t.Helper()
	d := x.delivered[len(x.delivered)-1]
	if !d.Replayed || d.Left == 0 || d.Left+d.Written != d.Points {
		x.t.Errorf("replay at the end of the run: got %+v, want points that could not be written", d)
	}
	for _, text := range []string{fmt.Sprintf("; %d dropped (", x.delivered[0].Dropped),
		fmt.Sprintf("did not write %d of %d", d.Left, d.Points), "then run: ctl runs replay " + run} {
		if !strings.Contains(x.text, text) {
			x.t.Errorf("output of ctl: got no %q:\n%s", text, x.text)
		}
	}
}

// checkHidden checks that a secret is in no file and no output.
func (x sinkRun) checkHidden(secret string) {
	x.t.Helper()
	if strings.Contains(x.text, secret) {
		x.t.Error("output of ctl: got the token, want none")
	}
	noSecrets(x.t, x.dir, 5, secret)
}

// startSilentServer starts a server that accepts connections and never responds.
func startSilentServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		var open []net.Conn // prevents their finalisers from closing them
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			open = append(open, c)
		}
		for _, c := range open {
			c.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

// replay writes a run's points again with ctl, from the directory of the recording process.
func (i influx) replay(dir string) plan.Delivery {
	i.t.Helper()
	ctl := startWith(i.t, i.env(), dir, "ctl", "runs", "replay", "latest")
	if code := ctl.ExitCode(); code != 0 {
		i.t.Fatalf("ctl runs replay: got exit code %d, want 0", code)
	}
	all := readRecord(i.t, dir, ctl).run.Deliveries()
	last := all[len(all)-1]
	if !last.Replayed || !strings.Contains(ctl.Output(), fmt.Sprintf("InfluxDB: %d points written", last.Written)) {
		i.t.Errorf("replay: got %+v, want a replay whose written points are in the output of ctl:\n%s", last,
			ctl.Output())
	}
	return last
}
