package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	readyWithin = 3 * time.Minute // of a cluster of three on a busy machine
	readyEvery  = 250 * time.Millisecond
)

// lab is everything that one invocation has started.
type lab struct {
	dir   string
	keep  bool
	out   io.Writer
	plans []*Plan
	env   []string

	control *http.Server
}

func newLab(out io.Writer, keep bool) (*lab, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find a folder for the brokers' files: %w", err)
	}
	root := filepath.Join(cache, "lockstep-lab")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for the brokers' files: %w", err)
	}
	dir, err := os.MkdirTemp(root, time.Now().Format("0102-150405-"))
	if err != nil {
		return nil, fmt.Errorf("make a folder for the brokers' files: %w", err)
	}
	return &lab{dir: dir, keep: keep, out: out}, nil
}

// start starts all parts side by side and returns when all are ready.
func (l *lab) start(ctx context.Context, parts []Part) error {
	begun := time.Now()
	for _, part := range parts {
		if err := l.launch(ctx, part); err != nil {
			return fmt.Errorf("start %s: %w", part.Name, err)
		}
	}
	for i, part := range parts {
		if err := awaitReady(ctx, l.plans[i]); err != nil {
			return fmt.Errorf("wait for %s: %w", part.Name, err)
		}
		fmt.Fprintf(l.out, "lab: %s is ready after %.1f s\n", part.Name, time.Since(begun).Seconds())
		l.env = append(l.env, l.plans[i].Env()...)
	}
	address, err := l.serveControl()
	if err != nil {
		return err
	}
	l.env = append(l.env, "LOCKSTEP_LAB=required", "LOCKSTEP_LAB_CONTROL=http://"+address)
	return nil
}

func (l *lab) launch(ctx context.Context, part Part) error {
	if err := part.Install(ctx, l.out); err != nil {
		return err
	}
	dir := filepath.Join(l.dir, part.Name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	plan, err := part.Plan(dir)
	if err != nil {
		return err
	}
	l.plans = append(l.plans, plan)
	for _, p := range slices.Concat(plan.Helpers, plan.Processes) {
		if err := p.Start(); err != nil {
			return err
		}
	}
	return nil
}

// awaitReady polls until the plan's broker answers, one of its processes ends, or patience does.
func awaitReady(ctx context.Context, plan *Plan) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	ticker := time.NewTicker(readyEvery)
	defer ticker.Stop()
	for {
		missing := plan.Ready(ctx)
		if missing == nil {
			return nil
		}
		for _, p := range slices.Concat(plan.Helpers, plan.Processes) {
			if err := p.Check(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last seen: %w", ctx.Err(), missing)
		case <-ticker.C:
		}
	}
}

// stop ends everything, and removes the files.
func (l *lab) stop() {
	if l.control != nil {
		_ = l.control.Close()
	}
	var wg sync.WaitGroup
	for _, plan := range l.plans {
		wg.Go(func() {
			var brokers sync.WaitGroup
			for _, p := range plan.Processes {
				brokers.Go(p.Stop)
			}
			brokers.Wait()
			for _, p := range plan.Helpers {
				p.Stop()
			}
		})
	}
	wg.Wait()
	if l.keep {
		fmt.Fprintln(l.out, "lab: the brokers' files are in", l.dir)
		return
	}
	if err := os.RemoveAll(l.dir); err != nil {
		fmt.Fprintln(l.out, "lab: remove the brokers' files:", err)
	}
}

// serveControl lets the command disturb the brokers:
//
//	POST /kill?name=rabbitmq      kills a broker as a power cut would
//	POST /start?name=rabbitmq     starts it again and answers when its part is ready
//	POST /restart?name=rabbitmq   both
func (l *lab) serveControl() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for control: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /kill", l.disturb(func(_ context.Context, _ *Plan, p *Process) error {
		p.Kill()
		return nil
	}))
	mux.HandleFunc("POST /start", l.disturb(func(ctx context.Context, plan *Plan, p *Process) error {
		return errors.Join(p.Start(), awaitReady(ctx, plan))
	}))
	mux.HandleFunc("POST /restart", l.disturb(func(ctx context.Context, plan *Plan, p *Process) error {
		p.Kill()
		return errors.Join(p.Start(), awaitReady(ctx, plan))
	}))
	l.control = &http.Server{Handler: mux}
	go func() { _ = l.control.Serve(listener) }() // ends with stop
	return listener.Addr().String(), nil
}

func (l *lab) disturb(do func(context.Context, *Plan, *Process) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("name")
		for _, plan := range l.plans {
			for _, p := range plan.Processes {
				if p.Name != name {
					continue
				}
				if err := do(r.Context(), plan, p); err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
				}
				return
			}
		}
		http.Error(w, fmt.Sprintf("no process %q in this lab", name), http.StatusNotFound)
	}
}
