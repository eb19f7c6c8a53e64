package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/web"
)

// webFlags select where a daemon serves pages or metrics over HTTP, and to which users.
type webFlags struct {
	name      string // the flag with the address
	listen    string
	users     string
	cert, key string
}

func (f *webFlags) add(c *cobra.Command, name, what string) {
	f.name = name
	c.Flags().StringVar(&f.listen, name, "", "serve "+what+" on `host:port`; beyond loopback only with --"+name+
		"-users")
	c.Flags().StringVar(&f.users, name+"-users", "",
		"require a login with users of `file`, with lines NAME:HASH of \"ctl fleet hash-password\"")
	c.Flags().StringVar(&f.cert, name+"-cert", "", "serve --"+name+" over TLS with the certificate in `file` (default: no TLS)")
	c.Flags().StringVar(&f.key, name+"-key", "", "read the private key of --"+name+"-cert from `file`")
}

// listener returns the listener that the flags describe, or nil without an address. The error lists all invalid flags.
func (f *webFlags) listener(log *slog.Logger) (*web.Listener, error) {
	var faults []error
	if f.listen == "" {
		for _, more := range []struct{ flag, value string }{{"users", f.users}, {"cert", f.cert}, {"key", f.key}} {
			if more.value != "" {
				faults = append(faults, fmt.Errorf("--%s-%s without --%s: pass the address to serve on", f.name, more.flag,
					f.name))
			}
		}
		return nil, usageErrors(faults)
	}
	l := &web.Listener{Listen: f.listen, Cert: f.cert, Key: f.key, Log: log}
	if (f.cert == "") != (f.key == "") {
		faults = append(faults, fmt.Errorf("only one of --%s-cert and --%s-key given; pass both", f.name, f.name))
	}
	if f.users != "" {
		users, err := web.ReadUsers(f.users)
		if err != nil {
			faults = append(faults, err)
		}
		l.Users = users
	}
	if _, err := web.NewAccess(f.listen, l.Users); err != nil && (f.users == "" || !errors.Is(err, web.ErrOpen)) {
		if errors.Is(err, web.ErrOpen) {
			err = fmt.Errorf("%w: pass --%s-users FILE with lines of \"ctl fleet hash-password NAME\", or listen on 127.0.0.1",
				err, f.name)
		}
		faults = append(faults, fmt.Errorf("--%s: %w", f.name, err))
	}
	return l, usageErrors(faults)
}

// start listens at once, so that an address in use is an error at the start. Requests get status 503 until ready is
// called with the function that makes the handler.
func (f *webFlags) start(log *slog.Logger) (ready func(func(*web.Access) http.Handler), stop func(), err error) {
	l, err := f.listener(log)
	if err != nil || l == nil {
		return func(func(*web.Access) http.Handler) {}, func() {}, err
	}
	var access *web.Access
	var now atomic.Pointer[http.Handler]
	at, stop, err := l.Serve(func(a *web.Access) http.Handler {
		access = a
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if h := now.Load(); h != nil {
				(*h).ServeHTTP(w, r)
				return
			}
			w.Header().Set("Retry-After", "2")
			http.Error(w, "starting: the control plane does not respond yet", http.StatusServiceUnavailable)
		})
	})
	if err != nil {
		return nil, nil, exit{ExitBadMatrix, fmt.Errorf("--%s: %w", f.name, err)}
	}
	log.Info("serving over HTTP", "what", f.name, "at", at.String(), "tls", f.cert != "")
	return func(make func(*web.Access) http.Handler) {
		h := make(access)
		now.Store(&h)
	}, stop, nil
}

// onlyMetrics returns a handler that serves metrics at /metrics and a reference to them at /.
func onlyMetrics(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "Lockstep agent: Prometheus metrics are at /metrics.")
	})
	mux.Handle("GET /metrics", metrics)
	return mux
}

func fleetPassword() *cobra.Command {
	return &cobra.Command{
		Use:   "hash-password NAME",
		Short: "Hash a password for --web-users (reads standard input)",
		Long: `hash-password reads a password of 8 to 72 bytes from the first line of standard input. It prints NAME and the hash
of the password as one line, for the files of lockstep-controller --web-users and lockstep-agent --metrics-users.`,
		Example: `  ctl fleet hash-password alice < alice.password >> web.users`,
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := io.ReadAll(io.LimitReader(c.InOrStdin(), 4<<10))
			if err != nil {
				return fmt.Errorf("read the password: %w", err)
			}
			first, _, _ := strings.Cut(string(text), "\n")
			line, err := web.Password(args[0], []byte(strings.TrimSuffix(first, "\r")))
			if err != nil {
				return exit{ExitBadMatrix, err}
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), line)
			return err
		},
	}
}
