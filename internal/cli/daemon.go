package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/web"
	"example.org/lockstep/lockstep/internal/wire"
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
	var errs usageErrors
	if f.listen == "" {
		for _, more := range []struct{ flag, value string }{{"users", f.users}, {"cert", f.cert}, {"key", f.key}} {
			if more.value != "" {
				errs.addf("--%s-%s without --%s: pass the address to serve on", f.name, more.flag, f.name)
			}
		}
		return nil, errs.join()
	}
	l := &web.Listener{Listen: f.listen, Cert: f.cert, Key: f.key, Log: log}
	if (f.cert == "") != (f.key == "") {
		errs.addf("only one of --%s-cert and --%s-key given; pass both", f.name, f.name)
	}
	if f.users != "" {
		users, err := web.ReadUsers(f.users)
		if err != nil {
			errs.add(err)
		}
		l.Users = users
	}
	if _, err := web.NewAccess(f.listen, l.Users); err != nil && (f.users == "" || !errors.Is(err, web.ErrOpen)) {
		if errors.Is(err, web.ErrOpen) {
			err = fmt.Errorf("%w: pass --%s-users FILE with lines of \"ctl fleet hash-password NAME\", or listen on 127.0.0.1",
				err, f.name)
		}
		errs.addf("--%s: %w", f.name, err)
	}
	return l, errs.join()
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
		return nil, nil, usageErrorf("--%s: %w", f.name, err)
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

// accessFlags are the folders and environment variables of a daemon's host that references may read.
type accessFlags struct {
	folders, variables []string
}

// add adds the flags. who names the readers in the help: "matrices".
func (a *accessFlags) add(c *cobra.Command, who string) {
	c.Flags().StringArrayVar(&a.folders, "files", nil,
		"allow "+who+" to read files below an absolute `folder`; repeatable (default: none)")
	c.Flags().StringArrayVar(&a.variables, "env", nil,
		"allow "+who+" to read variable `NAME`; repeatable (default: none)")
}

// variable returns the name of the environment variable of a daemon's flag.
func variable(flag string) string {
	if flag == "label" {
		return "LOCKSTEP_LABELS" // contains all labels
	}
	return "LOCKSTEP_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment lets environment variables set every flag of a daemon, so that service units are the same on all
// hosts. The command line has precedence. Repeatable flags take a list, separated by commas or white space.
func fromEnvironment(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if name := variable(f.Name); !strings.Contains(f.Usage, name) {
			f.Usage += " [$" + name + "]"
		}
	})
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		var invalid []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			value := os.Getenv(variable(f.Name))
			if value == "" || f.Changed || f.Name == "help" || f.Name == "version" {
				return
			}
			if err := setFlag(f, value); err != nil {
				invalid = append(invalid, fmt.Sprintf("environment variable %s=%q: %v", variable(f.Name), value,
					invalidValue(f, err)))
			}
		})
		if len(invalid) > 0 {
			return usageErrorf("%s; see %s --help", strings.Join(invalid, "; "), c.CommandPath())
		}
		return nil
	}
}

// preferTyped resolves flags that exclude each other. If the command line sets one of them, it clears those that only
// the environment sets.
func preferTyped(c *cobra.Command, flags ...string) {
	if !slices.ContainsFunc(flags, c.Flags().Changed) {
		return
	}
	for _, name := range flags {
		if f := c.Flags().Lookup(name); !f.Changed {
			_ = f.Value.Set("") // a text flag accepts any value
		}
	}
}

func setFlag(f *pflag.Flag, value string) error {
	several, is := f.Value.(pflag.SliceValue)
	if !is {
		return f.Value.Set(value)
	}
	if f.Name == observeFlagName { // its commands contain blanks
		return several.Replace(strings.Split(value, ","))
	}
	return several.Replace(strings.FieldsFunc(value,
		func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' }))
}

// supervise reports to systemd that the daemon is ready and then, until stop is called, that it makes progress. If
// stuck returns an error, the report is omitted, and systemd ends a daemon whose unit has a WatchdogSec. Without
// systemd, supervise does nothing.
func supervise(log *slog.Logger, stuck func() error) (stop func()) {
	every, err := daemon.SdWatchdogEnabled(true)
	if err == nil {
		_, err = daemon.SdNotify(false, daemon.SdNotifyReady)
	}
	if err != nil {
		log.Warn("cannot notify systemd", "err", err)
	}
	if every == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every / 4)
		defer tick.Stop()
		for {
			if err := stuck(); err != nil {
				log.Error("no progress; systemd will restart this daemon", "err", err)
			} else if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
				log.Warn("cannot notify systemd", "err", err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// dialPatiently retries until it is connected or ctx ends, because daemons start in any order.
func dialPatiently(ctx context.Context, s serverFlags, log *slog.Logger) (*wire.Conn, error) {
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		conn, err := wire.Dial(context.WithoutCancel(ctx), s.url, s.auth())
		if err == nil {
			conn.LogTo(log)
			log.Info("connected to the control plane", "url", plan.Redact(s.url))
			return conn, nil
		}
		log.Warn("cannot connect to the control plane; retrying", "error", err, "hint", s.remedy(err))
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// leave logs the end of a daemon. A cancelled context is a requested stop and not an error.
func leave(log *slog.Logger, err error) error {
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serve: %w", err)
	}
	log.Info("stopped")
	return nil
}
