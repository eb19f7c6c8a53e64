package engine

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
)

func seconds(s float64) plan.Duration { return plan.Duration(s * float64(time.Second)) }

// Threads are active as their lifetimes define, with cycles distributed evenly. All consumers are active in the drain.
func TestLifetimePeriods(t *testing.T) {
	const s = int64(time.Second)
	cycles := plan.Lifetime{Stay: seconds(3), Away: seconds(1)}
	for name, test := range map[string]struct {
		lifetime plan.Lifetime
		i, total int
		always   int64
		active   string // at -1 s, 0 s, 1 s, …
	}{
		"connects late":     {plan.Lifetime{ConnectAt: seconds(2)}, 0, 1, forever, "___######"},
		"disconnects early": {plan.Lifetime{DisconnectAt: seconds(3)}, 0, 1, forever, "####_____"},
		"connects and disconnects": {plan.Lifetime{ConnectAt: seconds(1), DisconnectAt: seconds(3)}, 0, 1, forever,
			"__##_____"},
		"active again in the drain": {plan.Lifetime{ConnectAt: seconds(1), DisconnectAt: seconds(3)}, 0, 1, 6 * s,
			"__##___##"},
		"first of 4":  {cycles, 0, 4, forever, "####_###_"},
		"second of 4": {cycles, 1, 4, forever, "###_###_#"},
		"last of 4":   {cycles, 3, 4, forever, "__###_###"},
	} {
		life := newLifetime(nil, test.lifetime, test.i, test.total, test.always)
		var got strings.Builder
		for now := -s; now < 8*s; now += s {
			active, until := life.at(now)
			got.WriteByte(map[bool]byte{true: '#', false: '_'}[active])
			if until <= now {
				t.Errorf("%s: at %d s: got %d ns as the end of the period, want a later time", name, now/s, until)
			} else if before, _ := life.at(until - 1); before != active {
				t.Errorf("%s: at %d s: got active %t until %d ns, but it changes before", name, now/s, active, until)
			}
		}
		if got.String() != test.active {
			t.Errorf("%s: active per second: got %s, want %s", name, got.String(), test.active)
		}
	}
}

// Consumers that connect late find a backlog, and nothing is lost. The latency of the first message covers the time
// from its intended send time until they connect.
func TestConsumersJoinLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Warmup, w.Measure, w.Consumers.Threads = 100, seconds(1), seconds(5), 2
			w.Consumers.Lifetime.ConnectAt = seconds(2)
		})
		m := s.run(t.Context())
		accounting := m.Accounting(1)
		if accounting.Sent != 600 || accounting.Missing != 0 || accounting.Duplicated != 0 ||
			accounting.Reordered != 0 {
			t.Errorf("accounting: got %+v, want 600 sent, all received once", accounting)
		}
		if got := m.Sum(record.Received, -5, 2); got != 0 {
			t.Errorf("received before consumers connect: got %d, want 0", got)
		}
		if got := m.Sum(record.Received, 2, 3); got != 400 {
			t.Errorf("received in the second of the connect: got %d, want 400: the backlog of 300, and 100", got)
		}
		if got := m.Hist(record.EndToEnd).Max(); got != 2e9 {
			t.Errorf("maximum end-to-end latency: got %d ns, want 2 s: the first message of the measurement", got)
		}
		if m.Total(record.Connects) != 2 || m.Total(record.Disconnects) != 0 || m.Total(record.Reconnects) != 0 {
			t.Errorf("got %d connects, %d disconnects, %d reconnects, want 2, 0, 0", m.Total(record.Connects),
				m.Total(record.Disconnects), m.Total(record.Reconnects))
		}
		for _, e := range m.Events() {
			if e.Kind == record.EventGap || e.Kind == "closed" {
				t.Errorf("got event %+v, want none: a late connect is no gap", e)
			}
		}
	})
}

// Publishers with lifetimes send exactly the messages that are due while they are active. The others count neither as
// late nor as unsent.
func TestPublishersComeAndGo(t *testing.T) {
	for _, mode := range drivers.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTestTask(t, func(w *plan.Workload) {
					w.Publishers.Mode, w.Publishers.Rate, w.Publishers.Threads = string(mode), 400, 4
					w.Publishers.Batch = plan.Batch{Min: 7, Max: 7}
					w.Warmup, w.Measure = seconds(1), seconds(8)
					w.Publishers.Lifetime = plan.Lifetime{Stay: seconds(3), Away: seconds(1)}
				})
				m := s.run(t.Context())
				accounting := m.Accounting(1)
				// In warm-up and in each second, three of four are active.
				if accounting.Sent != 9*300 || accounting.Missing != 0 || m.Total(record.Unsent) != 0 {
					t.Errorf("got %+v, %d unsent, want %d sent, none missing, none unsent", accounting,
						m.Total(record.Unsent), 9*300)
				}
				for second := range 8 {
					if got := m.Sum(record.Sent, second, second+1); got < 299 || got > 301 {
						t.Errorf("sent in second %d: got %d, want 300", second, got)
					}
				}
				if late, blocked := m.Hist(record.SendDelay).Max(), m.Hist(record.Backpressure).Max(); late != 0 ||
					blocked != 0 {
					t.Errorf("got maximum send delay %d ns, maximum back-pressure %d ns, want 0, 0: a disconnected publisher has "+
						"no due messages", late, blocked)
				}
				// The first publisher disconnects at 3 and 7, and connects at 4. The others have other times. The
				// connect at 8 is at the end, and does not happen.
				if m.Total(record.Disconnects) != 8-1 || m.Total(record.Connects) != 8-1 {
					t.Errorf("got %d disconnects, %d connects, want 7, 7", m.Total(record.Disconnects),
						m.Total(record.Connects))
				}
				if m.Total(record.Reconnects) != 0 || m.Total(record.PublishErrors) != 0 ||
					m.Total(record.Unconfirmed) != 0 {
					t.Errorf("got %d reconnects, %d publish errors, %d unconfirmed, want 0, 0, 0",
						m.Total(record.Reconnects), m.Total(record.PublishErrors), m.Total(record.Unconfirmed))
				}
			})
		})
	}
}

// In closed loop, with a limited lifetime.
func TestPublishersWithConnectAndDisconnect(t *testing.T) {
	for _, mode := range []string{"confirm-window", "confirm-each", "confirm-batch"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTestTask(t, func(w *plan.Workload) {
					w.Publishers.Mode, w.Publishers.MaxInFlight, w.Warmup, w.Measure = mode, 10, 0, seconds(5)
					w.Publishers.Lifetime = plan.Lifetime{ConnectAt: seconds(1), DisconnectAt: seconds(3)}
				})
				s.options = `{"confirmDelay": "10ms"}`
				m := s.run(t.Context())
				if before, during, after := m.Sum(record.Sent, -5, 1), m.Sum(record.Sent, 1, 3),
					m.Sum(record.Sent, 3, 5); before+after > 1 || during < 100 {
					t.Errorf("got %d sent before, %d during, %d after the active time, want 0, at least 100, 0", before,
						during, after)
				}
				if accounting := m.Accounting(1); accounting.Missing != 0 {
					t.Errorf("accounting: got %+v, want none missing", accounting)
				}
				if m.Total(record.Connects) != 1 || m.Total(record.Disconnects) != 1 {
					t.Errorf("got %d connects, %d disconnects, want 1, 1", m.Total(record.Connects),
						m.Total(record.Disconnects))
				}
			})
		})
	}
}

// Slow consumers disconnect and connect. Their unhandled messages are delivered to others once, in order, and none is
// lost.
func TestConsumersComeAndGo(t *testing.T) {
	for _, ack := range []string{"each", "every", "interval"} {
		t.Run(ack, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTestTask(t, func(w *plan.Workload) {
					w.Publishers.Rate, w.Warmup, w.Measure, w.Consumers.Threads = 500, 0, seconds(8), 3
					w.Consumers.Lifetime = plan.Lifetime{Stay: seconds(0.5), Away: seconds(1)}
					w.Consumers.Process = plan.DurationDist{Max: plan.Duration(2 * time.Millisecond)}
					w.Consumers.Prefetch, w.Consumers.Batch, w.Consumers.Ack, w.Consumers.AckEvery = 50, 5, ack, 20
					w.Consumers.AckInterval = seconds(0.02)
					w.Drain.Idle = seconds(4)
				})
				m := s.run(t.Context())
				accounting := m.Accounting(1)
				if accounting.Sent != 4000 || accounting.Missing != 0 || accounting.Duplicated != 0 ||
					accounting.Reordered != 0 {
					t.Errorf("accounting: got %+v, want 4000 received once and in order", accounting)
				}
				if m.Total(record.Disconnects) < 14 || m.Total(record.Connects) < m.Total(record.Disconnects) ||
					m.Total(record.Reconnects) != 0 {
					t.Errorf("got %d disconnects, %d connects, %d reconnects, want at least 14, at least as many, 0",
						m.Total(record.Disconnects), m.Total(record.Connects), m.Total(record.Reconnects))
				}
			})
		})
	}
}

// The number of events for connects and disconnects is limited. The counters are complete.
func TestLifetimeEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Warmup, w.Measure, w.Consumers.Threads = 10, 0, seconds(10), 10
			w.Consumers.Lifetime = plan.Lifetime{Stay: seconds(0.05), Away: seconds(0.05)}
		})
		m := s.run(t.Context())
		n := 0
		for _, e := range m.Events() {
			if e.Kind == eventJoined || e.Kind == eventLeft {
				n++
			}
		}
		if all := m.Total(record.Connects) + m.Total(record.Disconnects); n != maxLifetimeEvents || all < 1900 {
			t.Errorf("got %d events of %d connects and disconnects, want %d of about 2000", n, all, maxLifetimeEvents)
		}
		if got := fmt.Sprint(m.Accounting(1).Missing); got != "0" {
			t.Errorf("got %s missing messages, want 0", got)
		}
	})
}

// With an automatic warm-up, lifetimes begin with the measurement.
func TestLifetimesStartWithTheMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Warmup, w.Steady.Auto, w.Measure = 100, 0, true, seconds(6)
			w.Consumers.Lifetime.ConnectAt = seconds(2)
			w.Publishers.Lifetime = plan.Lifetime{ConnectAt: seconds(1), DisconnectAt: seconds(4)}
		})
		s.onNew = func(e *Engine) {
			go func() {
				<-e.started
				time.Sleep(2500 * time.Millisecond)
				if err := e.Measure(3 * time.Second); err != nil {
					t.Error(err)
				}
			}()
		}
		m := s.run(t.Context())
		for second := range 9 {
			sent, received := m.Sum(record.Sent, second, second+1), m.Sum(record.Received, second, second+1)
			want := [2]int64{}
			switch {
			case second == 4:
				want = [2]int64{100, 0}
			case second == 5:
				want = [2]int64{100, 200}
			case second == 6:
				want = [2]int64{100, 100}
			}
			if sent != want[0] || received != want[1] {
				t.Errorf("second %d: got %d sent, %d received, want %v", second, sent, received, want)
			}
		}
	})
}

// A publisher waits for the broker during the whole period in which it should be disconnected. It disconnects late and
// connects again at once. It sends the messages that were due before that period, and none that were due during it.
func TestPublisherBlockedWhileDisconnected(t *testing.T) {
	for _, mode := range []string{"confirm-each", "confirm-window", "connection-per-message-confirm"} {
		for _, auto := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s auto %t", mode, auto), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newTestTask(t, func(w *plan.Workload) {
						w.Publishers.Mode, w.Publishers.Rate, w.Publishers.MaxInFlight, w.Warmup, w.Measure = mode, 100,
							1, 0, seconds(8)
						w.Publishers.Lifetime = plan.Lifetime{Stay: seconds(2), Away: seconds(1)}
						w.Steady.Auto = auto
						w.Connect = seconds(10)
					})
					shift := 0
					if auto {
						shift = 1
						s.onNew = func(e *Engine) {
							go func() {
								<-e.started
								time.Sleep(500 * time.Millisecond)
								if err := e.Measure(time.Second); err != nil {
									t.Error(err)
								}
							}()
						}
					}
					s.options = fmt.Sprintf(`{"stalls":[{"at":"%dms","for":"3s"}]}`, 1495+1000*shift) // 1.5 to 4.5 s
					m := s.run(t.Context())
					want := []int64{100, 50, 0, 0, 200, 0, 100, 100} // by the second of the measurement
					for second, n := range want {
						if got := m.Sum(record.Sent, second+shift, second+shift+1); got < n-2 || got > n+2 {
							t.Errorf("sent in second %d: got %d, want about %d", second, got, n)
						}
					}
					if n := m.Total(record.Unsent); n < 48 || n > 50 {
						t.Errorf("got %d unsent, want 48 to 50: those due from 1.5 to 2 s", n)
					}
					if disconnects, connects := m.Total(record.Disconnects),
						m.Total(record.Connects); disconnects != 2 ||
						connects != 2 {
						t.Errorf("got %d disconnects, %d connects, want 2, 2", disconnects, connects)
					}
					if late, blocked := m.Hist(record.SendDelay).Max(), m.Hist(record.Backpressure).Max(); late != 0 ||
						blocked < 14e8 || blocked > 16e8 {
						t.Errorf("got maximum send delay %d ns, maximum back-pressure %d ns, want 0, about 1.5 s (from the "+
							"scheduled connect to the actual one)", late, blocked)
					}
				})
			})
		}
	}
}

// A publisher with disconnected periods also ends in time at an unreachable rate. Skipping 3·10¹¹ single messages would
// exceed the time limit of go test. The test uses real time: skipping ends with the measurement. All messages that were
// due in the two active periods and not sent are counted.
func TestDisconnectEndsAtAnyRate(t *testing.T) {
	s := newTestTask(t, func(w *plan.Workload) {
		w.Publishers.Mode, w.Publishers.Rate, w.Warmup, w.Measure, w.Drain.Timeout = "confirm-each", 1e12, 0,
			seconds(0.3), seconds(1)
		w.Publishers.Lifetime = plan.Lifetime{Stay: seconds(0.1), Away: seconds(0.1)}
	})
	m := s.run(t.Context())
	if n := float64(m.Total(record.Unsent)); n < 0.99*2e11 || n > 1.01*2e11 {
		t.Errorf("got %v unsent, want about 2e11", n)
	}
}

// If a link breaks while its consumer disconnects, it is opened again only at the next connect.
func TestBrokenLinkOfADisconnectedConsumerStaysClosed(t *testing.T) {
	s := newTestTask(t, func(w *plan.Workload) { w.Consumers.Lifetime.DisconnectAt = seconds(0.5) })
	var consumers atomic.Int64
	links := fakeSession{consumer: func() drivers.Consumer {
		consumers.Add(1)
		return idleConsumer{}
	}}
	e, err := New(Config{Assignment: s.assignment(), Session: links})
	if err != nil {
		t.Fatal(err)
	}
	c := e.consumers[0]
	if err := c.link.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.journal.mu.Lock() // delays the recording of the event
	reported := make(chan struct{})
	go func() {
		c.link.onClosed(1, drivers.ErrClosed)
		close(reported)
	}()
	for c.link.lastBreak() == 0 {
		runtime.Gosched()
	}
	time.Sleep(time.Millisecond) // enough time for the wrong order, too
	c.depart()
	e.journal.mu.Unlock()
	<-reported
	c.lifetime = newLifetime(e.timeline, plan.Lifetime{ConnectAt: seconds(3600)}, 0, 1, forever) // disconnected
	e.timeline.origin.Store(clock.Now())
	e.timeline.from.Store(0)
	ctx, cancel := context.WithCancel(t.Context())
	go c.supervise(ctx)
	time.Sleep(5 * time.Millisecond)
	cancel()
	<-c.done
	if n := consumers.Load(); n != 1 {
		t.Errorf("got %d opened links, want 1", n)
	}
}

// idleConsumer is a consumer without deliveries.
type idleConsumer struct{ drivertest.Endless }

func (idleConsumer) Ack(int)      {}
func (idleConsumer) Nack(int)     {}
func (idleConsumer) Stop()        {}
func (idleConsumer) Close() error { return nil }

// slowClosePublisher takes half a second to close.
type slowClosePublisher struct{ slowPublisher }

func (slowClosePublisher) Close() error {
	time.Sleep(500 * time.Millisecond)
	return nil
}

// TestDisconnectedTimeIsNotWork covers a publisher that waits for the broker in each Publish and in Close, and is
// active for one of five seconds. It has no own work.
func TestDisconnectedTimeIsNotWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []float64{0, 100} {
			session := fakeSession{publisher: func(spec drivers.PublisherSpec) drivers.Publisher {
				return slowClosePublisher{slowPublisher{waiting: spec.Waiting}}
			}}
			_, times := runWithSession(t, session, rate, 0, 5*time.Second, func(a *plan.Assignment) {
				a.Task.Cell.Workload.Publishers.Lifetime = plan.Lifetime{ConnectAt: plan.Duration(time.Second),
					DisconnectAt: plan.Duration(2 * time.Second)}
			})
			if times.Busy() > 0.01 {
				t.Errorf("rate %v: got %+v, busy for %.2f of the time, want 0.00", rate, times, times.Busy())
			}
		}
	})
}
