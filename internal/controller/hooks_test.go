package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schedule"
)

// pipeListener is an in-memory listener for an HTTP client and server in a bubble.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipeListener) Close() error   { close(p.done); return nil }
func (p *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// callWebhook calls a webhook that handle serves, and stops the server before it returns.
func callWebhook(t *testing.T, handle http.HandlerFunc, call func(h *Hooks)) {
	t.Helper()
	p := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: handle}
	go server.Serve(p) //nolint:errcheck // ends with Close
	transport := &http.Transport{DialContext: p.dial, DisableKeepAlives: true}
	h, err := NewHooks(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.client = transport
	call(h)
	transport.CloseIdleConnections()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

// neverRespond reads a notification and never responds.
func neverRespond(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // only then does the server detect that the client has disconnected
	<-r.Context().Done()
}

func webhook(retries int, timeout, backoff time.Duration) plan.Hook {
	return plan.Hook{Name: "chat", Webhook: "http://chat.example.org/in", Retries: retries,
		Timeout: plan.Duration(timeout), Backoff: plan.Duration(backoff)}
}

// Waits double from the backoff up to five minutes, and end after the retries.
func TestWaitsBetweenAttemptsDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		callWebhook(t, func(answer http.ResponseWriter, _ *http.Request) {
			at = append(at, time.Since(begin))
			http.Error(answer, "not now", http.StatusServiceUnavailable)
		}, func(h *Hooks) {
			_, attempts, err := h.call(t.Context(), webhook(4, time.Minute, 2*time.Minute), schedule.Notice{})
			if err == nil || !strings.Contains(err.Error(), "503 Service Unavailable not now") || attempts != 5 {
				t.Errorf("got %d attempts, error %v, want 5 and the status", attempts, err)
			}
		})
		want := []time.Duration{0, 2 * time.Minute, 6 * time.Minute, 11 * time.Minute, 16 * time.Minute}
		if len(at) != len(want) {
			t.Fatalf("times of attempts: got %v, want %v", at, want)
		}
		for i := range want {
			if at[i] != want[i] {
				t.Errorf("time of attempt %d: got %v, want %v", i+1, at[i], want[i])
			}
		}
	})
}

// Each attempt ends at its timeout if the webhook does not respond, or if its response does not end.
func TestHangingWebhooksTimeOut(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"no response": neverRespond,
		"endless response": func(answer http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			answer.WriteHeader(http.StatusInternalServerError)
			_ = http.NewResponseController(answer).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				callWebhook(t, handle, func(h *Hooks) {
					begin := time.Now()
					_, attempts, err := h.call(t.Context(), webhook(1, 30*time.Second, time.Second), schedule.Notice{})
					if elapsed := time.Since(begin); err == nil || !strings.Contains(err.Error(), "timeout of 30s") ||
						attempts != 2 || elapsed != 61*time.Second {
						t.Errorf("got %v, %d attempts, error %v, want 61 s, 2, a timeout", elapsed, attempts, err)
					}
				})
			})
		})
	}
}

// A controller that ends waits neither for a response nor for the next attempt.
func TestHooksEndWithTheController(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"in an attempt": neverRespond,
		"between attempts": func(answer http.ResponseWriter,
			_ *http.Request) {
			http.Error(answer, "no", http.StatusBadGateway)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				callWebhook(t, handle, func(h *Hooks) {
					ctx, stop := context.WithCancel(t.Context())
					time.AfterFunc(10*time.Second, stop)
					begin := time.Now()
					_, _, err := h.call(ctx, webhook(3, time.Minute, time.Minute), schedule.Notice{})
					if err == nil || time.Since(begin) != 10*time.Second || name == "between attempts" &&
						!errors.Is(err, context.Canceled) {
						t.Errorf("got %v, error %v, want 10 s and an error", time.Since(begin), err)
					}
				})
			})
		})
	}
}

// Child processes that a command leaves running are killed with it, and the command still succeeds. A child in another
// process group is not waited for.
func TestHooksLeaveNothingBehind(t *testing.T) {
	const lasts = 10 * time.Minute // longer than the maximum time of a hook
	left := fmt.Sprintf("sleep %d &", int(lasts.Seconds()))
	for how, start := range map[string]string{"same process group": left, "own process group": "setsid " + left} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pid")
			argv := []string{"sh", "-c", start + " echo $! >" + file + `; echo '{"slower": 3}'`}
			begin := time.Now()
			printed, err := runHook(t.Context(), argv, schedule.Notice{}, nil)
			if elapsed := time.Since(begin); err != nil || string(printed) != "{\"slower\": 3}\n" || elapsed >= lasts {
				t.Errorf("got output %q after %v, error %v, want the output before %v, no error", printed, elapsed, err,
					lasts)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(2 * time.Minute); how == "same process group" &&
				isRunning(pid); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the child process of the hook is still running")
				}
			}
			if how == "own process group" {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
	}
	if _, err := runHook(t.Context(), []string{"sh", "-c", "sleep 60 & echo no >&2; exit 3"}, schedule.Notice{},
		nil); err == nil || !strings.Contains(err.Error(), "exit status 3: no") {
		t.Errorf("failing hook: got error %v, want \"exit status 3: no\"", err)
	}
}

// TestHooksGetNoCredentials proves that a command has the controller's environment without Lockstep's variables.
func TestHooksGetNoCredentials(t *testing.T) {
	t.Setenv("LOCKSTEP_TOKEN", "top-secret")
	t.Setenv("MINE", "yes")
	printed, err := runHook(t.Context(), []string{"env"}, schedule.Notice{}, nil)
	if err != nil || !strings.Contains(string(printed), "MINE=yes\n") ||
		strings.Contains(string(printed), "top-secret") {
		t.Errorf("environment of a hook: got %s, error %v, want MINE without LOCKSTEP_TOKEN", printed, err)
	}
}

// isRunning reports whether a process runs. A zombie does not.
func isRunning(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(text), ") Z ") && syscall.Kill(pid, 0) == nil
}
