package server

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"google.golang.org/grpc"
)

// statsService is event_store.client.monitoring.Monitoring, for which the client library has no code. It sends one
// response and then waits for the end of the call, like a server with a long period.
var statsService = grpc.ServiceDesc{
	ServiceName: "event_store.client.monitoring.Monitoring", HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{StreamName: "Stats", ServerStreams: true,
		Handler: func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(&shared.Empty{}); err != nil {
				return err
			}
			answer := &shared.Empty{}
			answer.ProtoReflect().SetUnknown(statsAnswer(ownStats()))
			if err := stream.SendMsg(answer); err != nil {
				return err
			}
			<-stream.Context().Done()
			return nil
		}}},
}

// ownStats are the statistics of the stand-in's process and disk. Unknown values are -1, as in EventStoreDB.
func ownStats() map[string]string {
	stats := map[string]string{"proc-cpu": "-1", "es-queue-MainQueue-length": "0",
		"es-queue-MainQueue-queueName": "MainQueue"}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if parts := strings.Fields(string(text)); len(parts) > 1 {
			pages, _ := strconv.Atoi(parts[1])
			stats["proc-mem"] = strconv.Itoa(pages * os.Getpagesize())
		}
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs("/", &disk); err == nil {
		stats["sys-drive-/-availableBytes"] = strconv.FormatUint(disk.Bavail*uint64(disk.Bsize), 10)
	}
	return stats
}

// statsAnswer encodes the response: a map in field 1.
func statsAnswer(stats map[string]string) (all []byte) {
	field := func(to []byte, number byte, value []byte) []byte {
		return append(binary.AppendUvarint(append(to, number<<3|2), uint64(len(value))), value...)
	}
	for name, value := range stats {
		all = field(all, 1, field(field(nil, 1, []byte(name)), 2, []byte(value)))
	}
	return all
}
