package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
)

// serveControl lets the command disturb the brokers:
//
//	POST /kill?name=rabbitmq      kills a broker as a power cut would
//	POST /start?name=rabbitmq     starts it again, and answers when it and those of its part that run are ready
//	POST /restart?name=rabbitmq   both
//	POST /pause?name=rabbitmq     stops it where it stands, its connections open
//	POST /resume?name=rabbitmq    lets it go on
//
// A broker that is started again listens on the ports that it had.
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
		mux.HandleFunc(path, l.disturb(do))
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.control = &http.Server{Handler: mux, BaseContext: func(net.Listener) context.Context { return ctx }}
	l.endControl = cancel
	go func() { _ = l.control.Serve(listener) }() // ends with stop
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
