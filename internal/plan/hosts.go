package plan

import (
	"net"
	"slices"
	"strings"
)

// Hosts lists the hosts that the broker's options and its proxy name: names and addresses in lower case, without ports,
// sorted, each once. Empty: they name none.
func (b Broker) Hosts() (hosts []string) {
	tree, err := decode(Unfilled(b.Options))
	if err != nil {
		return nil
	}
	eachString([]any{tree, b.Via}, "", func(_, list string) string {
		inURL := false // a URL may name several hosts
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

// host is the host of user@host:port, where the user and the port are optional. One that is not given is localhost.
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
