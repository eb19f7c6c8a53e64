// Package web serves the pages of a controller: runs, live metrics, schedules, agents, history and reports. It reads
// only what any client of the control plane may read, and the copies of runs. A standby controller serves the same
// pages.
//
// Guarantees:
//   - A listener beyond loopback requires credentials.
//   - Only a logged-in user can change something, and only from a page of this site.
//   - Pages load nothing from other hosts.
//   - Names that users choose are escaped.
package web

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"lockstep/internal/report/chart"
	"lockstep/internal/wire"
)

// Config has the parameters of the pages.
type Config struct {
	Conn *wire.Client
	// Copies is the folder with the copies of runs. If it is empty, a run is shown only as long as the control plane
	// stores its record.
	Copies  string
	Access  *Access
	Metrics http.Handler // serves /metrics; nil: not served
	Version string
	Log     *slog.Logger
}

// site serves the pages.
type site struct {
	Config
	store     runStore
	followers *liveFollowers
	streams   chan struct{} // a semaphore for live views
}

// maxStreams limits the concurrent live views.
const maxStreams = 32

// askTimeout limits the requests for one page to the control plane.
const askTimeout = 10 * time.Second

//go:embed pages
var sources embed.FS

// New returns the handler of the pages. Requests must have passed Access.Guard.
func New(cfg Config) http.Handler {
	s := &site{Config: cfg, store: runStore{dir: cfg.Copies}, followers: newLiveFollowers(cfg.Conn),
		streams: make(chan struct{}, maxStreams)}
	mux := http.NewServeMux()
	for pattern, page := range map[string]func(*http.Request) (view, error){
		"GET /{$}":              s.runs,
		"GET /runs/{run}":       s.run,
		"GET /agents":           s.agents,
		"GET /schedules":        s.schedules,
		"GET /schedules/{name}": s.schedule,
		"GET /history":          s.history,
	} {
		mux.HandleFunc(pattern, s.page(page))
	}
	mux.HandleFunc("GET /runs/{run}/live", s.live)
	mux.HandleFunc("GET /runs/{run}/{file}", s.file)
	mux.HandleFunc("POST /runs/{run}/{what}", s.act(s.actOnRun))
	mux.HandleFunc("POST /schedules/{name}/{what}", s.act(s.actOnSchedule))
	mux.HandleFunc("GET /login", s.login)
	mux.HandleFunc("GET /style.css", asset("text/css; charset=utf-8", chart.CSS, "style.css"))
	mux.HandleFunc("GET /live.js", asset("text/javascript; charset=utf-8", "", "live.js"))
	if cfg.Metrics != nil {
		mux.Handle("GET /metrics", cfg.Metrics)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.fail(w, r, fs.ErrNotExist) })
	return securityHeaders(s.guarded(mux))
}

// guarded rejects paths with a name longer than wire.MaxName, because names become subjects on the control plane. It
// answers a request that panics with status 500.
func (s *site) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for part := range strings.SplitSeq(r.URL.EscapedPath(), "/") {
			if name, err := url.PathUnescape(part); err != nil || len(name) > wire.MaxName {
				s.fail(w, r, fs.ErrNotExist)
				return
			}
		}
		if err := wire.Guard(s.Log, r.Method+" "+r.URL.Path,
			func() error { next.ServeHTTP(w, r); return nil }); err != nil {
			http.Error(w, "the request failed; see the log of the controller", http.StatusInternalServerError)
		}
	})
}

// securityHeaders restricts what browsers do with pages: they load only from this site, are not shown in frames, and
// send no referrer to other sites.
func securityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy",
			"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin") // "no-referrer" makes browsers hide the origin of forms
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// view is the name, title and contents of a page.
type view struct {
	Page  string
	Title string
	Body  any
	// Refresh is the interval in seconds at which a browser without scripts reloads the page; 0: it does not.
	Refresh int
	Script  bool // the page loads live.js
}

// frame is the data of the layout around a view.
type frame struct {
	view
	Site struct {
		User, Token string
		Login       bool // users exist
		Version     string
		Leader      string
		Alone       string // why no controller leads, or that it is unknown
		Message     string
		Now         time.Time
	}
}

func (s *site) page(make func(*http.Request) (view, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		v, err := make(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.write(w, r, http.StatusOK, v)
	}
}

func (s *site) write(w http.ResponseWriter, r *http.Request, status int, v view) {
	f := frame{view: v}
	f.Site.User, f.Site.Version, f.Site.Now = user(r), s.Version, time.Now()
	f.Site.Login = len(s.Access.users) > 0
	if f.Site.User != "" {
		f.Site.Token = s.Access.token(f.Site.User)
	}
	f.Site.Message = messages[r.URL.Query().Get("done")]
	f.Site.Leader, f.Site.Alone = s.leads(r.Context())
	var text bytes.Buffer
	if err := pages[v.Page].ExecuteTemplate(&text, "layout", f); err != nil {
		s.Log.Error("cannot render page", "page", v.Page, "error", err)
		http.Error(w, "the page could not be rendered; see the log of the controller", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // fails after a disconnect
}

// leads returns the text about the leading controller, or the reason why there is none.
func (s *site) leads(ctx context.Context) (leader, alone string) {
	l, err := s.Conn.Leader(ctx)
	switch {
	case errors.Is(err, wire.ErrNoController):
		return "", "No controller leads. No run is executed until one leads."
	case err != nil:
		return "", "Cannot find the leading controller: " + err.Error()
	}
	return "controller " + l.Name, ""
}

// notFound is the page of an error.
type notFound struct{ What, Why string }

func (s *site) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, body := http.StatusBadGateway, notFound{"Read error", err.Error()}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, wire.ErrNoSchedule):
		status, body = http.StatusNotFound, notFound{"No such " + objectKind(r),
			"It is neither on the control plane nor among the copies of this controller."}
	case errors.Is(err, errForbidden):
		status, body = http.StatusForbidden, notFound{"Not allowed", err.Error()}
	case errors.Is(err, errImpossible), errors.Is(err, wire.ErrChanged):
		status, body = http.StatusConflict, notFound{"Not possible in this state", err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	}
	s.write(w, r, status, view{Page: "error", Title: body.What, Body: body})
}

// objectKind returns the kind of object that a request names.
func objectKind(r *http.Request) string {
	switch {
	case r.PathValue("file") != "":
		return "file of a run"
	case r.PathValue("run") != "":
		return "run"
	case r.PathValue("name") != "":
		return "schedule"
	}
	return "page"
}

// file serves a file from the copy of a run.
func (s *site) file(w http.ResponseWriter, r *http.Request) {
	id, name := r.PathValue("run"), r.PathValue("file")
	for _, f := range files {
		if f.Name != name {
			continue
		}
		file, err := s.store.open(id, name)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil || !info.Mode().IsRegular() {
			s.fail(w, r, fs.ErrNotExist)
			return
		}
		// A report contains its own style. The sandbox gives it an opaque origin, so that its content cannot act as the
		// user.
		w.Header().Set("Content-Security-Policy",
			"sandbox allow-popups; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'")
		w.Header().Set("Content-Type", f.Type)
		http.ServeContent(patient{w, http.NewResponseController(w)}, r, "", info.ModTime(), file)
		return
	}
	s.fail(w, r, fs.ErrNotExist)
}

func asset(kind, before, name string) http.HandlerFunc {
	text, err := sources.ReadFile("pages/" + name)
	if err != nil {
		panic(err) // the file is embedded
	}
	text = append([]byte(before), text...)
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = io.Copy(w, bytes.NewReader(text)) // fails after a disconnect
	}
}

// login requests a name and password, which browsers then send with every request.
func (s *site) login(w http.ResponseWriter, r *http.Request) {
	if user(r) == "" {
		if len(s.Access.users) == 0 {
			s.fail(w, r, fmt.Errorf("%w: logins are not configured; start the controller with --web-users", errForbidden))
			return
		}
		s.Access.challenge(w)
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// pages are the templates by name, each with the layout.
var pages = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	layout := template.Must(template.New("layout").Funcs(functions).ParseFS(sources, "pages/layout.html",
		"pages/parts.html"))
	for _, name := range []string{"runs", "run", "agents", "schedules", "schedule", "history", "error"} {
		all[name] = template.Must(template.Must(layout.Clone()).ParseFS(sources, "pages/"+name+".html"))
	}
	return all
}()
