package keys

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"lockstep/internal/wire/subject"
)

// Role is what a peer of the control plane may do. Whoever adds a subject or a stream says here who may use it: what is
// not listed is refused.
type Role string

// The roles.
const (
	RoleController Role = "controller" // everything on Lockstep's streams
	// ctl: requests to submit, cancel, edit schedules and baselines, and those of viewers
	RoleClient Role = "client"
	RoleViewer Role = "viewer" // ctl: requests that read records and lists, and change nothing
	// a named agent or observer: reports of its own to the controller, which sends it commands
	RoleAgent Role = "agent"
)

// permissions are the subjects that a user may publish to and listen to. All may listen to their own inbox, which the
// user's key names.
type permissions struct {
	Publish, Subscribe []string
}

// InboxPrefix is the first words of the subjects on which a user gets answers. No other user may listen there.
func InboxPrefix(key string) string { return subject.Inboxes + key }

// MaxSlots bounds the tasks that one agent does side by side.
const MaxSlots = 64

// SlotName is the name under which a slot of an agent, counted from 0, does its tasks.
func SlotName(agent string, slot int) string {
	if slot == 0 {
		return agent
	}
	return fmt.Sprintf("%s.%d", agent, slot+1)
}

// account is an account of the control plane's servers. The streams are in that of the controllers; a user of another
// one reaches them by no subject, and a request only by the services that its account imports.
type account struct {
	name  string
	roles []Role
	// imports are the subjects of services of the controllers' account, and exports those of services that it has from
	// here.
	imports, exports []string
	// connections of all users together, and subscriptions of each connection, that servers accept at most.
	connections, subscriptions int
}

// accounts lists that of the controllers first.
var accounts = []account{
	{name: "LOCKSTEP", roles: []Role{RoleController}, connections: 500, subscriptions: MaxSubscriptions},
	{name: "AGENTS", roles: []Role{RoleAgent}, imports: []string{subject.AgentServices + ">"},
		exports:     []string{subject.Command("*")},
		connections: 25_000, subscriptions: 256},
	{name: "CLIENTS", roles: []Role{RoleClient}, imports: []string{subject.ClientServices + ">",
		subject.ViewServices + ">"}, connections: 500, subscriptions: 256},
	{name: "VIEWERS", roles: []Role{RoleViewer}, imports: []string{subject.ViewServices + ">"}, connections: 500,
		subscriptions: 256},
}

// allow returns what a user of a role may do; name is an agent's, and slots how many it has.
func (r Role) allow(name, key string, slots int) (permissions, error) {
	p := permissions{Subscribe: []string{InboxPrefix(key) + ".>"}}
	switch r {
	case RoleController:
		p.Publish = []string{subject.Root + ">", subject.Inboxes + ">", subject.BorderReplies + ">", subject.API + ">",
			"$JS.FC.>",
			"$KV." + subject.StateBucket + ".>", "$KV." + subject.SchedulesBucket + ".>",
			"$KV." + subject.BaselinesBucket + ".>"}
		p.Subscribe = append(p.Subscribe, subject.Root+">")
	case RoleClient:
		p.Publish = []string{subject.ClientServices + ">", subject.ViewServices + ">"}
	case RoleViewer:
		p.Publish = []string{subject.ViewServices + ">"}
	case RoleAgent:
		if name == "" {
			return p, errors.New("an agent's credentials need its name")
		}
		for slot := range max(slots, 1) { // each by its name: a pattern would reach an agent that is called so
			own := SlotName(name, slot)
			p.Publish = append(p.Publish, subject.AgentServices+"*."+subject.EncodeToken(own))
			p.Subscribe = append(p.Subscribe, subject.Command(own))
		}
	default:
		return p, fmt.Errorf("unknown role %q: want %s", r,
			strings.Join([]string{string(RoleController), string(RoleClient), string(RoleViewer), string(RoleAgent)},
				", "))
	}
	slices.Sort(p.Publish)
	p.Publish = slices.Compact(p.Publish)
	return p, nil
}
