package web

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"time"

	"lockstep/internal/schedule"
)

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

// act returns a handler that checks and executes a form. It redirects to the path that do returns.
func (s *site) act(do func(*http.Request) (back string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if user(r) == "" && len(s.Access.users) > 0 { // asks the browser for the user's login
			s.Access.challenge(w)
			return
		}
		err := s.Access.mayAct(r)
		var back string
		if err == nil {
			back, err = do(r)
		}
		log := s.Log.With("path", r.URL.Path, "user", user(r), "from", r.RemoteAddr)
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
	state, err := s.Conn.RunState(r.Context(), id)
	switch {
	case err != nil:
		return "", err
	case state.Run == "":
		return "", fs.ErrNotExist
	case state.Over():
		return "", fmt.Errorf("%w: the run has already ended: %s", errImpossible, state.State)
	}
	return "/runs/" + url.PathEscape(id), s.Conn.Cancel(r.Context(), id, user(r)+"@web")
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
	_, err := s.Conn.EditSchedule(r.Context(), name, change)
	return "/schedules/" + url.PathEscape(name), err
}
