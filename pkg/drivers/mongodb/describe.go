package mongodb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	client "go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"example.org/lockstep/lockstep/pkg/drivers"
)

type server struct {
	version string
	ferret  string // version of FerretDB; "": MongoDB
	set     string // name of the replica set; "": none
	hosts   []string
	sharded bool
}

// ask requests the server's description. The commands hello and buildInfo need no permissions.
func (s *session) ask(ctx context.Context) (server, error) {
	db, err := s.database(ctx, &s.admin, s.env.Dial)
	if err != nil {
		return server{}, err
	}
	var hello struct {
		SetName string   `bson:"setName"`
		Hosts   []string `bson:"hosts"`
		Message string   `bson:"msg"`
	}
	if err := db.Client().Database("admin").RunCommand(ctx,
		bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return server{}, fmt.Errorf("query MongoDB for its topology: %w", err)
	}
	var build struct {
		Version string `bson:"version"`
		Ferret  string `bson:"ferretdbVersion"`
		Nested  struct {
			Version string `bson:"version"`
		} `bson:"ferretdb"`
	}
	if err := db.Client().Database("admin").RunCommand(ctx,
		bson.D{{Key: "buildInfo", Value: 1}}).Decode(&build); err != nil {
		return server{}, fmt.Errorf("query MongoDB for its version: %w", err)
	}
	slices.Sort(hello.Hosts)
	return server{version: build.Version, ferret: cmp.Or(build.Ferret, build.Nested.Version), set: hello.SetName, hosts: hello.Hosts,
		sharded: hello.Message == "isdbgrid"}, nil
}

// warning returns a text if the server does not honour the write concern of the label, otherwise "".
func (v server) warning(o *options, persistent bool) string {
	requested := o.W.String()
	j := o.journaled(persistent)
	journaled := j != nil && *j
	if journaled {
		requested += ", journaled"
	}
	alone := v.set == "" && !v.sharded
	switch {
	case v.ferret != "" && (o.W != 1 || journaled):
		return requested + ": not honoured by this server: FerretDB accepts every write concern and ignores it"
	case v.ferret == "" && alone && o.W == 0:
		return requested + ": not honoured by this server: it is not a replica set, so the majority is one server"
	case v.ferret == "" && alone && o.W > 1:
		return requested + ": not honoured by this server: it is not a replica set"
	}
	return ""
}

// Describe requests the server's description again, because the members of a replica set can change.
func (s *session) Describe(ctx context.Context) (drivers.Description, error) {
	v, err := s.ask(ctx)
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe MongoDB: %w", err)
	}
	o := &s.options
	d := drivers.Description{Product: "MongoDB", Version: v.version, Members: v.hosts, Settings: map[string]string{
		"database": o.Database, "write_concern": o.W.String(), "order": o.Order, "visibility": o.Visibility.String(),
		"poll_interval": o.PollInterval.String(),
		"insert_batch":  strconv.Itoa(o.InsertBatch),
	}}
	for name, n := range map[string]*int{"inserters": o.Inserters, "claimers": o.Claimers} {
		if n != nil {
			d.Settings[name] = strconv.Itoa(*n)
		}
	}
	if o.ClaimW != nil {
		d.Settings["claim_write_concern"] = o.ClaimW.String()
	}
	if v.ferret != "" {
		d.Product, d.Version, d.StandIn = "FerretDB", v.ferret, "MongoDB"
		d.Settings["mongodb_version"] = v.version
	}
	if o.Journal != nil {
		d.Settings["journal"] = strconv.FormatBool(*o.Journal)
	}
	if o.WTimeout > 0 {
		d.Settings["wtimeout"] = o.WTimeout.String()
	}
	switch {
	case v.set != "":
		d.Settings["replica_set"] = v.set
	case v.sharded:
		d.Settings["replica_set"] = "sharded"
	default:
		d.Settings["replica_set"] = "none"
	}
	// Whether messages are persistent depends on the task: Setup reports a notice about that.
	if warning := v.warning(o, false); warning != "" {
		d.Settings["write_concern"] = warning
	}
	return d, nil
}

var errAnswers = errors.New("this server answers writes with w: 0, which the protocol leaves without an answer: all that follows on the connection" +
	" would be mixed up; set unacknowledged: false, and use a mode with confirms")

// checkSilence returns an error if the server answers writes with w: 0. It checks once per session, by a delete of
// nothing: the library would take an answer to it for the answer to the next request.
func (s *session) checkSilence(ctx context.Context, spec drivers.PublisherSpec) error {
	s.silence.Lock()
	defer s.silence.Unlock()
	if s.silent {
		return nil
	}
	by, err := s.connect(ctx, s.env.Dial)
	if err != nil {
		return err
	}
	defer by.Close()
	db := by.client.Database(s.options.Database)
	c := db.Collection(collectionName(spec.Topology, 0, spec.Queue),
		client.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	if _, err := c.DeleteOne(ctx, bson.D{{Key: fieldID, Value: "nothing"}}); err != nil {
		return fmt.Errorf("try a write with w: 0 at %s: %w", by.address, err)
	}
	answer, err := db.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Raw()
	if err != nil {
		return fmt.Errorf("try a write with w: 0 at %s: %w", by.address, err)
	}
	if _, is := answer.Lookup("version").StringValueOK(); !is {
		return fmt.Errorf("mode %q at %s: %w: %w", spec.Mode, by.address, drivers.ErrUnsupported, errAnswers)
	}
	s.silent = true
	return nil
}
