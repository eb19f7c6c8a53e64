package hostile

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/internal/wire/keys"
	"example.org/lockstep/lockstep/test/process"
)

// maxMemory is the maximum peak of each daemon's resident memory, in bytes.
const maxMemory = 512 << 20

// TestDaemonsStaySmall floods a fleet of real processes with the largest messages that each role may send to each
// service, and with small compressed ones that expand to large ones. No daemon ends or exceeds its memory limit, no
// stored data is lost, and the fleet can execute a run afterwards.
func TestDaemonsStaySmall(t *testing.T) {
	f := &fleet{t: t}
	daemons := f.startProcesses()
	f.executeRun("before")
	var attempt wire.Ref
	stored := f.recordPositions("before", func(e wire.Entry) {
		if e.Event != nil && e.Event.Kind == wire.TaskStarted {
			attempt = wire.Ref{Run: "before", Task: e.Event.Task, Attempt: e.Event.Attempt}
		}
	})

	for key, services := range map[string][]string{"agents/a3.nk": agentServices("a3"), "viewer.nk": viewServices,
		"client.nk": clientServices} {
		nc := f.dial(key)
		small, large := hostileBodies(int(nc.MaxPayload()) - 1024)
		for _, service := range services {
			for _, body := range small {
				f.flood(nc, service, body, 1)
			}
			for _, body := range large {
				if slices.Contains(acceptsLarge, service) {
					f.flood(nc, service, body, 6)
				}
			}
		}
		f.checkMemory(daemons, "the flood of "+key)
	}

	// Late messages: of an ended attempt, by an agent of that attempt, and of the ended run.
	agent, client := f.dial("agents/a1.nk"), f.dial("client.nk")
	for service, body := range map[string]string{
		"arrive": jsonText(t, wire.Arrival{Ref: attempt, Agent: "a1", Step: wire.StepFinish, Error: "x"}),
		"snapshot": jsonText(t, map[string]any{"ref": attempt,
			"snapshot": map[string]any{"task": attempt.Task, "agent": "a1", "seq": hostileSeq}}),
	} {
		rejection := requestError(t, agent, message("lockstep.agent."+service+".a1", body))
		if !strings.Contains(rejection, wire.ErrNoAttempt.Error()) {
			t.Errorf("%s of an ended attempt: got error %q, want %q", service, rejection, wire.ErrNoAttempt)
		}
	}
	must(t, f.client.Cancel(t.Context(), "before", "x"))
	if err := f.client.RemoveSchedule(t.Context(), "none", 1); err == nil {
		t.Error("remove an unknown schedule: got no error")
	}
	if _, err := client.RequestMsg(message("lockstep.client.forget", jsonText(t, attempt)), timeLimit); !errors.Is(err,
		nats.ErrNoResponders) {
		t.Errorf("request to lockstep.client.forget: got error %v, want %v", err, nats.ErrNoResponders)
	}

	f.executeRun("after")
	if now := f.recordPositions("before", func(wire.Entry) {}); !slices.Equal(now, stored) {
		t.Errorf("positions of the messages of a record: got %v, want %v as before the floods", now, stored)
	}
	f.checkMemory(daemons, "the last run")
}

// TestSnapshotsOfAnAttemptAreLimited proves that valid snapshots of an agent with a role are limited per attempt, below
// the storage limit of a run, and that no daemon exceeds its memory. They use more memory than their text has bytes:
// each event has a text of a few bytes, a page of a set, of 512 bytes, has four, and histograms have many equal counts.
func TestSnapshotsOfAnAttemptAreLimited(t *testing.T) {
	f := &fleet{t: t}
	daemons := f.startProcesses()
	nc := f.dial("agents/a1.nk")
	events := slices.Repeat([]record.Event{{At: 1, Kind: "x"}}, 50_000)
	var latencies record.Window
	for ns := 1000.0; ns < 3e12; ns *= 1.0015 {
		for _, series := range []record.Series{record.Publish, record.EndToEnd, record.Pacing} {
			latencies.RecordN(series, int64(ns), 1)
		}
	}
	pages := bytes.Repeat([]byte("\x00\x03\x00\x00"), 15_000)
	for what, part := range map[string]func(seq uint64) map[string]any{
		"events": func(uint64) map[string]any { return map[string]any{"events": events} },
		"pages": func(seq uint64) map[string]any {
			return map[string]any{"sets": []any{map[string]any{"kind": "received", "publisher": seq - hostileSeq, "pages": pages}}}
		},
		"latencies": func(seq uint64) map[string]any {
			windows := make([]record.Window, 10)
			for i := range windows {
				windows[i] = latencies
				windows[i].Index = int(seq-hostileSeq)*len(windows) + i
			}
			return map[string]any{"windows": windows}
		},
	} {
		r := newRun(what)
		w := &r.Cells[0].Workload
		w.Publishers.Rate, w.Connect, w.Measure = 2, plan.Duration(20*time.Second), plan.Duration(2*time.Minute)
		w.Drain.Timeout = plan.Duration(20 * time.Second)
		must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
		size, rejection := 0, ""
		f.readRun(what, func(e wire.Entry) {
			if e.Outcome != nil && e.Outcome.Verdict != plan.Unknown {
				t.Errorf("%s: got verdict %s, want unknown", what, e.Outcome.Verdict)
			}
			for seq := uint64(hostileSeq); e.Snapshot != nil && rejection == "" && seq < 2*hostileSeq; seq++ {
				snapshot := part(seq)
				snapshot["task"], snapshot["agent"], snapshot["seq"] = e.Ref.Task, "a1", seq
				body := jsonText(t, map[string]any{"ref": e.Ref, "snapshot": snapshot})
				for { // until no snapshot of the real agent is being stored
					rejection = requestError(t, nc, message("lockstep.agent.snapshot.a1", body))
					if !strings.Contains(rejection, "is being stored") {
						break
					}
				}
				size += len(body)
			}
		})
		if rejection == "" || size > 64<<20 {
			t.Errorf("%s: error of a snapshot after %d KiB: got %q, want one after at most 64 MiB", what, size>>10, rejection)
		}
		f.checkMemory(daemons, what)
	}
	f.executeRun("after")
}

// startProcesses starts a controller, an agent of two slots and an observer with the settings of their units and their
// own credentials, and connects the client.
func (f *fleet) startProcesses() map[string]*process.Process {
	t := f.t
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: peak memory is read from /proc")
	}
	dir := t.TempDir()
	programs, err := process.Programs(dir, false)
	must(t, err)
	f.creds = filepath.Join(dir, "creds")
	creds, err := keys.Make(f.creds, f.creds, []string{"bench-1.example.org"}, false)
	must(t, err)
	must(t, creds.AddAgents(2, "a1"))
	must(t, creds.AddAgents(1, "a3", "observer"))
	f.users = creds.Users
	port := process.Ports(t, 1)[0]
	f.url = fmt.Sprintf("tls://127.0.0.1:%d", port)
	start := func(program, key string, env []string, args ...string) *process.Process {
		env = append(env, "LOCKSTEP_CREDS="+filepath.Join(f.creds, key),
			"LOCKSTEP_CA="+filepath.Join(f.creds, "ca.crt"))
		return process.Start(t, process.Command{Dir: dir, Bare: true, Env: env,
			Argv: append([]string{filepath.Join(programs, program)}, args...)})
	}
	daemons := map[string]*process.Process{
		"controller": start("controller", "controller.nk", []string{"GOMEMLIMIT=384MiB"}, "--listen",
			fmt.Sprintf("127.0.0.1:%d", port),
			"--dir", filepath.Join(dir, "controller"), "--nats-config", filepath.Join(f.creds, "nats.conf")),
	}
	process.Listening(t, port)
	daemons["agent"] = start("agent", "agents/a1.nk", nil, "--server", f.url, "--name", "a1", "--slots", "2", "--dir",
		filepath.Join(dir, "a1"))
	daemons["observer"] = start("agent", "agents/observer.nk", []string{"GOMEMLIMIT=128MiB"}, "--server", f.url,
		"--name", "observer",
		"--dir", filepath.Join(dir, "observer"), "--observe", "nats=port:1")
	f.client, err = wire.DialClient(t.Context(), f.url, f.auth("client.nk"))
	must(t, err)
	t.Cleanup(f.client.Close)
	f.awaitAgents(3)
	return daemons
}

// checkMemory fails the test if a daemon has ended or exceeded its memory.
func (f *fleet) checkMemory(daemons map[string]*process.Process, after string) {
	f.t.Helper()
	for name, p := range daemons {
		select {
		case <-p.Ended():
			f.t.Fatalf("after %s: the %s has ended", after, name)
		default:
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
		must(f.t, err)
		var kib int
		_, line, _ := strings.Cut(string(status), "VmHWM:")
		_, err = fmt.Sscan(line, &kib)
		must(f.t, err)
		f.t.Logf("after %s: the %s had a peak memory of %d MiB", after, name, kib>>10)
		if kib<<10 > maxMemory {
			f.t.Errorf("after %s: peak memory of the %s: got %d MiB, want at most %d", after, name, kib>>10,
				maxMemory>>20)
		}
	}
}

// recordPositions returns the positions of the messages of a run's record.
func (f *fleet) recordPositions(run string, handle func(wire.Entry)) (all []wire.Cursor) {
	f.t.Helper()
	_, err := f.client.Read(f.t.Context(), wire.RecordQuery{Run: run}, func(e wire.Entry) error {
		all = append(all, e.At)
		handle(e)
		return nil
	})
	must(f.t, err)
	if len(all) == 0 {
		f.t.Fatalf("run %s has no record", run)
	}
	return all
}

// acceptsLarge are the services that accept requests of the maximum size. Others reject these before decoding.
var acceptsLarge = []string{"lockstep.agent.arrive.a3", "lockstep.agent.snapshot.a3", "lockstep.client.submit",
	"lockstep.client.schedule.put"}

// hostileBodies returns bodies that are no valid requests: of the maximum size, or compressed. Decoding the large ones
// takes a multiple of their size.
func hostileBodies(limit int) (small, large [][]byte) {
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	for range 64 { // 192 MiB
		_, _ = z.Write(bytes.Repeat([]byte("{},"), 1<<20))
	}
	_ = z.Close()
	bomb := base64.StdEncoding.EncodeToString(compressed.Bytes())
	list := func(begin, element string) []byte {
		const end = "{}]}}"
		return []byte(begin + strings.Repeat(element, (limit-len(begin)-len(end))/len(element)) + end)
	}
	small = [][]byte{
		make([]byte, limit),
		bytes.Repeat([]byte("["), limit),
		fmt.Appendf(nil, `{"Run":"r","Key":"k","Name":"s","Submission":%q,"Value":%[1]q}`, bomb),
	}
	large = [][]byte{
		list(`{"ref":{"run":"r","task":"t","attempt":"y"},"snapshot":{"task":"t","agent":"a3","seq":1,"windows":[`,
			`{"index":1,"counts":{}},`),
		list(`{"Run":"r","agent":"a3","subject":{"nodes":[`, `{},`),
	}
	return small, large
}

// flood sends a request repeatedly without waiting for responses, which go to its own inbox and to that of another
// agent. Then it waits for one response.
func (f *fleet) flood(nc *nats.Conn, service string, body []byte, times int) {
	target := f.users[slices.IndexFunc(f.users, func(u keys.User) bool { return u.Name == "a1" })]
	for range times {
		for _, reply := range []string{nc.NewInbox(), "_INBOX." + target.Key + ".x"} {
			m := message(service, "")
			m.Data, m.Reply = body, reply
			if err := nc.PublishMsg(m); err != nil {
				f.t.Errorf("%s: %v", service, err)
			}
		}
	}
	if _, err := nc.RequestMsg(message(service, "{"), timeLimit); err != nil {
		f.t.Errorf("%s after a flood: no response: %v", service, err)
	}
}
