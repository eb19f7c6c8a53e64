package eventstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// standInID is the instance ID that the nodes of test/eventstored report. Other nodes report random ones.
const standInID = "lockstep-stand-in"

// Describe reports the server's product and version, the settings of this session, and the members of a cluster.
func (s *session) Describe(ctx context.Context) (drivers.Description, error) {
	o := &s.options
	d := drivers.Description{Product: "EventStoreDB", Settings: map[string]string{
		"strategy": o.Strategy, "message_timeout": o.Timeout.String(), "max_retry_count": fmt.Sprint(o.MaxRetries),
		"live_buffer_size": fmt.Sprint(o.LiveBuffer), "history_buffer_size": fmt.Sprint(o.History),
		"read_batch_size": fmt.Sprint(o.ReadBatch), "checkpoint_after": o.CheckAfter.String(),
		"append_batch": fmt.Sprint(o.AppendBatch), "tls": fmt.Sprint(s.security.tls != nil),
	}}
	if o.MaxCount > 0 {
		d.Settings["max_count"] = fmt.Sprint(o.MaxCount)
	}
	c, err := s.leader(ctx)
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe EventStoreDB: %w", err)
	}
	if d.Version = versionText(c.version); c.version.Major >= 25 {
		d.Product = "KurrentDB" // name of the product since version 25
	}
	members, err := c.client.Gossip(ctx)
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe EventStoreDB: query %s for the members of the cluster: %w",
			c.address, err)
	}
	for _, m := range members {
		if m.GetInstanceId().GetString_() == standInID {
			d.Product, d.StandIn = "eventstored", "EventStoreDB"
		}
		if len(s.endpoints) > 1 {
			d.Members = append(d.Members, addressOf(m))
		}
	}
	slices.Sort(d.Members)
	return d, nil
}

func versionText(v kurrentdb.ServerVersion) string {
	return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
}
