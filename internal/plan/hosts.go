package plan

import (
	"net"
	"slices"
	"strings"
)

// Hosts returns the hosts in the broker's options and its proxy: names and addresses in lower case, without ports,
// sorted, each once. It returns none if they name none.
func (b Broker) Hosts() (hosts []string) {
	tree, err := decode(Unfilled(b.Options))
	if err != nil {
		return nil
	}
	eachString([]any{tree, b.Via}, "", func(_, list string) string {
		inURL := false // a URL may list several hosts
		for _, part := range strings.Split(Redact(list), ",") {
			if _, rest, ok := strings.Cut(part, "://"); ok {
				part, inURL = rest, true
			}
			part = strings.TrimSpace(part)
			end := strings.IndexAny(part+"/", "/?#")
			address := part[:end]
			if inURL || hostPort.MatchString(address) {
				hosts = append(hosts, host(address))
			}
			inURL = inURL && end == len(part)
		}
		return list
	})
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// host returns the host part of user@host:port; user and port are optional. An empty host is localhost.
func host(address string) string {
	address = address[strings.LastIndex(address, "@")+1:]
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		name = strings.Trim(address, "[]")
	}
	if name == "" {
		name = "localhost"
	}
	return strings.TrimSuffix(strings.ToLower(name), ".")
}
