package wire

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/wire/subject"
)

var update = flag.Bool("update", false, "write golden files")

// permission is a permission to publish to subjects, or to subscribe to them. {own} is the agent's name, and {other}
// that of another agent. {own-key} and {other-key} are their keys. {stream} is each stream, and {subject} one subject
// of each stream.
type permission struct {
	what     string
	listen   bool
	subjects []string
}

var listed = []permission{
	{"submit a run", false, []string{serviceSubmit.subject}},
	{"cancel a run", false, []string{serviceCancel.subject}},
	{"write a schedule", false, []string{serviceSchedulePut.subject}},
	{"set and remove baselines", false, []string{serviceBaselineSet.subject, serviceBaselineRemove.subject}},
	{"remove a schedule", false, []string{serviceScheduleRemove.subject}},
	{"find the leader", false, []string{serviceLeader.subject}},
	{"list agents", false, []string{serviceAgents.subject}},
	{"list runs, read the state of one", false, []string{serviceRuns.subject, serviceRun.subject}},
	{"read a record, and the size of all records", false, []string{serviceRead.subject, serviceStorage.subject}},
	{"read the history", false, []string{serviceHistory.subject}},
	{"list and read schedules, list baselines", false,
		[]string{serviceSchedules.subject, serviceSchedule.subject, serviceBaselines.subject}},
	{"list hooks", false, []string{serviceHooks.subject}},
	{"send heartbeats as itself", false, []string{subject.AgentServices + "heartbeat.{own}"}},
	{"read the controller's clock as itself", false, []string{subject.AgentServices + "clock.{own}"}},
	{"arrive at a step as itself", false, []string{subject.AgentServices + "arrive.{own}"}},
	{"report snapshots as itself", false, []string{subject.AgentServices + "snapshot.{own}"}},
	{"do so as another agent", false, []string{subject.AgentServices + "heartbeat.{other}",
		subject.AgentServices + "clock.{other}", subject.AgentServices + "arrive.{other}",
		subject.AgentServices + "snapshot.{other}"}},
	{"use other services of agents, or below these", false,
		[]string{subject.AgentServices + "other.{other}", subject.AgentServices + "heartbeat.{own}.more"}},
	{"command an agent", false, []string{subject.Root + "command.{own}", subject.Root + "command.{other}"}},
	{"receive its own commands", true, []string{subject.Root + "command.{own}"}},
	{"receive commands of others", true, []string{subject.Root + "command.{other}", subject.Root + "command.*"}},
	{"take requests for the controller", true, []string{serviceSubmit.subject, serviceRead.subject,
		subject.AgentServices + "heartbeat.{own}", subject.AgentServices + ">", subject.Root + ">"}},
	{"write the queue, records, schedules, the lease", false, []string{"{subject}"}},
	{"read the queue and records as they are written", true,
		[]string{subject.Queue + ">", subject.Root + "events.>", subject.Root + "snapshots.>"}},
	{"read schedules and the lease as they are written", true, []string{"$KV.>"}},
	{"list streams, and read how they are", false,
		[]string{subject.API + "INFO", subject.API + "STREAM.NAMES", subject.API + "STREAM.LIST",
			subject.API + "STREAM.INFO.{stream}"}},
	{"read messages of streams", false, []string{subject.API + "STREAM.MSG.GET.{stream}",
		subject.API + "DIRECT.GET.{stream}", subject.API + "DIRECT.GET.{stream}.{subject}"}},
	{"make and delete consumers, and read by them", false,
		[]string{subject.API + "CONSUMER.CREATE.{stream}", subject.API + "CONSUMER.CREATE.{stream}.spy.{subject}",
			subject.API + "CONSUMER.DURABLE.CREATE.{stream}.spy",
			subject.API + "CONSUMER.MSG.NEXT.{stream}.spy", subject.API + "CONSUMER.DELETE.{stream}.spy"}},
	{"acknowledge messages", false, []string{"$JS.ACK.{stream}.spy.1.1.1.1.0"}},
	{"make, change, copy streams", false, []string{subject.API + "STREAM.CREATE.{stream}",
		subject.API + "STREAM.UPDATE.{stream}", subject.API + "STREAM.SNAPSHOT.{stream}",
		subject.API + "STREAM.RESTORE.{stream}"}},
	{"delete messages, purge and delete streams", false,
		[]string{subject.API + "STREAM.MSG.DELETE.{stream}", subject.API + "STREAM.PURGE.{stream}",
			subject.API + "STREAM.DELETE.{stream}"}},
	{"take answers to itself", true, []string{subject.Inboxes + "{own-key}.>"}},
	{"take answers to others", true, []string{subject.Inboxes + "{other-key}.>", subject.Inboxes + ">",
		subject.BorderReplies + ">"}},
	{"send an answer to any client", false, []string{subject.Inboxes + "{other-key}.x", subject.BorderReplies + "x"}},
	{"listen to everything", true, []string{">", "*.*.>", "$JS.>"}},
	{"request the connections of the server", false, []string{"$SYS.REQ.SERVER.PING.CONNZ",
		"$SYS.REQ.ACCOUNT.PING.CONNZ"}},
	{"send anything else", false, []string{"elsewhere"}},
}

const permissionsPage = "../../docs/reference/permissions.md"

// TestPermissionsOfRoles tries every permission with the key of every role, on a server with the configuration of "ctl
// fleet init". The table of docs/reference/permissions.md has the results; -update writes it.
func TestPermissionsOfRoles(t *testing.T) {
	g := guardPlane(t)
	streams := map[string]string{} // with one subject each
	infos := storeOf(t, g.server).js.ListStreams(t.Context())
	for info := range infos.Info() {
		streams[info.Config.Name] = strings.NewReplacer(">", "x", "*", "x").Replace(info.Config.Subjects[0])
	}
	if err := infos.Err(); err != nil || len(streams) < 4 {
		t.Fatalf("the streams are %v, %v", streams, err)
	}
	users := []string{"controller", "client", "viewer", "a1"}
	table := "| | subjects | controller | client | viewer | agent |\n|---|---|---|---|---|---|\n"
	conns := map[string]*nats.Conn{}
	for _, user := range users {
		conns[user], _ = g.hostile(t, user)
		conns[user].SetErrorHandler(nil) // errors are read from the connection: see mayUse
	}
	for _, p := range listed {
		row := []string{p.what, subjectsText(p)}
		for _, user := range users {
			key, other := userOf(g.creds, user).Key, userOf(g.creds, "a2.zone b").Key
			var subjects []string
			for _, s := range p.subjects {
				for stream, one := range streams {
					subjects = append(subjects, strings.NewReplacer("{own}", "a1", "{other}",
						subject.EncodeToken("a2.zone b"), "{own-key}", key, "{other-key}", other,
						"{stream}", stream, "{subject}", one).Replace(s))
				}
			}
			slices.Sort(subjects)
			may := map[bool][]string{}
			for _, s := range slices.Compact(subjects) {
				allowed := mayUse(t, conns[user], p.listen, s)
				may[allowed] = append(may[allowed], s)
			}
			if len(may) != 1 {
				t.Errorf("%s, %s: may %v and may not %v: make two rows of it", p.what, user, may[true], may[false])
			}
			row = append(row, map[bool]string{true: "yes", false: "–"}[len(may[true]) > 0])
		}
		table += "| " + strings.Join(row, " | ") + " |\n"
	}
	compareTable(t, table)
}

// subjectsText formats the subjects of a permission.
func subjectsText(p permission) string {
	var all []string
	for _, s := range p.subjects {
		all = append(all, "`"+s+"`")
	}
	text := strings.Join(all, " ")
	if p.listen {
		text = "listen: " + text
	}
	return text
}

// mayUse reports whether the server permits a connection to use a subject.
func mayUse(t *testing.T, nc *nats.Conn, listen bool, subject string) bool {
	t.Helper()
	var err error
	refusal := fmt.Sprintf("for Publish to %q", subject)
	if listen {
		refusal = fmt.Sprintf("for Subscription to %q", subject)
		var sub *nats.Subscription
		if sub, err = nc.SubscribeSync(subject); err == nil {
			defer sub.Unsubscribe() //nolint:errcheck // a subscription that was refused is gone
		}
	} else {
		err = nc.Publish(subject, nil)
	}
	if err == nil {
		err = nc.Flush() // the server sends the error before its response
	}
	if err != nil {
		t.Fatal(err)
	}
	last := nc.LastError()
	return last == nil || !strings.Contains(last.Error(), refusal)
}

// compareTable compares a table with that of the page.
func compareTable(t *testing.T, table string) {
	t.Helper()
	text, err := os.ReadFile(permissionsPage)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- permissions -->\n", "<!-- /permissions -->\n"
	before, rest, found := strings.Cut(string(text), begin)
	there, after, found2 := strings.Cut(rest, end)
	if !found || !found2 {
		t.Fatalf("%s has no %s and %s", permissionsPage, begin, end)
	}
	if there == table {
		return
	}
	if !*update {
		t.Fatalf("%s differs; rewrite it with -update:\n%s", permissionsPage, table)
	}
	if err := os.WriteFile(permissionsPage, []byte(before+begin+table+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestEveryServiceHasAPermission proves that every service has a row in the table.
func TestEveryServiceHasAPermission(t *testing.T) {
	text, err := os.ReadFile("services.go")
	if err != nil {
		t.Fatal(err)
	}
	var in []string
	for _, p := range listed {
		in = append(in, p.subjects...)
	}
	prefixes := map[string]string{"Client": subject.ClientServices, "View": subject.ViewServices}
	found := regexp.MustCompile(`subject: subject\.(Client|View)Services \+ "([^"]+)"`).FindAllStringSubmatch(string(text), -1)
	if len(found) < 14 {
		t.Errorf("only %d services were found", len(found))
	}
	for _, m := range found {
		if !slices.Contains(in, prefixes[m[1]]+m[2]) {
			t.Errorf("the service %s%s is in no row", prefixes[m[1]], m[2])
		}
	}
}
