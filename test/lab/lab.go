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
	"strings"
	"sync"
	"time"
)

const (
	// for a cluster of three while other tests run; shorter than the request of a test, whose error then has the reason
	readyWithin  = 9 * time.Minute
	readyEvery   = 250 * time.Millisecond
	answerWithin = 5 * time.Second // for one readiness check
)

// lab is the state of one invocation.
type lab struct {
	site *site
	keep bool
	env  []string

	mu    sync.Mutex // guards plans, own and owned, and the choice of ports
	plans []*Plan
	own   map[string]*Plan // those of plans that were started through control, by instance
	owned int              // number of instances that were started through control
	needs sync.Mutex       // held while needs are met
	met   map[string]bool  // needs that are met, by id; guarded by needs

	control    *http.Server
	endControl context.CancelFunc // cancels the current requests of control
}

func newLab(out io.Writer, keep bool) (*lab, error) {
	s, err := newSite(out)
	if err != nil {
		return nil, err
	}
	return &lab{site: s, keep: keep}, nil
}

// start starts all parts concurrently and returns when all are ready.
func (l *lab) start(ctx context.Context, parts []Part) error {
	if err := l.meet(ctx, parts...); err != nil {
		return err
	}
	begun := time.Now()
	for _, part := range parts {
		if _, err := l.plan(part, part.Name, usualPorts[part.Name]); err != nil {
			return err
		}
	}
	if err := l.launch(ctx, parts); err != nil {
		return err
	}
	l.site.print("all is ready after %.1f s", time.Since(begun).Seconds())
	for i, part := range parts {
		l.env = slices.Concat(l.env, l.plans[i].Env, l.plans[i].pids(part.Name))
	}
	address, err := l.serveControl()
	if err != nil {
		return err
	}
	l.env = append(l.env, "LOCKSTEP_LAB=required", "LOCKSTEP_LAB_CONTROL=http://"+address)
	return nil
}

// meet meets the parts' needs, each once per lab.
func (l *lab) meet(ctx context.Context, parts ...Part) error {
	l.needs.Lock()
	defer l.needs.Unlock()
	var missing []Part
	for _, part := range parts {
		if slices.ContainsFunc(part.Needs, func(n need) bool { return !l.met[n.id()] }) {
			missing = append(missing, part)
		}
	}
	if err := meetAll(ctx, l.site, missing); err != nil {
		return err
	}
	if l.met == nil {
		l.met = map[string]bool{}
	}
	for _, part := range missing {
		for _, n := range part.Needs {
			l.met[n.id()] = true
		}
	}
	return nil
}

// plan adds an instance of a part. It uses the preferred ports if they are free.
func (l *lab) plan(part Part, instance string, preferred []int) (*Plan, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	dir := l.dir(instance)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("plan %s: %w", instance, err)
	}
	var plan *Plan
	ports, err := l.site.ports(part.Ports, preferred)
	if err == nil {
		plan, err = part.Plan(l.site, dir, ports)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("plan %s: %w", instance, err), os.RemoveAll(dir))
	}
	for _, p := range slices.Concat(plan.Helpers, plan.Processes) {
		p.Name = instance + strings.TrimPrefix(p.Name, part.Name)
	}
	l.plans = append(l.plans, plan)
	return plan, nil
}

// dir returns an instance's folder.
func (l *lab) dir(instance string) string { return filepath.Join(l.site.dir, instance) }

// launch starts the processes of all parts, a few parts at a time: a start uses a whole core, and brokers that share it
// with many others exceed their own deadlines. The first error cancels the other starts.
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
			if err := l.launchOne(ctx, part.Name, l.plans[i]); err != nil {
				failures <- err
				cancel()
			}
		})
	}
	wg.Wait()
	close(failures)
	return <-failures
}

// launchOne starts an instance, and reports when it is ready.
func (l *lab) launchOne(ctx context.Context, instance string, plan *Plan) error {
	begun := time.Now()
	if err := plan.launch(ctx); err != nil {
		return fmt.Errorf("start %s: %w", instance, err)
	}
	l.site.print("%s%s is ready after %.1f s", instance, plan.version(ctx), time.Since(begun).Seconds())
	return nil
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

// await polls until the running brokers are ready. It returns an error if a watched process ends, or after readyWithin.
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
			var logs strings.Builder
			for _, process := range p.Processes {
				logs.WriteString("\n" + process.logEnd())
			}
			return fmt.Errorf("wait until it is ready: %w; last seen: %w%s", ctx.Err(), missing, logs.String())
		case <-ticker.C:
		}
	}
}

// version returns the version of the brokers in parentheses, or "" if it is not known.
func (p *Plan) version(ctx context.Context) string {
	if p.Version == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	version, err := p.Version(ctx)
	if err != nil {
		return fmt.Sprintf(" (version unknown: %v)", err)
	}
	return " (" + version + ")"
}

// stop ends all processes of an instance.
func (p *Plan) stop() {
	var brokers sync.WaitGroup
	for _, broker := range p.Processes {
		brokers.Go(broker.Stop)
	}
	brokers.Wait()
	for _, helper := range p.Helpers {
		helper.Stop()
	}
}

// stop stops everything and removes the files.
func (l *lab) stop() {
	if l.control != nil {
		l.endControl()
		_ = l.control.Shutdown(context.Background()) // waits for current requests, which have a deadline
	}
	var wg sync.WaitGroup
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, plan := range l.plans {
		wg.Go(plan.stop)
	}
	wg.Wait()
	if l.keep {
		l.site.print("the brokers' files are in %v", l.site.dir)
	}
	if err := l.site.close(l.keep); err != nil {
		l.site.print("remove the brokers' files: %v", err)
	}
}
