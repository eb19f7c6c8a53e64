package rabbitmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// nodeInfo is the description of a node in the management API.
type nodeInfo struct {
	Name    string `json:"name"`
	Running bool   `json:"running"`
	Memory  int64  `json:"mem_limit"`
	Disk    int64  `json:"disk_free_limit"`
	Cores   int    `json:"processors"`
}

// Describe reports the broker's properties from the AMQP connection, and those of the cluster if the management API is
// configured.
func (s *session) Describe(ctx context.Context) (drivers.Description, error) {
	var d drivers.Description
	err := s.administer(ctx, anywhere, func(*amqp.Channel) error {
		d.Settings = s.settings()
		d.Product, _ = s.admin.amqp.Properties["product"].(string)
		d.Version, _ = s.admin.amqp.Properties["version"].(string)
		d.Settings["heartbeat"] = s.admin.amqp.Config.Heartbeat.String()
		d.Settings["frame_max"] = strconv.Itoa(s.admin.amqp.Config.FrameSize)
		return nil
	})
	if err == nil && s.api != nil {
		err = s.describeCluster(ctx, &d)
	}
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe RabbitMQ: %w", err)
	}
	return d, nil
}

// settings returns the settings that this session requests.
func (s *session) settings() map[string]string {
	o := &s.options
	settings := map[string]string{"queue_type": o.Queue.Type, "exchange_type": o.Exchange.Type}
	for name, value := range map[string]any{"queue_arguments": o.queueArguments(), "message": o.Message,
		"consumer": o.Consumer, "policy": table(o.Policy)} {
		if text, _ := json.Marshal(value); string(text) != "{}" { // the keys are sorted
			settings[name] = string(text)
		}
	}
	if o.CoalesceWrites {
		settings["coalesce_writes"] = "true"
	}
	return settings
}

func (s *session) describeCluster(ctx context.Context, d *drivers.Description) error {
	var overview struct {
		Erlang string `json:"erlang_version"`
	}
	if err := s.api.get(ctx, nil, &overview, "overview"); err != nil {
		return err
	}
	d.Settings["erlang"] = overview.Erlang
	nodes, err := s.awaitNodes(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(nodes, func(a, b nodeInfo) int { return strings.Compare(a.Name, b.Name) })
	var memory, disk, cores []string
	for _, n := range nodes {
		d.Members = append(d.Members, n.Name)
		memory = append(memory, strconv.FormatInt(n.Memory, 10))
		disk = append(disk, strconv.FormatInt(n.Disk, 10))
		cores = append(cores, strconv.Itoa(n.Cores))
	}
	d.Settings["memory_limit"] = joined(memory)
	d.Settings["disk_free_limit"] = joined(disk)
	d.Settings["processors"] = joined(cores)
	return nil
}

func (s *session) runningNodes(ctx context.Context) ([]nodeInfo, error) {
	var nodes []nodeInfo
	err := s.api.get(ctx, nil, &nodes, "nodes")
	return slices.DeleteFunc(nodes, func(n nodeInfo) bool { return !n.Running }), err
}

// awaitNodes waits until all running nodes report their limits. Right after a start they do not.
func (s *session) awaitNodes(ctx context.Context) (nodes []nodeInfo, err error) {
	err = kit.Poll(ctx, 100*time.Millisecond, func() (bool, error) {
		if nodes, err = s.runningNodes(ctx); err != nil {
			return true, err
		}
		if slices.ContainsFunc(nodes, func(n nodeInfo) bool { return n.Memory == 0 }) {
			return false, errors.New("a node does not report its limits")
		}
		return true, nil
	})
	return nodes, err
}

// joined returns the nodes' values as a list, or the single value that they all have.
func joined(values []string) string {
	if same := slices.Compact(slices.Clone(values)); len(same) == 1 {
		return same[0]
	}
	return strings.Join(values, ", ")
}
