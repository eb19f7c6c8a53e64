package web

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"
)

// ErrOpen is wrapped by the error of listening beyond loopback without credentials.
var ErrOpen = errors.New("beyond loopback only with credentials")

// Users are who may log in: bcrypt hashes of passwords, by name.
type Users map[string][]byte

// ReadUsers reads a file with a line "name:hash" for each user, as "ctl fleet password" and "htpasswd -B" write them.
// The error holds every fault.
func ReadUsers(path string) (Users, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	var faults []error
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o002 != 0 {
		faults = append(faults, fmt.Errorf("anybody on this host may write to %s; chmod o-w it", path))
	}
	users := Users{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, hash, _ := strings.Cut(line, ":")
		_, bad := bcrypt.Cost([]byte(hash))
		switch {
		case name == "" || bad != nil: // the line is not shown: it may be a password
			faults = append(faults,
				fmt.Errorf("%s:%d: want NAME:HASH with a bcrypt hash, as \"ctl fleet password NAME\" writes it", path,
					n))
		case users[name] != nil:
			faults = append(faults, fmt.Errorf("%s:%d: user %q is there twice", path, n, name))
		}
		users[name] = []byte(hash)
	}
	if err := lines.Err(); err != nil {
		faults = append(faults, err)
	}
	if len(users) == 0 && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("%s names nobody; make a line with \"ctl fleet password NAME\"", path))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("read users: %w", errors.Join(faults...))
	}
	return users, nil
}

// Password makes the line of a users' file for a user.
func Password(name string, password []byte) (string, error) {
	switch {
	case name == "" || strings.ContainsAny(name, ":\r\n"):
		return "", fmt.Errorf("user %q: give a name without \":\"", name)
	case len(password) < 8 || len(password) > 72:
		return "", fmt.Errorf("the password has %d bytes: give 8 to 72", len(password))
	}
	hash, err := bcrypt.GenerateFromPassword(password, bcrypt.DefaultCost)
	if err != nil {
		return "", fmt.Errorf("hash the password: %w", err)
	}
	return name + ":" + string(hash), nil
}

// Access decides who may see what is served, and who may change something. Safe for concurrent use.
type Access struct {
	users    Users
	loopback bool // it listens there alone, where reading needs no login
	key      []byte
	nobody   []byte // a hash that no password has, so that names that are not known take as long as those that are

	mu       sync.Mutex
	known    map[[sha256.Size]byte]bool // names and passwords that were right
	checking chan struct{}              // bcrypt takes its time: guesses of all the world do so one after the other,
	waiting  chan struct{}              // and so many wait for it
}

// maxWaiting is how many logins wait for the one that is checked: some seconds of checking.
const maxWaiting = 32

// maxKnown bounds what is remembered of right passwords.
const maxKnown = 1000

// NewAccess is the access to what listens on an address (host:port). The error wraps ErrOpen if that is beyond loopback
// and there are no users.
func NewAccess(listen string, users Users) (*Access, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w (write it like 127.0.0.1:8088)", listen, err)
	}
	a := &Access{users: users, loopback: loopback(host), key: make([]byte, 32), known: map[[sha256.Size]byte]bool{},
		checking: make(chan struct{}, 1), waiting: make(chan struct{}, maxWaiting)}
	if !a.loopback && len(users) == 0 {
		return nil, fmt.Errorf("listen on %q: %w", listen, ErrOpen)
	}
	_, _ = rand.Read(a.key) // never fails
	if len(users) > 0 {
		if a.nobody, err = bcrypt.GenerateFromPassword(a.key, bcrypt.DefaultCost); err != nil {
			return nil, fmt.Errorf("prepare logins: %w", err)
		}
	}
	return a, nil
}

// loopback reports whether listening on a host reaches this machine alone. A name other than localhost may resolve to
// anything.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Guard lets to next whoever may see what it serves. Who has logged in is in the request's context; on loopback, nobody
// needs to.
func (a *Access) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, given := r.BasicAuth()
		switch {
		case given && len(a.users) > 0:
			right, busy := a.right(r.Context(), user, password)
			if busy {
				w.Header().Set("Retry-After", "5")
				http.Error(w, "too many log in at the moment; try again in some seconds", http.StatusServiceUnavailable)
				return
			}
			if !right {
				a.challenge(w)
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), userKey{}, user))
		case !a.loopback:
			a.challenge(w)
			return
		case !loopback(hostOf(r.Host)): // a site of the world may have its name resolve to 127.0.0.1 and read here by its visitors' browsers
			if len(a.users) > 0 {
				a.challenge(w)
				return
			}
			http.Error(w,
				"this page is read without login as localhost or 127.0.0.1 only; under other names start it with --web-users", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

func (a *Access) challenge(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="Lockstep", charset="UTF-8"`)
	http.Error(w, "log in with a name and password of the --web-users file", http.StatusUnauthorized)
}

// right checks a name and password. Browsers send them with every request, so that what was right is remembered, by a
// hash that nobody else can make. busy: too many others wait to be checked.
func (a *Access) right(ctx context.Context, user, password string) (right, busy bool) {
	sum := [sha256.Size]byte(a.mac("login", user, password))
	a.mu.Lock()
	known := a.known[sum]
	a.mu.Unlock()
	if known {
		return true, false
	}
	select {
	case a.waiting <- struct{}{}:
		defer func() { <-a.waiting }()
	default:
		return false, true
	}
	select {
	case a.checking <- struct{}{}:
		defer func() { <-a.checking }()
	case <-ctx.Done():
		return false, false
	}
	hash, there := a.users[user]
	if !there {
		hash = a.nobody
	}
	if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil || !there {
		return false, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) < maxKnown {
		a.known[sum] = true
	}
	return true, false
}

func (a *Access) mac(words ...string) []byte {
	h := hmac.New(sha256.New, a.key)
	for _, word := range words {
		fmt.Fprintf(h, "%d:%s", len(word), word)
	}
	return h.Sum(nil)
}

type userKey struct{}

// user is who has logged in; "": nobody.
func user(r *http.Request) string {
	name, _ := r.Context().Value(userKey{}).(string)
	return name
}

// token is what a form shows to prove that it was made here for this user.
func (a *Access) token(user string) string { return hex.EncodeToString(a.mac("form", user)) }

// mayAct returns why a request may change nothing; nil: it may. It has to be of somebody who has logged in, come from a
// page of this site (Origin, Sec-Fetch-Site), and hold the token of that page.
func (a *Access) mayAct(r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return fmt.Errorf("%w: it comes from another site", errForbidden)
	}
	if who := user(r); who == "" || !hmac.Equal([]byte(r.PostFormValue("token")), []byte(a.token(who))) {
		return fmt.Errorf("%w: its form is not of this page, or is old: load the page again", errForbidden)
	}
	return nil
}

var errForbidden = errors.New("nothing was done")
