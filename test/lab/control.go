package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
)

// serveControl serves the endpoint with which the command injects faults into the brokers:
//
//	POST /kill?name=rabbitmq      kills a broker without warning
//	POST /start?name=rabbitmq     starts it again, and responds when it and the running brokers of its part are ready
//	POST /restart?name=rabbitmq   kill, then start
//	POST /pause?name=rabbitmq     stops its process without closing connections
//	POST /resume?name=rabbitmq    continues it
//
// A broker that is started again listens on the same ports. Two requests start and stop instances for a single test:
//
//	POST /up?part=rabbitmq          starts an instance; the response has its variables, one NAME=value per line, when it is ready
//	POST /down?part=rabbitmq-own1   stops that instance and removes its files
//
// The variables have the same names as those of the part. There are two more: LOCKSTEP_LAB_INSTANCE is the argument of
// /down, and LOCKSTEP_LAB_PROCESSES has the names of the brokers for the other requests, separated by commas.
func (l *lab) serveControl() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for control: %w", err)
	}
	mux := http.NewServeMux()
	for path, do := range map[string]func(context.Context, *Plan, *Process) error{
		"POST /kill":    kill,
		"POST /start":   start,
		"POST /restart": restart,
		"POST /pause":   func(_ context.Context, _ *Plan, p *Process) error { return p.Pause() },
		"POST /resume":  func(_ context.Context, _ *Plan, p *Process) error { return p.Resume() },
	} {
		mux.HandleFunc(path, l.injectFault(do))
	}
	mux.HandleFunc("POST /up", l.up)
	mux.HandleFunc("POST /down", l.down)
	ctx, cancel := context.WithCancel(context.Background())
	l.control = &http.Server{Handler: mux, BaseContext: func(net.Listener) context.Context { return ctx }}
	l.endControl = cancel
	go func() { _ = l.control.Serve(listener) }() // returns when stop shuts the server down
	return listener.Addr().String(), nil
}

func kill(_ context.Context, _ *Plan, p *Process) error {
	p.Kill()
	return nil
}

func start(ctx context.Context, plan *Plan, p *Process) error {
	if err := p.Start(ctx); err != nil {
		return err
	}
	return plan.await(ctx, []*Process{p})
}

func restart(ctx context.Context, plan *Plan, p *Process) error {
	p.Kill()
	return start(ctx, plan, p)
}

func (l *lab) injectFault(do func(context.Context, *Plan, *Process) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("name")
		plan, p := l.process(name)
		if p == nil {
			http.Error(w, fmt.Sprintf("no process %q in this lab", name), http.StatusNotFound)
			return
		}
		if err := do(r.Context(), plan, p); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

// process finds a broker by its name. It returns nil if there is none.
func (l *lab) process(name string) (*Plan, *Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, plan := range l.plans {
		for _, p := range plan.Processes {
			if p.Name == name {
				return plan, p
			}
		}
	}
	return nil, nil
}

func (l *lab) up(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("part")
	i := slices.IndexFunc(parts, func(p Part) bool { return p.Name == name })
	if i < 0 {
		http.Error(w, fmt.Sprintf("no part %q", name), http.StatusNotFound)
		return
	}
	env, err := l.startOwn(r.Context(), parts[i])
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintln(w, strings.Join(env, "\n")) // the client may be gone; the instance then ends with the lab
}

// startOwn starts another instance of a part and returns its variables. An instance that fails is removed.
func (l *lab) startOwn(ctx context.Context, part Part) ([]string, error) {
	if err := l.meet(ctx, part); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.owned++
	instance := fmt.Sprintf("%s-own%d", part.Name, l.owned)
	l.mu.Unlock()
	plan, err := l.plan(part, instance, nil)
	if err != nil {
		return nil, err
	}
	if err := l.launchOne(ctx, instance, plan); err != nil {
		return nil, errors.Join(err, l.remove(instance, plan))
	}
	l.mu.Lock()
	if l.own == nil {
		l.own = map[string]*Plan{}
	}
	l.own[instance] = plan
	l.mu.Unlock()
	var processes []string
	for _, p := range plan.Processes {
		processes = append(processes, p.Name)
	}
	return slices.Concat(plan.Env, plan.pids(part.Name),
		[]string{"LOCKSTEP_LAB_INSTANCE=" + instance, "LOCKSTEP_LAB_PROCESSES=" + strings.Join(processes, ",")}), nil
}

func (l *lab) down(w http.ResponseWriter, r *http.Request) {
	instance := r.URL.Query().Get("part")
	l.mu.Lock()
	plan := l.own[instance]
	delete(l.own, instance)
	l.mu.Unlock()
	if plan == nil {
		http.Error(w, fmt.Sprintf("no instance %q that was started on demand", instance), http.StatusNotFound)
		return
	}
	if err := l.remove(instance, plan); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// remove stops an instance and removes its files. Its ports stay reserved until the lab ends.
func (l *lab) remove(instance string, plan *Plan) error {
	plan.stop()
	l.mu.Lock()
	l.plans = slices.DeleteFunc(l.plans, func(p *Plan) bool { return p == plan })
	l.mu.Unlock()
	if l.keep {
		return nil
	}
	return os.RemoveAll(l.dir(instance))
}
