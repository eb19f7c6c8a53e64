package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// shells returns a part of shell processes. It is ready when each running one has written its process number.
func shells(name, script string, size int) Part {
	return Part{Name: name, Plan: func(_ *site, dir string, _ []int) (*Plan, error) {
		plan := &Plan{Env: []string{"NAME=" + name}}
		for i := range size {
			file := filepath.Join(dir, strconv.Itoa(i))
			plan.Processes = append(plan.Processes, &Process{
				Name: numbered(name, i+1, size), Dir: dir, Log: filepath.Join(dir, "log"),
				Env:     []string{"FILE=" + file},
				First:   []string{"/bin/sh", "-c", "echo first >> " + file + ".first"},
				Command: []string{"/bin/sh", "-c", script},
				Ready: func(context.Context) error {
					_, err := os.Stat(file)
					return err
				},
			})
		}
		return plan, nil
	}}
}

const lasts = "echo $$ > $FILE; sleep 600 & wait"

func testLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{site: testSite(t)}
	if err := os.Mkdir(l.site.bin(""), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.stop)
	return l
}

// If one broker cannot be started, the lab stops all others.
func TestFailureHalfWay(t *testing.T) {
	l := testLab(t)
	begun := time.Now()
	err := l.start(t.Context(), []Part{
		shells("good", lasts, 2),
		shells("bad", "while [ ! -e ../good/1 ]; do sleep 0.01; done; exit 1", 1),
		shells("slow", "sleep 600", 1), // longer than the lab waits for a broker
	})
	if err == nil || !strings.Contains(err.Error(), "bad has ended") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(begun); took >= readyWithin {
		t.Errorf("the failure is reported after %v: the lab waited for the slow broker", took)
	}
	var pids []int
	for _, p := range slices.Concat(l.plans[0].Processes, l.plans[2].Processes) {
		pids = append(pids, p.PID())
	}
	if pids[0] == 0 || pids[1] == 0 {
		t.Errorf("process numbers %v: what is good was not started", pids)
	}
	l.stop()
	for _, pid := range pids {
		if pid != 0 && running(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	if _, err := os.Stat(l.site.dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("the folder of the failed lab is left")
	}
}

func TestControl(t *testing.T) {
	l := testLab(t)
	if err := l.start(t.Context(), []Part{shells("trio", lasts, 3), shells("solo", lasts, 1)}); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(l.env, "NAME=trio") || !slices.Contains(l.env,
		"LOCKSTEP_SOLO_PID="+strconv.Itoa(l.plans[1].Processes[0].PID())) {
		t.Errorf("environment %v", l.env)
	}
	control, _ := strings.CutPrefix(l.env[len(l.env)-1], "LOCKSTEP_LAB_CONTROL=")
	ask := func(what string, want int) {
		t.Helper()
		client := http.Client{Timeout: 2 * time.Minute}
		response, err := client.Post(control+"/"+what, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if text, _ := io.ReadAll(response.Body); response.StatusCode != want {
			t.Errorf("%s: status %d, %s", what, response.StatusCode, text)
		}
	}
	ask("kill?name=quartet-1", http.StatusNotFound)
	ask("start?name=trio-1", http.StatusInternalServerError) // it is running
	before := l.plans[0].Processes[0].PID()
	// While one process is dead and one is paused, the third one can be restarted.
	ask("kill?name=trio-2", http.StatusOK)
	ask("pause?name=trio-3", http.StatusOK)
	for _, file := range []string{"0", "1", "2"} {
		if err := os.Remove(filepath.Join(l.site.dir, "trio", file)); err != nil {
			t.Fatal(err)
		}
	}
	ask("restart?name=trio-1", http.StatusOK)
	if text, err := os.ReadFile(filepath.Join(l.site.dir, "trio", "0.first")); err != nil || string(text) != "first\n" {
		t.Errorf("what is done before the first start is done as %q, %v", text, err)
	}
	if after := l.plans[0].Processes[0].PID(); after == before || running(before) {
		t.Errorf("process %d is not replaced", before)
	}
	if state := state(t, l.plans[0].Processes[2].PID()); state != "T" {
		t.Errorf("a paused process's state is %s", state)
	}
	ask("pause?name=trio-2", http.StatusInternalServerError) // it is dead
	ask("resume?name=trio-3", http.StatusOK)
	if state := state(t, l.plans[0].Processes[2].PID()); state == "T" {
		t.Error("a resumed process is still stopped")
	}
}

// An instance that is started on demand is separate, has its own process names for control, and is removed completely.
func TestInstanceOnDemand(t *testing.T) {
	known := parts
	t.Cleanup(func() { parts = known })
	pair, broken := shells("pair", lasts, 2), shells("broken", "exit 1", 1)
	parts = append(slices.Clone(parts), pair, broken)
	l := testLab(t)
	if err := l.start(t.Context(), []Part{pair}); err != nil {
		t.Fatal(err)
	}
	control, _ := strings.CutPrefix(l.env[len(l.env)-1], "LOCKSTEP_LAB_CONTROL=")
	ask := func(what string, want int) string {
		t.Helper()
		response, err := http.Post(control+"/"+what, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != want {
			t.Errorf("%s: status %d, %s, %v", what, response.StatusCode, text, err)
		}
		return string(text)
	}
	ask("up?part=nothing", http.StatusNotFound)
	ask("down?part=pair", http.StatusNotFound) // it belongs to the lab
	if text := ask("up?part=broken", http.StatusInternalServerError); !strings.Contains(text, "broken-own1 has ended") {
		t.Errorf("a part that does not start is reported as %q", text)
	}
	env := strings.Split(strings.TrimSpace(ask("up?part=pair", http.StatusOK)), "\n")
	_, own := l.process("pair-own2-2")
	if own == nil {
		t.Fatalf("no process of the instance; its variables are %v", env)
	}
	_, first := l.process("pair-own2-1")
	want := []string{
		"NAME=pair", fmt.Sprintf("LOCKSTEP_PAIR_PIDS=%d,%d", first.PID(), own.PID()),
		"LOCKSTEP_LAB_INSTANCE=pair-own2", "LOCKSTEP_LAB_PROCESSES=pair-own2-1,pair-own2-2",
	}
	if !slices.Equal(env, want) {
		t.Errorf("variables %v, want %v", env, want)
	}
	if got := strings.Join(slices.Sorted(maps.Keys(l.own)), " "); got != "pair-own2" || len(l.plans) != 2 {
		t.Errorf("%d instances, of which %q are on demand", len(l.plans), got)
	}
	before := own.PID()
	ask("kill?name=pair-own2-2", http.StatusOK)
	if running(before) || !l.plans[0].Processes[1].Running() {
		t.Error("the kill did not reach the instance that it named, or it reached the other one")
	}
	ask("start?name=pair-own2-2", http.StatusOK)
	pids := []int{first.PID(), own.PID()}
	ask("down?part=pair-own2", http.StatusOK)
	for _, pid := range pids {
		if running(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	for _, instance := range []string{"pair-own2", "broken-own1"} {
		if _, err := os.Stat(l.dir(instance)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder of %s is left", instance)
		}
	}
	ask("down?part=pair-own2", http.StatusNotFound)
	ask("kill?name=pair-own2-2", http.StatusNotFound)
	ask("up?part=pair", http.StatusOK) // it is not stopped before the lab ends
	_, last := l.process("pair-own3-1")
	pid := last.PID()
	l.stop()
	if running(pid) {
		t.Errorf("process %d is left", pid)
	}
}

// A lab that ends while an instance is starting does not wait until it is ready.
func TestStopWhileAnInstanceStarts(t *testing.T) {
	known := parts
	t.Cleanup(func() { parts = known })
	slow := shells("slow", "echo $$ > $FILE.started; sleep 600 & wait", 1)
	parts = append(slices.Clone(parts), slow)
	l := testLab(t)
	if err := l.start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	control, _ := strings.CutPrefix(l.env[len(l.env)-1], "LOCKSTEP_LAB_CONTROL=")
	answered := make(chan int, 1)
	go func() {
		response, err := http.Post(control+"/up?part=slow", "", nil)
		if err != nil {
			answered <- 0
			return
		}
		_ = response.Body.Close()
		answered <- response.StatusCode
	}()
	pid := waitForNumber(t, filepath.Join(l.dir("slow-own1"), "0.started"))
	l.stop()
	if status := <-answered; status == http.StatusOK {
		t.Error("an instance that is not ready is reported as ready")
	}
	if running(pid) {
		t.Errorf("process %d is left", pid)
	}
}

// Two concurrent labs on one machine do not affect each other, and leave no files or processes.
func TestTwoLabs(t *testing.T) {
	chosen, err := choose([]string{"nats", "nats3"})
	if err != nil {
		t.Fatal(err)
	}
	labs := make([]*lab, 2)
	var wg sync.WaitGroup
	for i := range labs {
		if labs[i], err = newLab(io.Discard, false); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(labs[i].stop)
		wg.Go(func() {
			if err := labs[i].start(t.Context(), chosen); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	var pids []int
	for i, l := range labs {
		streams := streamsOf(t, l)
		if len(streams) != 0 {
			t.Errorf("a fresh lab has streams %v", streams)
		}
		name := "lab-" + strconv.Itoa(i)
		if _, err := jetStream(t, l).CreateStream(t.Context(),
			jetstream.StreamConfig{Name: name, Replicas: 3}); err != nil {
			t.Fatal(err)
		}
		if streams := streamsOf(t, l); !slices.Equal(streams, []string{name}) {
			t.Errorf("a lab sees streams %v", streams)
		}
		for _, plan := range l.plans {
			for _, p := range plan.Processes {
				pids = append(pids, p.PID())
			}
		}
	}
	for _, l := range labs {
		l.stop()
		if _, err := os.Stat(l.site.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left", l.site.dir)
		}
	}
	for _, pid := range pids {
		if pid == 0 || running(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
}

// jetStream connects to the cluster through its second node.
func jetStream(t *testing.T, l *lab) jetstream.JetStream {
	t.Helper()
	for _, variable := range l.env {
		urls, found := strings.CutPrefix(variable, "LOCKSTEP_NATS3_URLS=")
		if !found {
			continue
		}
		conn, err := nats.Connect(strings.Split(urls, ",")[1])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		js, err := jetstream.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	t.Fatalf("no cluster is in %v", l.env)
	return nil
}

func streamsOf(t *testing.T, l *lab) []string {
	t.Helper()
	list := jetStream(t, l).StreamNames(t.Context())
	var names []string
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

// state returns the state of a process as ps shows it.
func state(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}
