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
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/chart"
	"example.org/lockstep/lockstep/internal/report/page"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire"
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
	config    Config
	store     runStore
	followers *liveFollowers
	streams   chan struct{} // a semaphore for live views
	pages     chan struct{} // a semaphore for pages of runs
}

// maxStreams limits the concurrent live views. maxPages limits the pages of runs that are made at a time: each decodes
// all outcomes of its run.
const maxStreams, maxPages = 32, 2

// askTimeout limits the requests for one page to the control plane.
const askTimeout = 10 * time.Second

//go:embed pages
var sources embed.FS

//go:embed pages/style.css
var style string

//go:embed pages/live.js
var liveScript string

// New returns the handler of the pages. Requests must have passed Access.Guard.
func New(cfg Config) http.Handler {
	s := &site{config: cfg, store: runStore{dir: cfg.Copies}, followers: newLiveFollowers(cfg.Conn),
		streams: make(chan struct{}, maxStreams), pages: make(chan struct{}, maxPages)}
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
	mux.HandleFunc("GET /style.css", asset("text/css; charset=utf-8", chart.CSS+style))
	mux.HandleFunc("GET /page.js", asset("text/javascript; charset=utf-8", report.Script))
	mux.HandleFunc("GET /live.js", asset("text/javascript; charset=utf-8", liveScript))
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
		if err := wire.Guard(s.config.Log, r.Method+" "+r.URL.Path,
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

// frame is the data of the layout around a view. The templates use the fields of the view directly.
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
		v, err := make(r.WithContext(ctx)) // fail and write have their own limits
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.write(w, r, http.StatusOK, v)
	}
}

func (s *site) write(w http.ResponseWriter, r *http.Request, status int, v view) {
	f := frame{view: v}
	f.Site.User, f.Site.Version, f.Site.Now = user(r), s.config.Version, time.Now()
	f.Site.Login = len(s.config.Access.users) > 0
	if f.Site.User != "" {
		f.Site.Token = s.config.Access.token(f.Site.User)
	}
	f.Site.Message = messages[r.URL.Query().Get("done")]
	f.Site.Leader, f.Site.Alone = s.leads(r.Context())
	var text bytes.Buffer
	if err := pages[v.Page].ExecuteTemplate(&text, "layout", f); err != nil {
		s.config.Log.Error("cannot render page", "page", v.Page, "error", err)
		http.Error(w, "the page could not be rendered; see the log of the controller", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // fails after a disconnect
}

// leads returns the text about the leading controller, or the reason why there is none.
func (s *site) leads(ctx context.Context) (leader, alone string) {
	l, err := s.config.Conn.Leader(ctx)
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
		kind := objectKind(r)
		status, body = http.StatusNotFound, notFound{What: "No such " + kind}
		if kind == "run" {
			body.Why = "It is neither on the control plane nor among the copies of this controller."
		}
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
		// A report contains its own style and script. The sandbox gives it an opaque origin, so that its content cannot
		// act as the user.
		w.Header().Set("Content-Security-Policy", "sandbox allow-popups allow-scripts; default-src 'none'; script-src "+
			report.ScriptSource()+"; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'")
		w.Header().Set("Content-Type", f.Type)
		http.ServeContent(patient{w, http.NewResponseController(w)}, r, "", info.ModTime(), file)
		return
	}
	s.fail(w, r, fs.ErrNotExist)
}

func asset(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = io.WriteString(w, text) // fails after a disconnect
	}
}

// login requests a name and password, which browsers then send with every request.
func (s *site) login(w http.ResponseWriter, r *http.Request) {
	if user(r) == "" {
		if len(s.config.Access.users) == 0 {
			s.fail(w, r, fmt.Errorf("%w: logins are not configured; start the controller with --web-users", errForbidden))
			return
		}
		s.config.Access.challenge(w)
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// pages are the templates by name, each with the layout.
var pages = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	layout := template.Must(page.TableTemplate().Funcs(functions).ParseFS(sources, "pages/layout.html",
		"pages/parts.html"))
	for _, name := range []string{"runs", "run", "agents", "schedules", "schedule", "history", "error"} {
		all[name] = template.Must(template.Must(layout.Clone()).ParseFS(sources, "pages/"+name+".html"))
	}
	return all
}()

// act returns a handler that checks and executes a form. It redirects to the path that do returns.
func (s *site) act(do func(*http.Request) (back string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if user(r) == "" && len(s.config.Access.users) > 0 { // the browser then requests the user's login
			s.config.Access.challenge(w)
			return
		}
		err := s.config.Access.mayAct(r)
		var back string
		if err == nil {
			back, err = do(r)
		}
		log := s.config.Log.With("path", r.URL.Path, "user", user(r), "from", r.RemoteAddr)
		if err != nil {
			log.Warn("action of the web page failed", "error", err)
			s.fail(w, r, err)
			return
		}
		log.Info("action of the web page done")
		http.Redirect(w, r, back+"?done="+r.PathValue("what"), http.StatusSeeOther)
	}
}

func (s *site) actOnRun(r *http.Request) (string, error) {
	id := r.PathValue("run")
	if r.PathValue("what") != "cancel" {
		return "", fs.ErrNotExist
	}
	state, err := s.config.Conn.RunState(r.Context(), id)
	switch {
	case err != nil:
		return "", err
	case state.Run == "":
		return "", fs.ErrNotExist
	case state.Over():
		return "", fmt.Errorf("%w: the run has already ended: %s", errImpossible, state.State)
	}
	return "/runs/" + url.PathEscape(id), s.config.Conn.Cancel(r.Context(), id, user(r)+"@web")
}

func (s *site) actOnSchedule(r *http.Request) (string, error) {
	name, by, now := r.PathValue("name"), user(r)+"@web", time.Now().UTC()
	changes := map[string]func(*schedule.Schedule) error{
		"pause": func(s *schedule.Schedule) error {
			if s.Paused {
				return fmt.Errorf("%w: the schedule is already paused, by %s", errImpossible, s.By)
			}
			s.Pause(by, now)
			return nil
		},
		"resume": func(s *schedule.Schedule) error {
			if !s.Paused {
				return fmt.Errorf("%w: the schedule is not paused", errImpossible)
			}
			s.Resume(by, now)
			return nil
		},
		"run": func(s *schedule.Schedule) error {
			if err := s.Ask(by, now); err != nil {
				return fmt.Errorf("%w: %w", errImpossible, err)
			}
			return nil
		},
	}
	change, known := changes[r.PathValue("what")]
	if !known {
		return "", fs.ErrNotExist
	}
	_, err := s.config.Conn.EditSchedule(r.Context(), name, change)
	return "/schedules/" + url.PathEscape(name), err
}

// history returns the page of a value of a matrix's cells, from the history of the leading controller.
func (s *site) history(r *http.Request) (view, error) {
	ask := r.URL.Query()
	v := historyView{Name: ask.Get("matrix")}
	cells, err := s.config.Conn.History(r.Context(), plan.HistoryQuery{})
	if err != nil {
		return view{}, err
	}
	var names []string
	for _, c := range cells.Cells {
		names = append(names, c.Matrix)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		v.Matrices = append(v.Matrices, choice{name, "/history?" + url.Values{"matrix": {name}}.Encode(),
			name == v.Name})
	}
	if v.Name == "" || !slices.Contains(names, v.Name) {
		return view{Page: "history", Title: "History", Body: v}, nil
	}
	value := ask.Get("value")
	if value == "" || history.Known(value) != nil {
		value = compare.Usual()[0]
	}
	link := func(value, cell string) string {
		return "/history?" + url.Values{"matrix": {v.Name}, "value": {value}, "cell": {cell}}.Encode()
	}
	for _, name := range compare.Usual() {
		v.Values = append(v.Values, choice{report.ValueInfo(nil, name).Title, link(name, ""), name == value})
	}
	query, family := plan.HistoryQuery{Matrix: v.Name, Runs: history.Depth}, []string{value}
	cell := ask.Get("cell")
	if v.One, v.Runs = cell != "", history.Depth; v.One {
		query.Cells, query.Runs = []string{cell}, 0
	} else if slices.Contains(compare.Usual(), value) {
		family = compare.Usual() // as in the digest: its alarms are of these values, all cells and so many runs
	}
	var answers []history.Answer
	var metrics plan.Metrics
	for _, name := range family {
		query.Value = name
		answer, err := s.config.Conn.History(r.Context(), query)
		if err != nil {
			return view{}, err
		}
		answers = append(answers, history.Answer{Value: name, History: answer})
		metrics = metrics.Join(answer.Metrics...)
		v.MoreCells, v.MorePoints = max(v.MoreCells, answer.MoreCells), max(v.MorePoints, answer.MorePoints)
	}
	trends := history.NewTrends("", answers...)
	trends.Series = slices.DeleteFunc(trends.Series, func(s history.Series) bool { return s.Value != value })
	trends.Common = slices.DeleteFunc(trends.Common, func(c history.Common) bool { return c.Value != value })
	v.show(trends, report.ValueInfo(metrics, value), func(cell string) string { return link(value, cell) })
	return view{Page: "history", Title: "History of " + v.Name, Body: v}, nil
}

// live streams the live part of a run's page once per second as server-sent events. The events are "live", "task" after
// a new outcome, and "end" as the last one.
func (s *site) live(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, fmt.Sprintf("%d live views are already open; the page refreshes itself instead", maxStreams),
			http.StatusServiceUnavailable)
		return
	}
	looking, stop := context.WithTimeout(r.Context(), askTimeout)
	watch, leave, err := s.followers.look(looking, r.PathValue("run"))
	stop()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	s.stream(r.Context(), w, watch)
}

// stream writes the live view until the run ends, its follower ends, or the client disconnects.
func (s *site) stream(ctx context.Context, w http.ResponseWriter, watch *liveFollower) {
	control := http.NewResponseController(w)
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for sent := math.MaxInt; ; { // the first view has no new outcome
		over := false
		select {
		case <-watch.over:
			over = true
		default:
		}
		view, outcomes := watch.view(time.Now())
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if s.part(w, view, outcomes > sent) != nil || control.Flush() != nil || over {
			return
		}
		sent = outcomes
		select {
		case <-tick.C:
		case <-watch.over:
		case <-ctx.Done():
			return
		}
	}
}

func (s *site) part(w http.ResponseWriter, v liveView, task bool) error {
	var text bytes.Buffer
	if err := pages["run"].ExecuteTemplate(&text, "live", v); err != nil {
		s.config.Log.Error("cannot render live view", "error", err)
		return err
	}
	name := "live"
	switch {
	case v.Ended != "":
		name = "end"
	case task:
		name = "task"
	}
	_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name,
		strings.NewReplacer("\r", " ", "\n", "\ndata: ").Replace(text.String()))
	return err
}

// runs returns the page of queued, running and ended runs, the newest first.
func (s *site) runs(r *http.Request) (view, error) {
	states, err := s.config.Conn.Runs(r.Context())
	if err != nil {
		return view{}, err
	}
	stored, err := s.store.list()
	if err != nil {
		return view{}, err
	}
	now, known := time.Now(), map[string]bool{}
	var active, over []runLine
	for _, state := range slices.Backward(states) {
		known[state.Run] = true
		line := runLine{State: state, Took: display.Took(state.Started, state.Ended, now)}
		if state.Over() {
			over = append(over, line)
		} else {
			active = append(active, line)
		}
	}
	for _, b := range stored {
		if !known[b.ID] {
			over = append(over, runLine{State: wire.RunState{Run: b.ID, Name: b.Name, Submitted: b.Started,
				Started: b.Started}, Kept: true})
		}
	}
	slices.SortStableFunc(over, func(a, b runLine) int { return b.State.Submitted.Compare(a.State.Submitted) })
	slices.Reverse(active) // runs in progress come first
	slices.SortStableFunc(active, func(a, b runLine) int { return rank(a) - rank(b) })
	body := struct {
		Active, Over []runLine
		More         int
	}{active, over, 0}
	if over := len(over); over > maxRuns && !r.URL.Query().Has("all") {
		body.Over, body.More = body.Over[:maxRuns], over-maxRuns
	}
	v := view{Page: "runs", Title: "Runs", Body: body}
	if len(active) > 0 {
		v.Refresh = 10
	}
	return v, nil
}

func (s *site) run(r *http.Request) (view, error) {
	id, ctx := r.PathValue("run"), r.Context()
	select {
	case s.pages <- struct{}{}:
		defer func() { <-s.pages }()
	case <-ctx.Done():
		return view{}, fmt.Errorf("read run %s: other pages of runs are being made; repeat the request: %w", id, ctx.Err())
	}
	state, err := s.config.Conn.RunState(ctx, id)
	if err != nil {
		return view{}, err
	}
	v := runView{State: state, Took: display.Took(state.Started, state.Ended, time.Now())}
	outcomes, err := s.outcomes(ctx, &v, id)
	if err != nil {
		return view{}, err
	}
	if v.Known {
		v.Summary, v.Flagged = report.Summary(v.Plan, outcomes), report.Flagged(outcomes)
		v.Problems, v.Limits = report.Failures(v.Plan, outcomes), report.Limitations(v.Plan, outcomes)
		v.Warnings = report.Warnings(v.Plan, outcomes)
		if len(outcomes) > 0 || v.over() { // else every row would be "not run"
			v.Tables = page.TableViews(shortened(report.Build(v.Plan, outcomes)), false)
		}
		v.Facts = report.Facts(v.Plan, outcomes)
		if v.over() { // tasks that have not run yet are a problem only after the end
			v.Problems, v.Rules = report.Problems(v.Plan, outcomes), report.Rulings(v.Plan, outcomes)
		}
	}
	for _, f := range files {
		if s.store.has(id, f.Name) {
			v.Files = append(v.Files, link{"/runs/" + url.PathEscape(id) + "/" + f.Name, f.Title})
		}
	}
	v.Copying = s.copying(v)
	out := view{Page: "run", Title: id, Body: v}
	switch {
	case !v.over():
		out.Script, out.Refresh = true, 10
	case v.Copying:
		out.Refresh = 3
	}
	return out, nil
}

// copying reports whether the copy of an ended run is still being made.
func (s *site) copying(v runView) bool {
	return s.config.Copies != "" && v.State.Over() && !v.State.Copied && time.Since(v.State.Ended) < copyFor
}

// outcomes reads a run from its most complete source. That is the copy if the run has ended and the copy has all its
// outcomes. Else it is the record on the control plane, or the copy if there is no record.
func (s *site) outcomes(ctx context.Context, v *runView, id string) ([]plan.Outcome, error) {
	run, copied, missing := s.store.read(id)
	if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
		return nil, missing
	}
	known := v.State.Run != ""
	if missing == nil && (!known || v.State.Over() && len(copied) >= v.State.Done) {
		v.Plan, v.Known, v.Kept, v.From = run, true, !known, "its copy on this host"
		return copied, nil
	}
	if !known {
		return nil, fs.ErrNotExist
	}
	planned, outcomes, err := s.recorded(ctx, v, id)
	switch {
	case err == nil && planned.ID != "":
		v.Plan, v.Known, v.From = planned, true, "the control plane"
		return outcomes, nil
	case missing == nil:
		v.Plan, v.Known, v.From = run, true, "its copy on this host, which may be incomplete"
		return copied, nil
	case err == nil || errors.Is(err, wire.ErrNoRecord): // queued, rejected, or its record was deleted
		return nil, nil
	}
	return nil, err
}

// recorded reads a run from the control plane. A run in progress includes its live view.
func (s *site) recorded(ctx context.Context, v *runView, id string) (plan.Run, []plan.Outcome, error) {
	if v.over() {
		l := newRunInfo()
		_, err := s.config.Conn.Read(ctx, wire.RecordQuery{Run: id, Summary: true}, func(e wire.Entry) error {
			l.entry(e)
			return nil
		})
		return l.state.Run, l.inOrder(), err
	}
	w, leave, err := s.followers.look(ctx, id)
	if err != nil {
		return plan.Run{}, nil, err
	}
	defer leave()
	w.awaitEntries(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	live := w.at.view(time.Now())
	v.Live = &live
	return w.at.state.Run, w.at.inOrder(), nil
}

// names returns the names of the known runs by id. A run whose name cannot be read is left out: pages show its id.
func (s *site) names(ctx context.Context) map[string]string {
	names := map[string]string{}
	if stored, err := s.store.list(); err == nil {
		for _, b := range stored {
			names[b.ID] = b.Name
		}
	}
	if states, err := s.config.Conn.Runs(ctx); err == nil {
		for _, state := range states {
			names[state.Run] = state.Name
		}
	}
	return names
}

// agentLine is an agent with the run that it works on.
type agentLine struct {
	Info wire.AgentInfo
	Link runLink // without an id: none
}

// agents returns the page of the fleet's agents.
func (s *site) agents(r *http.Request) (view, error) {
	all, err := s.config.Conn.Agents(r.Context())
	if err != nil && !errors.Is(err, wire.ErrNoController) { // the layout shows that no controller leads
		return view{}, err
	}
	lines, names := make([]agentLine, len(all)), s.names(r.Context())
	for i, a := range all {
		lines[i] = agentLine{a, runLink{a.Attempt.Run, names[a.Attempt.Run]}}
	}
	return view{Page: "agents", Title: "Agents", Body: lines, Refresh: 5}, nil
}

func (s *site) schedules(r *http.Request) (view, error) {
	all, err := s.config.Conn.Schedules(r.Context())
	if err != nil {
		return view{}, err
	}
	var views []scheduleView
	names := s.names(r.Context())
	for _, kept := range all {
		v := scheduleView{Schedule: kept.Schedule}
		if kept.Err == nil {
			v, kept.Err = describe(kept.Schedule, time.Now())
		}
		if kept.Err != nil {
			v.Schedule.Name, v.Error = kept.Name, kept.Err.Error()
		}
		v.link(names)
		views = append(views, v)
	}
	return view{Page: "schedules", Title: "Schedules", Body: views, Refresh: 30}, nil
}

func (s *site) schedule(r *http.Request) (view, error) {
	kept, err := s.config.Conn.Schedule(r.Context(), r.PathValue("name"))
	if err != nil {
		return view{}, err
	}
	v, err := describe(kept.Schedule, time.Now())
	v.link(s.names(r.Context()))
	for i, e := range v.Entries {
		if s.store.has(e.Entry.Run, digestFile) {
			v.Entries[i].Digest = "/runs/" + url.PathEscape(e.Entry.Run) + "/" + digestFile
		}
	}
	return view{Page: "schedule", Title: "Schedule " + kept.Name, Body: v, Refresh: 30}, err
}

// errImpossible is wrapped by the error of an action that the current state does not permit.
var errImpossible = errors.New("no change made")

// messages maps the code in the URL to the message that the page shows after an action. Only these messages can be
// shown, so a crafted URL cannot inject text.
var messages = map[string]string{
	"cancel": "The run is being cancelled: the task in flight is stopped and gets no outcome.",
	"pause":  "The schedule is paused; an active run continues.",
	"resume": "The schedule is resumed, from its next slot.",
	"run":    "A run was requested; the controller starts it shortly.",
}

// maxForm limits the size of a form in bytes.
const maxForm = 16 << 10
