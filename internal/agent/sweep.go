package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"lockstep/internal/engine"
	"lockstep/internal/netsim"
	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
)

// Sweep is a driver's session outside of any task, by which what runs have left at a broker is found and removed from this host. Its
// errors hold no secrets.
type Sweep struct {
	session   drivers.Session
	scrub     *plan.Scrubber
	forwarder *netsim.Forwarder
	dir       string
}

// OpenSweep opens a session with a broker. What its options refer to is read through access. Close it.
func OpenSweep(ctx context.Context, b plan.Broker, access drivers.Access) (*Sweep, error) {
	driver, err := drivers.Lookup(b.Driver)
	if err != nil {
		return nil, err
	}
	options, scrub, err := plan.Resolve(b.Options, b.Secret, access)
	if err != nil {
		return nil, err
	}
	s := &Sweep{scrub: scrub}
	if s.dir, err = os.MkdirTemp("", "lockstep-sweep-*"); err != nil {
		return nil, fmt.Errorf("make a folder for the driver: %w", err)
	}
	aside := (&net.Dialer{}).DialContext
	var dial netsim.DialFunc = aside
	if b.Via != "" {
		dial = netsim.Via(dial, b.Via)
	}
	s.forwarder = netsim.NewForwarder(dial)
	s.session, err = driver.Open(ctx, options, drivers.Env{Dial: dial, DialAside: aside, Forward: s.forwarder.Forward, Dir: s.dir, Access: access,
		Log: slog.New(slog.DiscardHandler), Event: func(drivers.EventKind, string) {}})
	if err != nil {
		return nil, errors.Join(s.clean(err), s.release())
	}
	return s, nil
}

// Leftovers lists what the broker has whose name begins with prefix, sorted. The error wraps drivers.ErrUnsupported where the driver, with these
// options, cannot list: then there is only Teardown.
func (s *Sweep) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	sweeper, can := s.session.(drivers.Sweeper)
	if !can {
		return nil, fmt.Errorf("list what is there: %w", drivers.ErrUnsupported)
	}
	all, err := sweeper.Leftovers(ctx, prefix)
	return all, s.clean(err)
}

// Remove removes what Leftovers listed.
func (s *Sweep) Remove(ctx context.Context, these []drivers.Leftover) error {
	sweeper, can := s.session.(drivers.Sweeper)
	if !can {
		return fmt.Errorf("remove what is there: %w", drivers.ErrUnsupported)
	}
	return s.clean(sweeper.Sweep(ctx, these))
}

// Teardown removes the topology of a task, if there is anything of it.
func (s *Sweep) Teardown(ctx context.Context, t plan.Task) error {
	ctx, cancel := context.WithTimeout(ctx, t.Cell.Workload.Connect.D())
	defer cancel()
	var errs []error
	for _, part := range t.Parts() {
		errs = append(errs, s.session.Teardown(ctx, engine.Topology(part)))
	}
	return s.clean(errors.Join(errs...))
}

// Close ends the session.
func (s *Sweep) Close() error {
	return errors.Join(s.clean(s.session.Close()), s.release())
}

func (s *Sweep) release() error {
	return errors.Join(s.forwarder.Close(), os.RemoveAll(s.dir))
}

// cleaned is an error without the secrets in its text.
type cleaned struct {
	error
	text string
}

func (c cleaned) Error() string { return c.text }

func (c cleaned) Unwrap() error { return c.error }

func (s *Sweep) clean(err error) error {
	if err == nil {
		return nil
	}
	return cleaned{err, s.scrub.Scrub(err.Error())}
}

// Describe asks a broker what it is from this host, outside of any task: product, version, members, settings and endpoints, without secrets.
// What the broker's options refer to is read through access.
func Describe(ctx context.Context, b plan.Broker, access drivers.Access) (plan.Subject, error) {
	s, err := OpenSweep(ctx, b, access)
	if err != nil {
		return plan.Subject{}, err
	}
	defer s.Close()
	options, _, err := plan.Resolve(b.Options, b.Secret, access)
	if err != nil {
		return plan.Subject{}, err
	}
	subject := plan.Subject{Label: b.Version}
	for _, e := range plan.Endpoints(options) {
		subject.Endpoints = append(subject.Endpoints, s.scrub.Scrub(e))
	}
	if b.Via != "" {
		subject.Endpoints = append(subject.Endpoints, "via "+b.Via)
	}
	describer, can := s.session.(drivers.Describer)
	if !can {
		return subject, nil
	}
	d, err := describer.Describe(ctx)
	if err != nil {
		return plan.Subject{}, s.clean(err)
	}
	subject.Product, subject.Version, subject.Members = s.scrub.Scrub(d.Product), s.scrub.Scrub(d.Version), d.Members
	for name, value := range d.Settings {
		if subject.Settings == nil {
			subject.Settings = make(map[string]string, len(d.Settings))
		}
		subject.Settings[name] = s.scrub.Scrub(value)
	}
	return subject, nil
}
