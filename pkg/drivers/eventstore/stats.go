package eventstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lockstep/pkg/drivers"
)

// The service for a node's statistics. The client library does not contain it, so its two messages are encoded and
// decoded here. Field 4 of the request is the time between two answers in milliseconds. Field 1 of the answer is a map
// from text to text.
const (
	statsMethod = "/event_store.client.monitoring.Monitoring/Stats"
	// only the first answer is read; some releases keep waiting for this time after it
	statsPeriod = 10000
)

// statMetrics reads the statistics of all nodes. A node has no metrics if it lacks the service, or denies access to it.
// CPU is not included, because its unit differs between releases.
func (s *session) statMetrics(ctx context.Context) ([]drivers.Metric, error) {
	answers, errs := make([][]drivers.Metric, len(s.endpoints)), make([]error, len(s.endpoints))
	var wg sync.WaitGroup
	for i, e := range s.endpoints {
		wg.Go(func() {
			stats, err := s.stats(ctx, e)
			switch status.Code(err) {
			case codes.OK:
				answers[i] = nodeMetrics(e.address, stats)
			case codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
			default:
				errs[i] = fmt.Errorf("query %s for statistics: %w", e.address, err)
			}
		})
	}
	wg.Wait()
	var metrics []drivers.Metric
	for _, a := range answers {
		metrics = append(metrics, a...)
	}
	return metrics, errors.Join(errs...)
}

// stats reads the statistics of one node.
func (s *session) stats(ctx context.Context, at endpoint) (map[string]string, error) {
	conn, err := s.aside(at)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx) // ends the call after the first answer
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, statsMethod)
	if err != nil {
		return nil, err
	}
	request, answer := &shared.Empty{}, &shared.Empty{}
	request.ProtoReflect().SetUnknown(binary.AppendUvarint([]byte{4 << 3}, statsPeriod))
	// after EOF, RecvMsg returns the cause
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	if err := stream.RecvMsg(answer); err != nil {
		return nil, err
	}
	return parseStats(answer.ProtoReflect().GetUnknown())
}

var errStats = errors.New("the answer is no map of text")

// parseStats decodes an answer: the entries of a map, with the key in field 1 and the value in field 2.
func parseStats(b []byte) (map[string]string, error) {
	stats := map[string]string{}
	for len(b) > 0 {
		field, entry, rest, err := cutField(b)
		if err != nil || field != 1 {
			return nil, errStats
		}
		var pair [3]string
		for len(entry) > 0 {
			var text []byte
			if field, text, entry, err = cutField(entry); err != nil || field < 1 || field > 2 {
				return nil, errStats
			}
			pair[field] = string(text)
		}
		stats[pair[1]], b = pair[2], rest
	}
	return stats, nil
}

// cutField removes the first field of a message. Only fields with a length are supported.
func cutField(b []byte) (field uint64, value, rest []byte, err error) {
	tag, n := binary.Uvarint(b)
	if n <= 0 || tag&7 != 2 {
		return 0, nil, nil, errStats
	}
	size, m := binary.Uvarint(b[n:])
	if m <= 0 || size > uint64(len(b)-n-m) {
		return 0, nil, nil, errStats
	}
	b = b[n+m:]
	return tag >> 3, b[:size], b[size:], nil
}

// nodeMetrics converts a node's statistics to metrics. The value -1 means unknown.
func nodeMetrics(node string, stats map[string]string) []drivers.Metric {
	var metrics []drivers.Metric
	add := func(name drivers.MetricName, value float64, known bool) {
		if known {
			metrics = append(metrics, drivers.Metric{Name: name, Node: node, Value: value})
		}
	}
	var free, waiting float64
	disk, queues := false, false
	for name, text := range stats {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || v < 0 {
			continue
		}
		switch {
		case strings.HasPrefix(name, "sys-drive-") && strings.HasSuffix(name, "-availableBytes"):
			free, disk = free+v, true
		case strings.HasPrefix(name, "es-queue-") && strings.HasSuffix(name, "-length"):
			waiting, queues = waiting+v, true
		case name == "proc-mem":
			add(drivers.MetricMemory, v, v > 0)
		}
	}
	add(drivers.MetricDiskFree, free, disk)
	add(drivers.MetricRunQueue, waiting, queues)
	return metrics
}
