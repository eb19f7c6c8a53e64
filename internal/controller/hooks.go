package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/procs"
	"lockstep/internal/schedule"
)

// Bounds of what a hook says back, in bytes.
const (
	maxPrinted = schedule.MaxCompared
	maxWords   = 500
)

const maxBackoff = 5 * time.Minute

// Hooks are what a controller calls after a schedule's runs. Safe for concurrent use.
type Hooks struct {
	all    []plan.Hook
	client http.RoundTripper
	host   plan.Host
}

// NewHooks takes hooks as matrix.Hooks reads them. References to secrets are filled in at each call, from host; an
// error tells those that cannot be filled in now, and commands that this host does not have.
func NewHooks(all []plan.Hook, host plan.Host) (*Hooks, error) {
	h := &Hooks{all: all, client: http.DefaultTransport, host: host}
	var errs []error
	for _, hook := range all {
		if _, _, err := h.address(hook); err != nil {
			errs = append(errs, fmt.Errorf("hook %s: %w", hook.Name, err))
		}
		if len(hook.Command) == 0 {
			continue
		}
		if _, err := exec.LookPath(hook.Command[0]); err != nil {
			errs = append(errs, fmt.Errorf("hook %s: its command cannot be run on this host: %w", hook.Name, err))
		}
	}
	return h, errors.Join(errs...)
}

// Names lists the hooks in order. It may be called on nil.
func (h *Hooks) Names() []string {
	names := []string{}
	if h != nil {
		for _, hook := range h.all {
			names = append(names, hook.Name)
		}
	}
	return names
}

// find returns a hook by its name. It may be called on nil.
func (h *Hooks) find(name string) (plan.Hook, error) {
	if h != nil {
		if i := slices.IndexFunc(h.all, func(hook plan.Hook) bool { return hook.Name == name }); i >= 0 {
			return h.all[i], nil
		}
	}
	return plan.Hook{}, fmt.Errorf("this controller knows no hook %q: name it in its --hooks file", name)
}

// call tells a hook, and again after a while if it could not be told, as often as the hook says. It returns what a
// command printed, and how many attempts there were. The error holds no secret. When ctx ends it stops at once.
func (h *Hooks) call(ctx context.Context, hook plan.Hook, n schedule.Notice) (printed []byte, attempts int, err error) {
	body, err := json.Marshal(n)
	if err != nil {
		return nil, 0, fmt.Errorf("write notice: %w", err)
	}
	backoff := hook.Backoff.D()
	for {
		attempts++
		var final bool
		if printed, final, err = h.attempt(ctx, hook, n, body); err == nil || final || attempts > hook.Retries ||
			ctx.Err() != nil {
			return printed, attempts, err
		}
		if err := pause(ctx, backoff); err != nil {
			return nil, attempts, err
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// attempt tells a hook once; final: another attempt would end alike.
func (h *Hooks) attempt(ctx context.Context, hook plan.Hook, n schedule.Notice, body []byte) (printed []byte,
	final bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, hook.Timeout.D())
	defer cancel()
	if hook.Webhook != "" {
		final, err = h.post(ctx, hook, n.Key, body)
	} else {
		printed, err = runHook(ctx, hook.Command, n, body)
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("it took longer than its timeout of %v", hook.Timeout)
	}
	return printed, final, err
}

// address is where a webhook goes, with its secrets, and what removes these from text.
func (h *Hooks) address(hook plan.Hook) (plan.Hook, *plan.Scrubber, error) {
	if hook.Webhook == "" {
		return hook, nil, nil
	}
	text, err := json.Marshal(map[string]any{"webhook": hook.Webhook, "headers": hook.Headers})
	if err != nil {
		return hook, nil, err
	}
	text, scrub, err := plan.Resolve(text, []string{"headers"}, h.host)
	if err != nil {
		return hook, nil, err
	}
	hook.Headers = nil
	if err := json.Unmarshal(text, &hook); err != nil {
		return hook, nil, err
	}
	if u, err := url.Parse(hook.Webhook); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return hook, nil, errors.New("its webhook is not an address of http or https") // which is a secret perhaps
	}
	return hook, scrub, nil
}

func (h *Hooks) post(ctx context.Context, hook plan.Hook, key string, body []byte) (final bool, err error) {
	to, scrub, err := h.address(hook)
	if err != nil {
		return true, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.Webhook, bytes.NewReader(body))
	if err != nil {
		return true, errors.New("its webhook is not an address of http or https")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "lockstep")
	r.Header.Set("Idempotency-Key", key)
	for name, value := range to.Headers {
		r.Header.Set(name, value)
	}
	answer, err := h.client.RoundTrip(r) // redirects are answers: a redirected POST becomes a GET
	if err != nil {
		return false, fmt.Errorf("post to %s: %s", r.URL.Host, scrub.Scrub(err.Error()))
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	words, _ := io.ReadAll(io.LimitReader(answer.Body, maxWords))
	if answer.StatusCode/100 == 2 {
		return false, nil
	}
	passing := answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests ||
		answer.StatusCode == http.StatusRequestTimeout || answer.StatusCode == http.StatusTooEarly
	return !passing, fmt.Errorf("post to %s: %s %s", r.URL.Host, answer.Status, scrub.Scrub(oneLine(words)))
}

// runHook runs a command with the notice on its standard input. What it has started and left behind ends with it.
func runHook(ctx context.Context, argv []string, n schedule.Notice, body []byte) ([]byte, error) {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out, said := &procs.Output{Limit: maxPrinted}, &procs.Output{Limit: maxWords}
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(body), out, said
	// the controller's credentials are its own
	c.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LOCKSTEP_") }),
		"LOCKSTEP_RUN="+n.Run, "LOCKSTEP_SCHEDULE="+n.Schedule, "LOCKSTEP_STATE="+string(n.State),
		"LOCKSTEP_KEY="+n.Key,
		"LOCKSTEP_RUN_DIR="+n.Directory, "LOCKSTEP_PREVIOUS="+n.Previous, "LOCKSTEP_PREVIOUS_DIR="+n.PreviousDirectory)
	procs.NewGroup(c, false)
	// with all that it has started; it is not waited for yet, so the number is its own
	c.Cancel = func() error { return procs.KillGroup(c.Process.Pid) }
	c.WaitDelay = time.Second
	started := make(chan error)
	go func() { // on a thread that ends without having been used for anything else
		runtime.LockOSThread()
		err := procs.DropAmbient()
		if err == nil {
			err = c.Start()
		}
		started <- err
	}()
	err := <-started
	if err == nil {
		if procs.Groups {
			procs.AwaitExit(c.Process.Pid)
			_ = procs.KillGroup(c.Process.Pid) // what it left behind, which may hold on to its standard output
		}
		err = c.Wait()
	}
	if errors.Is(err, exec.ErrWaitDelay) && c.ProcessState.Success() { // something left its group, too
		err = nil
	}
	if words := plan.Redact(oneLine(said.Text)); err != nil && words == "" {
		return nil, fmt.Errorf("run command: %w, and it wrote nothing to its standard error", err)
	} else if err != nil {
		return nil, fmt.Errorf("run command: %w: %s", err, words)
	}
	if out.Over {
		return nil, fmt.Errorf("run command: it printed more than %d bytes", maxPrinted)
	}
	return out.Text, nil
}

func oneLine(text []byte) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(text), "\uFFFD")), " ")
}
