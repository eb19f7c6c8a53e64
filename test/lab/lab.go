package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	readyWithin  = 3 * time.Minute // of a cluster of three on a busy machine
	readyEvery   = 250 * time.Millisecond
	answerWithin = 5 * time.Second // of a broker that is asked whether it is ready
)

// lab is everything that one invocation has started.
type lab struct {
	site  *site
	keep  bool
	plans []*Plan
	env   []string

	control    *http.Server
	endControl context.CancelFunc // ends what control is doing
}

func newLab(out io.Writer, keep bool) (*lab, error) {
	s, err := newSite(out)
	if err != nil {
		return nil, err
	}
	return &lab{site: s, keep: keep}, nil
}

// start starts all parts side by side and returns when all are ready.
func (l *lab) start(ctx context.Context, parts []Part) error {
	if err := meetAll(ctx, l.site, parts); err != nil {
		return err
	}
	begun := time.Now()
	for _, part := range parts {
		plan, err := l.plan(part)
		if err != nil {
			return fmt.Errorf("plan %s: %w", part.Name, err)
		}
		l.plans = append(l.plans, plan)
	}
	if err := l.launch(ctx, parts); err != nil {
		return err
	}
	l.site.say("all is ready after %.1f s", time.Since(begun).Seconds())
	for i, part := range parts {
		l.env = append(l.env, l.plans[i].Env()...)
		l.env = append(l.env, l.plans[i].pids(part.Name)...)
	}
	address, err := l.serveControl()
	if err != nil {
		return err
	}
	l.env = append(l.env, "LOCKSTEP_LAB=required", "LOCKSTEP_LAB_CONTROL=http://"+address)
	return nil
}

func (l *lab) plan(part Part) (*Plan, error) {
	dir := filepath.Join(l.site.dir, part.Name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	l.site.prefer(usualPorts[part.Name])
	return part.Plan(l.site, dir)
}

// launch starts the processes of all parts, a few parts at a time: to start takes a processor, and brokers that share one
// with many others miss deadlines of their own. The first part that fails ends the wait for the others.
func (l *lab) launch(ctx context.Context, parts []Part) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	failures := make(chan error, len(parts)+1)
	turns := make(chan struct{}, 2*runtime.NumCPU())
	for i, part := range parts {
		turns <- struct{}{}
		if ctx.Err() != nil {
			failures <- ctx.Err()
			break
		}
		wg.Go(func() {
			defer func() { <-turns }()
			begun := time.Now()
			if err := l.plans[i].launch(ctx); err != nil {
				failures <- fmt.Errorf("start %s: %w", part.Name, err)
				cancel()
				return
			}
			l.site.say("%s is ready after %.1f s", part.Name, time.Since(begun).Seconds())
		})
	}
	wg.Wait()
	close(failures)
	return <-failures
}

// launch starts a part's processes and waits until they are ready.
func (p *Plan) launch(ctx context.Context) error {
	for _, h := range p.Helpers {
		if err := h.Start(ctx); err != nil {
			return err
		}
	}
	errs := make([]error, len(p.Processes))
	var wg sync.WaitGroup
	for i, process := range p.Processes {
		wg.Go(func() { errs[i] = process.Start(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return p.await(ctx, slices.Concat(p.Helpers, p.Processes))
}

// await polls until the brokers that run are ready, one of the watched processes ends, or patience does.
func (p *Plan) await(ctx context.Context, watched []*Process) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	ticker := time.NewTicker(readyEvery)
	defer ticker.Stop()
	for {
		missing := p.ready(ctx)
		for _, w := range watched {
			if err := w.Check(); err != nil {
				return err
			}
		}
		if missing == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until it is ready: %w; last seen: %w", ctx.Err(), missing)
		case <-ticker.C:
		}
	}
}

// stop ends everything, and removes the files.
func (l *lab) stop() {
	if l.control != nil {
		l.endControl()
		_ = l.control.Shutdown(context.Background()) // waits for what is being done, which has a deadline
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
		l.site.say("the brokers' files are in %v", l.site.dir)
	}
	if err := l.site.close(l.keep); err != nil {
		l.site.say("remove the brokers' files: %v", err)
	}
}
