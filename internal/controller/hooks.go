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

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/procs"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire"
)

// Limits of the output of a hook, in bytes.
const (
	maxPrinted = schedule.MaxCompared
	maxWords   = 500
)

const maxBackoff = 5 * time.Minute

// Hooks are the hooks that a controller calls after runs of schedules. Safe for concurrent use.
type Hooks struct {
	all    []plan.Hook
	client http.RoundTripper
	host   plan.Host
}

// NewHooks returns the hooks that matrix.Hooks has read. References to secrets are resolved with host at each call. The
// error lists references that cannot be resolved now, and missing commands. The hooks are valid all the same.
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
			errs = append(errs, fmt.Errorf("hook %s: cannot run its command on this host: %w", hook.Name, err))
		}
	}
	return h, errors.Join(errs...)
}

func (h *Hooks) names() []string {
	names := []string{}
	for _, hook := range h.all {
		names = append(names, hook.Name)
	}
	return names
}

func (h *Hooks) find(name string) (plan.Hook, error) {
	if i := slices.IndexFunc(h.all, func(hook plan.Hook) bool { return hook.Name == name }); i >= 0 {
		return h.all[i], nil
	}
	return plan.Hook{}, fmt.Errorf("unknown hook %q; add it to the --hooks file of the controller", name)
}

// call calls a hook, and retries with a doubling pause, up to hook.Retries times. It returns what a command printed,
// and the number of attempts. The error contains no secret. When ctx ends, call returns at once.
func (h *Hooks) call(ctx context.Context, hook plan.Hook, n schedule.Notice) (printed []byte, attempts int, err error) {
	body, err := json.Marshal(n)
	if err != nil {
		return nil, 0, fmt.Errorf("write notice: %w", err)
	}
	backoff := hook.Backoff.D()
	for {
		attempts++
		final := false // a retry would fail in the same way
		one, cancel := context.WithTimeout(ctx, hook.Timeout.D())
		if hook.Webhook != "" {
			final, err = h.post(one, hook, n.Key, body)
		} else {
			printed, err = runHook(one, hook.Command, n, body)
		}
		if err != nil && errors.Is(one.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no response within its timeout of %v", hook.Timeout)
		}
		cancel()
		if err == nil || final || attempts > hook.Retries || ctx.Err() != nil {
			return printed, attempts, err
		}
		if err := wire.Wait(ctx, backoff); err != nil {
			return nil, attempts, err
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// address resolves the secrets in the address and the headers of a webhook. The scrubber removes them from text.
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
		return hook, nil, errors.New("the webhook is not an http or https URL") // it may be a secret
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
		return true, errors.New("the webhook is not an http or https URL")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "lockstep")
	r.Header.Set("Idempotency-Key", key)
	for name, value := range to.Headers {
		r.Header.Set(name, value)
	}
	answer, err := h.client.RoundTrip(r) // redirects are not followed: a redirected POST becomes a GET
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

// runHook runs a command with the notice on its standard input. The rest of its process group is killed.
func runHook(ctx context.Context, argv []string, n schedule.Notice, body []byte) ([]byte, error) {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out, stderr := &procs.Output{Limit: maxPrinted}, &procs.Output{Limit: maxWords}
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(body), out, stderr
	// the controller's credentials are not passed on
	c.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LOCKSTEP_") }),
		"LOCKSTEP_RUN="+n.Run, "LOCKSTEP_SCHEDULE="+n.Schedule, "LOCKSTEP_STATE="+string(n.State),
		"LOCKSTEP_KEY="+n.Key, "LOCKSTEP_RUN_DIR="+n.Directory, "LOCKSTEP_PREVIOUS="+n.Previous,
		"LOCKSTEP_PREVIOUS_DIR="+n.PreviousDirectory)
	procs.NewGroup(c, false)
	// kills the whole group; the process is not reaped yet, so no other process has its pid
	c.Cancel = func() error { return procs.KillGroup(c.Process.Pid) }
	c.WaitDelay = time.Second
	started := make(chan error)
	go func() { // on a thread that ends with this goroutine, as DropAmbient changes the thread
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
			_ = procs.KillGroup(c.Process.Pid) // remaining processes of the group may keep standard output open
		}
		err = c.Wait()
	}
	if errors.Is(err, exec.ErrWaitDelay) && c.ProcessState.Success() { // a process left the group
		err = nil
	}
	if words := plan.Redact(oneLine(stderr.Text)); err != nil && words == "" {
		return nil, fmt.Errorf("run command: %w (no output on standard error)", err)
	} else if err != nil {
		return nil, fmt.Errorf("run command: %w: %s", err, words)
	}
	if out.Over {
		return nil, fmt.Errorf("run command: output of more than %d bytes", maxPrinted)
	}
	return out.Text, nil
}

func oneLine(text []byte) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(text), "\uFFFD")), " ")
}
