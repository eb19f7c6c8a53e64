package eventstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lockstep/pkg/drivers"
)

// standInVersion ends the version of test/eventstored.
const standInVersion = ".stand-in"

// Describe reports the server's product and version, the settings of this session, and the members of a cluster.
func (s *session) Describe(ctx context.Context) (drivers.Description, error) {
	d := drivers.Description{Product: "EventStoreDB", Settings: s.describeSettings()}
	at, err := s.place(ctx, drivers.AnyNode)
	if err == nil {
		d.Version, err = s.version(ctx, at[0])
	}
	if major, _, _ := strings.Cut(d.Version, "."); len(major) == 2 && major >= "25" {
		d.Product = "KurrentDB" // name of the product since version 25
	}
	if strings.HasSuffix(d.Version, standInVersion) {
		d.Product, d.StandIn = "eventstored", "EventStoreDB"
	}
	if err == nil && len(s.endpoints) > 1 {
		err = s.describeMembers(ctx, &d)
	}
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe EventStoreDB: %w", err)
	}
	return d, nil
}

// version returns the complete version. The library's request keeps only three numbers of it.
func (s *session) version(ctx context.Context, at endpoint) (string, error) {
	conn, err := s.aside(at)
	if err != nil {
		return "", err
	}
	features, err := serverfeatures.NewServerFeaturesClient(conn).GetSupportedMethods(ctx, &shared.Empty{})
	if code := status.Code(err); code == codes.Unimplemented || code == codes.NotFound {
		return "", nil // before 21.10
	}
	if err != nil {
		return "", fmt.Errorf("query %s for its version: %w", at.address, err)
	}
	return features.GetEventStoreServerVersion(), nil
}

func (s *session) describeMembers(ctx context.Context, d *drivers.Description) error {
	members, err := s.members(ctx)
	if err != nil {
		return err
	}
	for _, m := range members {
		d.Members = append(d.Members, addressOf(m))
	}
	slices.Sort(d.Members)
	return nil
}

// describeSettings returns the settings that this session uses.
func (s *session) describeSettings() map[string]string {
	o := &s.options
	all := map[string]string{
		"strategy": o.Strategy, "message_timeout": o.Timeout, "max_retry_count": strconv.Itoa(int(o.MaxRetries)),
		"live_buffer_size": strconv.Itoa(int(o.LiveBuffer)), "history_buffer_size": strconv.Itoa(int(o.History)),
		"read_batch_size": strconv.Itoa(int(o.ReadBatch)), "checkpoint_after": o.CheckAfter,
		"tls": strconv.FormatBool(s.security.tls != nil),
	}
	if o.MaxCount > 0 {
		all["max_count"] = strconv.FormatUint(o.MaxCount, 10)
	}
	return all
}
