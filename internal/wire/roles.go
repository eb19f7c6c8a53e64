package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Role is what a peer of the control plane may do. Whoever adds a subject or a stream says here who may use it: what is not listed is refused.
type Role string

// The roles.
const (
	RoleController Role = "controller" // everything on Lockstep's streams
	RoleClient     Role = "client"     // ctl: submit, cancel, edit schedules, and read everything but assignments
	RoleViewer     Role = "viewer"     // ctl that reads records and lists, and changes nothing
	RoleAgent      Role = "agent"      // a named agent or observer: its own heartbeat, arrivals and snapshots, its own assignments, releases
)

// permissions are the subjects that a user may publish to and listen to. All may listen to their own inbox, which the user's key names.
type permissions struct {
	Publish, Subscribe []string
}

// inboxOf is the first words of the subjects on which a user gets answers. Nobody else may listen there.
func inboxOf(key string) string { return inboxes + key }

const (
	inboxes = "_INBOX."
	api     = "$JS.API."

	stateStream = "KV_" + bucketState
	stateKeys   = "$KV." + bucketState + "."

	scheduleStream = "KV_" + bucketSchedules
	scheduleKeys   = "$KV." + bucketSchedules + "."
)

// MostSlots bounds the tasks that one agent does side by side.
const MostSlots = 64

// SlotName is the name under which a slot of an agent, counted from 0, does its tasks.
func SlotName(agent string, slot int) string {
	if slot == 0 {
		return agent
	}
	return fmt.Sprintf("%s.%d", agent, slot+1)
}

// allow returns what a user of a role may do; name is an agent's, and slots how many it has.
func (r Role) allow(name, key string, slots int) (permissions, error) {
	p := permissions{Subscribe: []string{inboxOf(key) + ".>"}}
	switch r {
	case RoleController:
		p.Publish = []string{root + ">", inboxes + ">", api + ">", "$JS.ACK.>", "$JS.FC.>", stateKeys + ">", scheduleKeys + ">"}
		p.Subscribe = append(p.Subscribe, root+">")
	case RoleClient:
		p.Publish = slices.Concat([]string{subjectAgents, subjectHistory, root + "queue.submit.*", root + "queue.cancel.*", scheduleKeys + "*"},
			mayLook(streamQueue, streamRecord, stateStream, scheduleStream))
	case RoleViewer:
		p.Publish = slices.Concat([]string{subjectAgents, subjectHistory, api + "STREAM.INFO." + streamQueue}, mayLook(streamRecord, stateStream, scheduleStream))
	case RoleAgent:
		if name == "" {
			return p, errors.New("an agent's credentials need its name")
		}
		p.Publish = append(mayFollow(streamReleases, root+"task.release.>"), subjectClock)
		for slot := range max(slots, 1) { // each by its name: a pattern would reach an agent that is called so
			own := SlotName(name, slot)
			p.Publish = append(p.Publish, subjectHeartbeat(own),
				root+"record.*.arrive.*.*."+token(own), root+"record.*.snapshot.*.*."+token(own))
			p.Publish = append(p.Publish, mayFollow(streamTasks, root+"task.assign."+token(own)+".>")...)
		}
		p.Subscribe = append(p.Subscribe, subjectRoll)
	default:
		return p, fmt.Errorf("unknown role %q: want %s", r, strings.Join([]string{string(RoleController), string(RoleClient), string(RoleViewer), string(RoleAgent)}, ", "))
	}
	slices.Sort(p.Publish)
	p.Publish = slices.Compact(p.Publish)
	return p, nil
}

// mayLook lets a user read all of the streams.
func mayLook(streams ...string) (subjects []string) {
	for _, s := range streams {
		subjects = append(subjects, api+"STREAM.INFO."+s, api+"STREAM.MSG.GET."+s, api+"DIRECT.GET."+s, api+"DIRECT.GET."+s+".>",
			api+"CONSUMER.CREATE."+s+".>", api+"CONSUMER.MSG.NEXT."+s+".*", api+"CONSUMER.INFO."+s+".*", api+"CONSUMER.DELETE."+s+".*")
	}
	return append(subjects, "$JS.FC.>")
}

// mayFollow lets a user read what matches one filter, and nothing else of the stream: the subject of a request that makes a consumer ends in
// the consumer's filter, and the server compares them. To read from somebody else's consumer one must know its name, which is a secret: see
// followOnce.
func mayFollow(stream, filter string) []string {
	return []string{api + "STREAM.INFO." + stream, api + "CONSUMER.CREATE." + stream + ".*." + filter,
		api + "CONSUMER.MSG.NEXT." + stream + ".*", api + "CONSUMER.DELETE." + stream + ".*"}
}
