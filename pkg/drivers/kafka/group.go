package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// removeGroups deletes groups. It first removes members that a killed process left behind.
func (s *session) removeGroups(ctx context.Context, groups []string) error {
	return kit.Poll(ctx, askEvery, func() (bool, error) {
		occupied, err := s.deleteGroups(ctx, groups)
		if err == nil && len(occupied) > 0 {
			err = s.evict(ctx, occupied, func(string) bool { return true })
		}
		if err != nil || len(occupied) == 0 {
			return !kerr.IsRetriable(err), err
		}
		return false, fmt.Errorf("delete groups: %d of them still have members", len(occupied))
	})
}

// deleteGroups deletes groups. It returns those that could not be deleted because they have members.
func (s *session) deleteGroups(ctx context.Context, groups []string) (occupied []string, err error) {
	deleted, err := query(ctx, func(ctx context.Context) (kadm.DeleteGroupResponses, error) {
		return s.admin.DeleteGroups(ctx, groups...)
	})
	if err != nil {
		return nil, fmt.Errorf("delete groups: %w", explain(err))
	}
	for name, g := range deleted {
		switch {
		case errors.Is(g.Err, kerr.NonEmptyGroup):
			occupied = append(occupied, name)
		case g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound):
			return nil, fmt.Errorf("delete group %s: %w", name, explain(g.Err))
		}
	}
	return occupied, nil
}

// describeGroups returns the groups with their members. A group that does not exist has none.
func (s *session) describeGroups(ctx context.Context, names []string) (kadm.DescribedGroups, error) {
	groups, err := query(ctx, func(ctx context.Context) (kadm.DescribedGroups, error) {
		return s.admin.DescribeGroups(ctx, names...)
	})
	if err != nil {
		return nil, fmt.Errorf("request the members of groups: %w", explain(err))
	}
	for name, g := range groups {
		if g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound) {
			return nil, fmt.Errorf("request the members of group %s: %w", name, explain(g.Err))
		}
	}
	return groups, nil
}

// evict removes members from their groups. whom selects them by client ID.
func (s *session) evict(ctx context.Context, names []string, whom func(clientID string) bool) error {
	groups, err := s.describeGroups(ctx, names)
	if err != nil {
		return err
	}
	for name, g := range groups {
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group = name
		for _, m := range g.Members {
			if !whom(m.ClientID) {
				continue
			}
			leave.MemberID = m.MemberID
			member := kmsg.NewLeaveGroupRequestMember()
			member.MemberID, member.InstanceID = m.MemberID, m.InstanceID
			leave.Members = append(leave.Members, member)
		}
		if len(leave.Members) == 0 {
			continue
		}
		_, err := query(ctx, func(ctx context.Context) (*kmsg.LeaveGroupResponse, error) {
			return leave.RequestWith(ctx, s.library)
		})
		if err != nil { // a member that has already left is not an error
			return fmt.Errorf("have members leave group %s: %w", name, explain(err))
		}
	}
	return nil
}

// adopt removes the consumers that broke from their group. Otherwise the group would wait for their session timeout. A
// client that reconnects by itself would continue as the same member.
func (s *session) adopt(ctx context.Context, group string) error {
	s.mu.Lock()
	stale := s.staleMembers[group]
	s.mu.Unlock()
	if len(stale) == 0 {
		return nil
	}
	err := kit.Poll(ctx, askEvery, func() (bool, error) {
		err := s.evict(ctx, []string{group}, func(client string) bool { return slices.Contains(stale, client) })
		return !kerr.IsRetriable(err), err
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.staleMembers[group] = slices.DeleteFunc(s.staleMembers[group],
		func(client string) bool { return slices.Contains(stale, client) })
	return nil
}
