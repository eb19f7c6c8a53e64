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

// ErrOpen is wrapped by the error of listening beyond loopback without users.
var ErrOpen = errors.New("a login is required beyond loopback")

// Users are the bcrypt hashes of the passwords of all users, by user name.
type Users map[string][]byte

// ReadUsers reads a file with one line "name:hash" per user, as "ctl fleet hash-password" and "htpasswd -B" write it.
// The error lists all invalid lines. A file that other users of the host may write is an error.
func ReadUsers(path string) (Users, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	var problems []error
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o022 != 0 {
		problems = append(problems, fmt.Errorf("other users of this host can write to %s; run chmod go-w on it", path))
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
		case name == "" || bad != nil: // the line may be a password and is not shown
			problems = append(problems,
				fmt.Errorf("%s:%d: not of the form NAME:HASH with a bcrypt hash; create the line with \"ctl fleet hash-password NAME\"", path,
					n))
		case users[name] != nil:
			problems = append(problems, fmt.Errorf("%s:%d: duplicate user %q; remove one line", path, n, name))
		}
		users[name] = []byte(hash)
	}
	if err := lines.Err(); err != nil {
		problems = append(problems, err)
	}
	if len(users) == 0 && len(problems) == 0 {
		problems = append(problems, fmt.Errorf("%s contains no users; create a line with \"ctl fleet hash-password NAME\"", path))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("read users: %w", errors.Join(problems...))
	}
	return users, nil
}

// Password returns a line for the file of users. The password must have 8 to 72 bytes. The upper limit is that of
// bcrypt.
func Password(name string, password []byte) (string, error) {
	switch {
	case name == "" || strings.ContainsAny(name, ":\r\n"):
		return "", fmt.Errorf("user %q: invalid name; use a name without \":\"", name)
	case len(password) < 8 || len(password) > 72:
		return "", fmt.Errorf("the password has %d bytes; use 8 to 72", len(password))
	}
	hash, err := bcrypt.GenerateFromPassword(password, bcrypt.DefaultCost)
	if err != nil {
		return "", fmt.Errorf("hash the password: %w", err)
	}
	return name + ":" + string(hash), nil
}

// Access authenticates readers and authorises actions. It is safe for concurrent use.
type Access struct {
	users    Users
	loopback bool // it listens on loopback only, where reading needs no login
	key      []byte
	unknown  []byte // the hash of an unknown password, so that unknown names take as long to check as known ones

	mu       sync.Mutex
	known    map[[sha256.Size]byte]bool // HMACs of names and passwords that were correct
	checking chan struct{}              // bcrypt is slow: passwords are checked one at a time,
	waiting  chan struct{}              // and at most maxWaiting requests wait
}

// maxWaiting limits the waiting logins. The last of them waits for some seconds.
const maxWaiting = 32

// maxKnown limits the remembered correct logins.
const maxKnown = 1000

// NewAccess returns the access control for a listen address (host:port). The error wraps ErrOpen if the address is
// beyond loopback and there are no users.
func NewAccess(listen string, users Users) (*Access, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w; use HOST:PORT, such as 127.0.0.1:8088", listen, err)
	}
	a := &Access{users: users, loopback: loopback(host), key: make([]byte, 32), known: map[[sha256.Size]byte]bool{},
		checking: make(chan struct{}, 1), waiting: make(chan struct{}, maxWaiting)}
	if !a.loopback && len(users) == 0 {
		return nil, fmt.Errorf("listen on %q: %w", listen, ErrOpen)
	}
	_, _ = rand.Read(a.key) // never fails
	if len(users) > 0 {
		if a.unknown, err = bcrypt.GenerateFromPassword(a.key, bcrypt.DefaultCost); err != nil {
			return nil, fmt.Errorf("prepare logins: %w", err)
		}
	}
	return a, nil
}

// loopback reports whether a listener on host is reachable from this machine only. It returns false for names other
// than localhost, because they can resolve to any address.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Guard passes authorised requests to next, with the user name in the request's context. A listener on loopback
// requires no login if the Host header is a loopback name. Credentials in a request are checked if there are users.
func (a *Access) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, given := r.BasicAuth()
		switch {
		case given && len(a.users) > 0:
			right, busy := a.right(r.Context(), user, password)
			if busy {
				w.Header().Set("Retry-After", "5")
				http.Error(w, "too many logins at the same time; retry in a few seconds", http.StatusServiceUnavailable)
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
		case !loopback(hostOf(r.Host)): // DNS rebinding: the name of a foreign site may resolve to 127.0.0.1
			if len(a.users) > 0 {
				a.challenge(w)
				return
			}
			http.Error(w,
				"without a login, this page is served only as localhost or 127.0.0.1; for other names start the controller with --web-users", http.StatusForbidden)
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

// right reports whether a name and password are correct. Browsers send them with every request, so the HMAC of correct
// ones is remembered. busy reports that too many logins are waiting.
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
		hash = a.unknown
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

// user returns the name of the logged-in user, or "".
func user(r *http.Request) string {
	name, _ := r.Context().Value(userKey{}).(string)
	return name
}

// token returns the token that forms contain, as proof that this site made them for the user.
func (a *Access) token(user string) string { return hex.EncodeToString(a.mac("form", user)) }

// mayAct returns nil if a request may change something, else the reason as an error. The request must come from a page
// of this site (Origin, Sec-Fetch-Site), of a logged-in user, and contain that user's token.
func (a *Access) mayAct(r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return fmt.Errorf("%w: the request comes from another site", errForbidden)
	}
	if who := user(r); who == "" || !hmac.Equal([]byte(r.PostFormValue("token")), []byte(a.token(who))) {
		return fmt.Errorf("%w: the form is outdated or not from this page; reload the page", errForbidden)
	}
	return nil
}

var errForbidden = errors.New("request rejected")
