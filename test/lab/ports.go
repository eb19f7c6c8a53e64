package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// usualPorts are the preferred ports of a part, in the order in which its plan uses them. The shipped matrices expect
// them, and need no settings if they are free. 0 is any port. None is in the system's range for outgoing connections.
var usualPorts = map[string][]int{
	"rabbitmq":      {0, 5672, 0, 15672, 15692},
	"rabbitmq3":     {0, 5771, 0, 15771, 15791, 5772, 0, 15772, 15792, 5773, 0, 15773, 15793, 5770},
	"rabbitmq4":     {0, 5872, 0, 15872, 15892},
	"rabbitmq43":    {0, 5972, 0, 15972, 15992},
	"kafka":         {9092},
	"kafka3":        {9192, 0, 0, 9292, 0, 0, 9392},
	"kafka-next":    {9093},
	"artemis":       {21616},
	"artemis-pair":  {21626, 21627},
	"activemq":      {5673, 0, 8161},
	"activemq-pair": {5674, 5675, 0, 0, 8162, 8163},
	"elasticmq":     {9324},
	"nats":          {4223}, // 4222 is for a control plane
	"nats3":         {4322, 4422, 4522},
	"mongodb":       {0, 27017},
	"eventstore":    {2113},
	"influxd":       {8086},
}

// ports returns free ports and reserves them for this lab, so that no other lab uses them while a broker is down.
// It uses the preferred ports that are free and not 0, and otherwise ports below the system's range for outgoing
// connections. A reservation is an abstract Unix socket.
func (s *site) ports(n int, preferred []int) ([]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ports := make([]int, n)
	copy(ports, preferred)
	for i, usual := range ports {
		if usual != 0 && s.reserve(usual) {
			continue
		}
		ports[i] = 0
		for attempt := 0; ports[i] == 0; attempt++ {
			if attempt == 1000 {
				return nil, fmt.Errorf("find %d free ports between 20000 and 32000", n)
			}
			if port := 20000 + rand.IntN(12000); s.reserve(port) {
				ports[i] = port
			}
		}
		if usual != 0 {
			fmt.Fprintf(s.out,
				"lab: port %d is in use, %d is used instead; change the address in shipped matrices with --set\n",
				usual, ports[i])
		}
	}
	return ports, nil
}

// reserve reserves a free port. The caller holds mu.
func (s *site) reserve(port int) bool {
	reservation, err := net.Listen("unix", "@lockstep-lab/port/"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		_ = reservation.Close()
		return false
	}
	_ = listener.Close()
	s.reserved = append(s.reserved, reservation)
	return true
}
