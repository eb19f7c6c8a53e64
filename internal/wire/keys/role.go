package keys

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/wire/subject"
)

// Role is a set of permissions on the control plane. All are defined in this file. The servers refuse everything else.
type Role string

// The roles.
const (
	RoleController Role = "controller" // everything on Lockstep's streams
	// ctl: requests to submit and cancel runs and to edit schedules and baselines, and those of viewers
	RoleClient Role = "client"
	RoleViewer Role = "viewer" // ctl: requests that read records and lists, and change nothing
	// an agent or observer: reports about itself to the controller, and commands from it
	RoleAgent Role = "agent"
)

// permissions are the subjects that a user may publish and subscribe to. The inbox of a user is named after its key.
type permissions struct {
	Publish, Subscribe []string
}

// InboxPrefix returns the first words of the subjects of a user's answers. No other user may subscribe to them.
func InboxPrefix(key string) string { return subject.Inboxes + key }

// MaxSlots is the maximum number of tasks that an agent executes at the same time.
const MaxSlots = 64

// SlotName returns the name under which a slot of an agent executes tasks. Slots are counted from 0.
func SlotName(agent string, slot int) string {
	if slot == 0 {
		return agent
	}
	return fmt.Sprintf("%s.%d", agent, slot+1)
}

// account is an account of the control plane's servers. The streams are in the controllers' account. Users of other
// accounts cannot reach them by any subject, only through the services that their account imports.
type account struct {
	name  string
	roles []Role
	// imports are the services of the controllers' account that this one may use, exports its own for that account.
	imports, exports []string
	// Limits: connections of all users together, and subscriptions per connection.
	connections, subscriptions int
}

// AgentsAccount is the account of all agents.
const AgentsAccount = "AGENTS"

// accounts are all accounts. The controllers' account must be the first.
var accounts = []account{
	{name: "LOCKSTEP", roles: []Role{RoleController}, connections: 500, subscriptions: MaxSubscriptions},
	{name: AgentsAccount, roles: []Role{RoleAgent}, imports: []string{subject.AgentServices + ">"},
		exports: []string{subject.Command("*")}, connections: 25_000, subscriptions: 256},
	{name: "CLIENTS", roles: []Role{RoleClient}, imports: []string{subject.ClientServices + ">",
		subject.ViewServices + ">"}, connections: 500, subscriptions: 256},
	{name: "VIEWERS", roles: []Role{RoleViewer}, imports: []string{subject.ViewServices + ">"}, connections: 500,
		subscriptions: 256},
}

// allow returns the permissions of a user. name and slots are used only for an agent.
func (r Role) allow(name, key string, slots int) (permissions, error) {
	p := permissions{Subscribe: []string{InboxPrefix(key) + ".>"}}
	switch r {
	case RoleController:
		p.Publish = []string{subject.Root + ">", subject.Inboxes + ">", subject.BorderReplies + ">", subject.API + ">",
			"$JS.FC.>", "$KV." + subject.StateBucket + ".>", "$KV." + subject.SchedulesBucket + ".>",
			"$KV." + subject.BaselinesBucket + ".>"}
		p.Subscribe = append(p.Subscribe, subject.Root+">")
	case RoleClient:
		p.Publish = []string{subject.ClientServices + ">", subject.ViewServices + ">"}
	case RoleViewer:
		p.Publish = []string{subject.ViewServices + ">"}
	case RoleAgent:
		if name == "" {
			return p, errors.New("no agent name for the credentials of an agent")
		}
		for slot := range max(slots, 1) { // one subject per name: a pattern could match the name of another agent
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
