package cli

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/agent"
	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// serverFlags select the control plane and the credentials for it. Secrets come from the environment or a file: other
// users can read a command line.
type serverFlags struct {
	url       string
	creds     string
	ca        string
	cert, key string
	context   string            // of --context or LOCKSTEP_CONTEXT
	name      string            // of the context that choose has selected; "": none
	named     bool              // whether --context selected it, or no fleet
	preset    map[string]string // values that flags have without being typed: of the environment, or of the context
}

func (s *serverFlags) add(c *cobra.Command, none string) {
	c.Flags().StringVar(&s.url, "server", os.Getenv("LOCKSTEP_SERVER"),
		"connect to the control plane at `URL`, tls://host:port"+none+" [$LOCKSTEP_SERVER]")
	c.Flags().StringVar(&s.creds, "creds", os.Getenv("LOCKSTEP_CREDS"),
		"authenticate with key `file` (or $LOCKSTEP_TOKEN, or $LOCKSTEP_USER and _PASSWORD) [$LOCKSTEP_CREDS]")
	c.Flags().StringVar(&s.ca, "ca", os.Getenv("LOCKSTEP_CA"),
		"trust the CA certificates in `file` (default: system roots) [$LOCKSTEP_CA]")
	c.Flags().StringVar(&s.cert, "cert", os.Getenv("LOCKSTEP_CERT"),
		"present the client certificate in `file` [$LOCKSTEP_CERT]")
	c.Flags().StringVar(&s.key, "key", os.Getenv("LOCKSTEP_KEY"), "read the private key of --cert from `file` [$LOCKSTEP_KEY]")
	s.preset = map[string]string{}
	for _, flag := range []string{"server", "creds", "ca", "cert", "key"} {
		s.preset[flag] = c.Flag(flag).DefValue
	}
}

// auth returns the credentials that this program presents, or that it requires if it serves the control plane.
func (s *serverFlags) auth() wire.Auth {
	return wire.Auth{User: os.Getenv("LOCKSTEP_USER"), Password: os.Getenv("LOCKSTEP_PASSWORD"),
		Token: os.Getenv("LOCKSTEP_TOKEN"), Creds: s.creds,
		CA: s.ca, Cert: s.cert, Key: s.key}
}

// fileOption is a flag that names a file.
type fileOption struct {
	flag string
	path *string
}

func (s *serverFlags) files() []fileOption {
	return []fileOption{{"creds", &s.creds}, {"ca", &s.ca}, {"cert", &s.cert}, {"key", &s.key}}
}

// hint returns the flags that another command needs to use the same fleet, quoted for a shell. It omits flags whose
// value is that of the environment or of the context.
func (s *serverFlags) hint() (text string) {
	add := func(flag, value string) {
		if value != "" && value != plan.Redact(s.preset[flag]) {
			text += " --" + flag + " " + display.ShellWord(value)
		}
	}
	switch {
	case s.named:
		text = " --context " + display.ShellWord(cmp.Or(s.name, thisHost))
	case s.name == "":
		add("server", plan.Redact(s.url))
	}
	for _, f := range s.files() {
		add(f.flag, *f.path)
	}
	return text
}

// check returns an error for each invalid URL, and for each file that cannot be read or used. Retries would not resolve
// these errors. Without a server there is nothing to check.
func (s *serverFlags) check() error {
	if s.url == "" {
		return nil
	}
	var errs usageErrors
	for one := range strings.SplitSeq(s.url, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) || u.Hostname() == "" ||
			!isPort(u.Port()) {
			errs.addf("--server %q: not the URL of a control plane; pass nats://host:port or tls://host:port", plan.Redact(one))
		}
	}
	for _, f := range s.files() {
		if *f.path == "" {
			continue
		}
		if _, err := os.ReadFile(*f.path); err != nil {
			errs.addf("read --%s %s: %w", f.flag, *f.path, errors.Unwrap(err))
		}
	}
	if err := s.auth().Check(); err != nil && len(errs) == 0 {
		errs.addf("use the files of --creds, --ca, --cert and --key: %w; pass files of \"ctl fleet init\"", err)
	}
	return errs.join()
}

func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0
}

// local starts a control plane, a controller and agents in this process. They use the same protocol, without a port.
// The returned function closes the connection and ends them.
func local(ctx context.Context, agents int, targets []plan.Target, log *slog.Logger) (*wire.Client, func(), error) {
	dir, remove, err := scratch(log)
	if err != nil {
		return nil, nil, err
	}
	server, err := wire.Embedded(ctx, wire.ServerConfig{Log: log, Scratch: dir})
	if err != nil {
		remove()
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	stop := func() {
		cancel()
		wg.Wait()
		server.Close()
		remove()
	}
	serve := func(name string, run func(*wire.Conn) error) error {
		conn, err := server.Connect(ctx)
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer conn.Close()
			if err := run(conn); err != nil && !errors.Is(err, context.Canceled) {
				log.Error(name, "error", err)
			}
		})
		return nil
	}
	ceilings := "" // without a cache of the user, they are measured in each run
	if cache, err := os.UserCacheDir(); err == nil {
		ceilings = filepath.Join(cache, "lockstep", "ceilings.json")
	}
	errs := []error{serve("controller", func(conn *wire.Conn) error {
		return controller.Serve(ctx, conn, controller.Config{Log: log, Ceilings: controller.OpenCeilings(ceilings, build())})
	})}
	for i := range agents {
		name := fmt.Sprintf("local-%02d", i+1)
		errs = append(errs, serve(name, func(conn *wire.Conn) error {
			return agent.Serve(ctx, wire.NewAgent(conn),
				agent.Config{Name: name, Version: version(), Dir: dir, Targets: targets, Access: drivers.FullAccess(),
					Log: log})
		}))
	}
	client, err := server.Client(ctx)
	if err = errors.Join(append(errs, err)...); err != nil {
		stop()
		return nil, nil, err
	}
	return client, func() { client.Close(); stop() }, nil
}

// onFleet returns a RunE function that calls do with a connection to the fleet of --server.
func (s *serverFlags) onFleet(do func(c *cobra.Command, conn *wire.Client, args []string) error) func(*cobra.Command,
	[]string) error {
	return func(c *cobra.Command, args []string) error {
		if s.url == "" {
			return usageErrorf("no server given: pass --server nats://host:port or --context NAME, or set LOCKSTEP_SERVER")
		}
		conn, err := s.dial(c.Context())
		if err != nil {
			return err
		}
		defer conn.Close()
		return do(c, conn, args)
	}
}

// either calls onFleet with a connection if a fleet is selected, else here.
func either[T any](ctx context.Context, s *serverFlags, onFleet func(*wire.Client) (T, error), here func() (T, error)) (T,
	error) {
	if s.url == "" {
		return here()
	}
	conn, err := s.dial(ctx)
	if err != nil {
		var none T
		return none, err
	}
	defer conn.Close()
	return onFleet(conn)
}

// addChoice adds the flags of a client: those of add, and --context. Before the command runs, the first of these
// selects the fleet: --server, --context, LOCKSTEP_SERVER, LOCKSTEP_CONTEXT, the context of ctl context use.
func (s *serverFlags) addChoice(c *cobra.Command, none string) {
	s.add(c, none)
	c.Flags().StringVar(&s.context, "context", os.Getenv("LOCKSTEP_CONTEXT"),
		"use the saved fleet `NAME`, or local: no fleet (default: see ctl context) [$LOCKSTEP_CONTEXT]")
	completeFlag(c, "context", completeContexts)
	c.PreRunE = func(c *cobra.Command, _ []string) error { return s.choose(c) }
}

// choose selects the fleet. A context replaces the values of the environment, so that settings of two fleets are never
// combined; typed flags have priority.
func (s *serverFlags) choose(c *cobra.Command) error {
	typed := c.Flags().Changed
	switch {
	case typed("server") && typed("context"):
		return usageErrorf("both --server and --context given; pass one of them")
	case typed("server"), s.url != "" && !typed("context"):
		return nil
	}
	s.url = ""
	if s.context == thisHost {
		s.named = typed("context")
		return nil
	}
	saved, err := readContexts()
	name := cmp.Or(s.context, saved.Current)
	if err != nil || name == "" {
		return err
	}
	f, err := saved.find(name)
	if err != nil {
		return err
	}
	s.url, s.name, s.named = f.Server, name, typed("context")
	s.preset = map[string]string{"creds": f.Creds, "ca": f.CA, "cert": f.Cert, "key": f.Key}
	for _, f := range s.files() {
		if !typed(f.flag) {
			*f.path = s.preset[f.flag]
		}
	}
	return nil
}

// dial connects to the fleet. Its error contains the remedy.
func (s *serverFlags) dial(ctx context.Context) (*wire.Client, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	conn, err := wire.DialClient(ctx, s.url, s.auth())
	if err != nil {
		err = fmt.Errorf("%w; %s", err, s.remedy(err))
		if s.name != "" {
			err = fmt.Errorf("context %s: %w", s.name, err)
		}
		return nil, err
	}
	return conn, nil
}

// remedy returns the advice for an error of dialling the control plane.
func (s *serverFlags) remedy(err error) string {
	var unknown x509.UnknownAuthorityError
	auth := s.auth()
	switch {
	case errors.As(err, &unknown):
		return "this host does not trust its certificate authority: pass --ca with the ca.crt of \"ctl fleet init\""
	case wire.Unaccepted(err) && auth.Creds == "" && auth.Token == "" && auth.User == "":
		return "this control plane requires credentials: pass --creds with a key of \"ctl fleet init\" or \"fleet add\", " +
			"or set LOCKSTEP_TOKEN, or LOCKSTEP_USER and LOCKSTEP_PASSWORD"
	case wire.Unaccepted(err):
		return "this control plane rejects the credentials: check --creds, or LOCKSTEP_TOKEN, LOCKSTEP_USER and LOCKSTEP_PASSWORD"
	}
	if s.name != "" {
		return "check that a controller (or its NATS server) is running there, and its URL: ctl context list"
	}
	return "check --server, and that a controller (or its NATS server) is running there"
}
