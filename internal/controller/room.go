package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lockstep/internal/wire"
)

// Room in the control plane's record. For how long nothing may have been found that could make some before a run is ended for that: copies and a local
// follower are a moment behind.
const (
	roomEvery = 5 * time.Second
	roomWait  = time.Hour
	roomSure  = 10 * time.Second
)

// errRoom is the reason of a run that ended for want of room.
var errRoom = errors.New("the control plane had no room for the run")

// keepRoom makes room in the record while tasks go on, too, until ctx ends.
func (l *leader) keepRoom(ctx context.Context) {
	for pause(ctx, roomEvery) == nil {
		if _, err := l.freeRoom(ctx); err != nil && ctx.Err() == nil {
			l.cfg.Log.Warn("make room on the control plane", "err", err)
		}
	}
}

// freeRoom deletes what nobody needs, if there is little room.
func (l *leader) freeRoom(ctx context.Context) (wire.Room, error) {
	l.purging.Lock()
	defer l.purging.Unlock()
	room, err := l.lease.MakeRoom(ctx, l.conn.Local(), l.queue.holds)
	if err == nil && l.full.Swap(room.Full()) != room.Full() {
		if room.Full() {
			l.cfg.Log.Warn("the control plane's record is full, and holds nothing that was copied", "used", room.String())
		} else {
			l.cfg.Log.Info("there is room in the control plane's record again", "used", room.String())
		}
	}
	return room, err
}

// forRoom adds to the words of a failure that the record is full, which may be why.
func (l *leader) forRoom(words string) string {
	if l.full.Load() {
		words += "; the control plane's record is full, and takes nothing that agents measure"
	}
	return words
}

// makeRoom waits until the control plane has room for another task. What was not copied is never deleted for it. The error ends the run.
func (x *execution) makeRoom(ctx context.Context) error {
	began, hopeful := time.Now(), time.Now()
	defer x.queue.lacksRoom(x.claim, false)
	for said := false; ; said = true {
		room, err := x.freeRoom(ctx)
		if err != nil || !room.Full() {
			if err != nil && ctx.Err() == nil {
				x.log.Warn("make room on the control plane", "err", err) // the task tells whether there is some
			}
			if said {
				x.state.Waiting = ""
				x.note(ctx)
			}
			return context.Cause(ctx)
		}
		if !said {
			if err := x.sayRoomless(ctx, room); err != nil {
				return err
			}
		}
		if x.queue.lacksRoom(x.claim, true) || room.Uncopied {
			hopeful = time.Now()
		}
		if why := x.noRoom(room, time.Since(began), time.Since(hopeful)); why != "" {
			x.end.Reason, x.end.Detail = wire.EndFailed, why
			return fmt.Errorf("%w: %s", errRoom, why)
		}
		if err := pause(ctx, copyEvery); err != nil {
			return err
		}
	}
}

// sayRoomless says everywhere that the run waits for room.
func (x *execution) sayRoomless(ctx context.Context, room wire.Room) error {
	x.state.Waiting = "room on the control plane, whose record is full: copy runs that have ended, with a controller that has --dir, or give it more (controller --record-limit)"
	x.log.Warn("waiting for room on the control plane", "used", room.String())
	x.note(ctx)
	return x.record.Event(ctx, wire.RunEvent{At: time.Now(), Kind: wire.WaitingAgents, Detail: fmt.Sprintf("%s (%v used)", x.state.Waiting, room)})
}

// noRoom says why a run does not wait for room any longer; empty: it does. It has waited for so long, and for so long has there been no hope.
func (x *execution) noRoom(room wire.Room, waited, hopeless time.Duration) string {
	const help = "; give it more with controller --record-limit, or split the matrix. Outcomes are kept: ctl run --resume goes on when there is room"
	switch {
	case hopeless >= roomSure:
		return fmt.Sprintf("the record of the control plane is full (%v used), and holds nothing but runs that go on, of which this is the last: one alone may not need that much", room) + help
	case waited >= x.cfg.RoomWait:
		return fmt.Sprintf("the record of the control plane is full (%v used), and there was no room within %v: runs that have ended are deleted when they were copied (controller --dir)",
			room, x.cfg.RoomWait) + help
	}
	return ""
}

// lacksRoom notes whether a run waits for room, and tells whether others can be waited for: runs that go on, or that were submitted later and wait for room
// as well, and so end first.
func (q *queue) lacksRoom(c *claim, lacks bool) (others bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.roomless = lacks
	own := slices.Index(q.claims, c)
	for i, o := range q.claims {
		if o != c && (o.begun || o.former) && (!o.roomless || i > own) {
			return true
		}
	}
	return false
}
