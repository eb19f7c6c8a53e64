package web_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/web"
)

func TestNothingIsListenedOnBeyondLoopbackWithoutCredentials(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "10.1.2.3:0", "bench-1:0"} {
		at, _, err := (web.Listener{Listen: listen,
			Log: slog.New(slog.DiscardHandler)}).Serve(func(*web.Access) http.Handler { return http.NotFoundHandler() })
		if !errors.Is(err, web.ErrOpen) {
			t.Errorf("%s: listens at %v, %v; want that it is refused", listen, at, err)
		}
	}
	for _, listen := range []string{"127.0.0.1:0", "localhost:0", "[::1]:8088"} {
		if _, err := web.NewAccess(listen, nil); err != nil {
			t.Errorf("%s: %v", listen, err)
		}
	}
	if _, err := web.NewAccess("0.0.0.0:0", users(t)); err != nil {
		t.Errorf("with users: %v", err)
	}
}

func TestServeListensAndStops(t *testing.T) {
	at, stop, err := web.Listener{Listen: "127.0.0.1:0",
		Log: slog.New(slog.DiscardHandler)}.Serve(func(*web.Access) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("here")) })
	})
	if err != nil {
		t.Fatal(err)
	}
	if answer, text := ask(t, "GET", "http://"+at.String(), "", nil); text != "here" {
		t.Errorf("it says %s %q", answer.Status, text)
	}
	_, _, taken := web.Listener{Listen: at.String(),
		Log: slog.New(slog.DiscardHandler)}.Serve(func(*web.Access) http.Handler { return http.NotFoundHandler() })
	if taken == nil || !strings.Contains(taken.Error(), "use another address") {
		t.Errorf("a second one on the same address: %v", taken)
	}
	stop()
	if _, err := http.Get("http://" + at.String()); err == nil {
		t.Error("it still answers after it was stopped")
	}
}

func TestWhoMaySee(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})
	type listener struct {
		at    string
		users bool
	}
	all := map[listener]*web.Access{}
	for _, c := range []struct {
		about, listen, host, user, password string
		users                               bool
		want                                int
	}{
		{"on loopback, nobody needs to log in", "127.0.0.1:8088", "127.0.0.1:8088", "", "", false, 200},
		{"by another name of loopback", "127.0.0.1:8088", "localhost", "", "", true, 200},
		{"IPv6", "[::1]:8088", "[::1]:8088", "", "", false, 200},
		{"a name of the world that resolves to loopback", "127.0.0.1:8088", "evil.example:8088", "", "", false, 403},
		{"the same where one can log in", "127.0.0.1:8088", "evil.example", "", "", true, 401},
		{"somebody who did, behind a proxy", "127.0.0.1:8088", "bench.example", "alice", "correct horse", true, 200},
		{"a wrong password is refused, on loopback, too", "127.0.0.1:8088", "127.0.0.1", "alice", "wrong horse", true,
			401},
		{"beyond loopback", "0.0.0.0:8088", "bench-1:8088", "", "", true, 401},
		{"beyond loopback, wrong", "0.0.0.0:8088", "bench-1:8088", "alice", "wrong", true, 401},
		{"beyond loopback, unknown", "0.0.0.0:8088", "bench-1:8088", "mallory", "correct horse", true, 401},
		{"beyond loopback, the name alone", "0.0.0.0:8088", "127.0.0.1:8088", "", "", true, 401},
		{"beyond loopback, logged in", "0.0.0.0:8088", "bench-1:8088", "alice", "correct horse", true, 200},
	} {
		at := listener{c.listen, c.users}
		if all[at] == nil {
			var who web.Users
			if c.users {
				who = users(t)
			}
			var err error
			if all[at], err = web.NewAccess(c.listen, who); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the second time the result is cached
			r := httptest.NewRequest("GET", "/", nil)
			r.Host = c.host
			if c.user != "" {
				r.SetBasicAuth(c.user, c.password)
			}
			w := httptest.NewRecorder()
			all[at].Guard(page).ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("%s: %d, want %d", c.about, w.Code, c.want)
			}
		}
	}
}

// Excess logins are rejected, and do not delay users who are logged in.
func TestAFloodOfLoginsIsTurnedAway(t *testing.T) {
	access, err := web.NewAccess("0.0.0.0:8088", users(t))
	if err != nil {
		t.Fatal(err)
	}
	guarded := access.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(ctx context.Context, password string) int {
		r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
		r.SetBasicAuth("alice", password)
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		return w.Code
	}
	if code := ask(t.Context(), "correct horse"); code != 200 {
		t.Fatal(code)
	}
	const guesses = 200
	release := access.HoldChecks() // as during a slow check
	codes := make(chan int, guesses)
	for i := range guesses {
		go func() { codes <- ask(t.Context(), fmt.Sprint("guess ", i)) }()
	}
	for range guesses - web.MaxWaiting {
		if code := <-codes; code != 503 {
			t.Errorf("a guess beyond those that wait gets %d", code)
		}
	}
	if code := ask(t.Context(), "correct horse"); code != 200 {
		t.Errorf("who was let in before gets %d in a flood", code)
	}
	release()
	for range web.MaxWaiting {
		if code := <-codes; code != 401 {
			t.Errorf("a guess that waited gets %d", code)
		}
	}
}

func TestAllErrorsOfAUsersFile(t *testing.T) {
	line, err := web.Password("alice", []byte("correct horse"))
	if err != nil {
		t.Fatal(err)
	}
	if all, err := web.ReadUsers(writeFile(t, "# who\n\n"+line+"\n", 0o600)); err != nil || len(all) != 1 ||
		all["alice"] == nil {
		t.Errorf("%d users, %v", len(all), err)
	}
	_, err = web.ReadUsers(writeFile(t, "bob:plaintext\n"+line+"\n"+line+"\nnothing\n", 0o602))
	if err == nil {
		t.Fatal("an invalid file of users was accepted")
	}
	for _, want := range []string{":1: not of the form NAME:HASH", ":3: duplicate user \"alice\"", ":4: not of the form",
		"other users of this host can write"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "plaintext") {
		t.Errorf("the error shows a password: %v", err)
	}
	if _, err := web.ReadUsers(writeFile(t, "", 0o600)); err == nil {
		t.Error("a file without users was taken")
	}
	for _, bad := range [][2]string{{"a:b", "long enough"}, {"a", "short"}, {"", "long enough"},
		{"a", strings.Repeat("x", 73)}} {
		if line, err := web.Password(bad[0], []byte(bad[1])); err == nil {
			t.Errorf("Password(%q, %q) gave %q", bad[0], bad[1], line)
		}
	}
}
