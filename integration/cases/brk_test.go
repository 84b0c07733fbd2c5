package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// fails returns a handler that fails each call at once.
func fails(c codes.Code, text string) rig.Handler {
	return func(context.Context, string) error { return status.Error(c, text) }
}

var unavailable = fails(codes.Unavailable, "out of order")

// Probes that end without a verdict must not block the breaker for good (resilience4j/resilience4j#544).
func TestBRK01(t *testing.T) {
	const openFor = 500 * time.Millisecond
	eachStrategy(t, `"breaker":{"openFor":"0.5s","halfOpenProbes":3}`, func(t *testing.T, config string) {
		f := rig.New(t, 2)
		c := f.Client(rig.Setup{Options: dialOptions(config)})
		c.Ready(2)
		b := f.Backends[0]
		var v rig.Visits
		b.Handle(v.Around(unavailable))
		load := atRate(t, 50, mix(c))
		tripped := becomes(t, c, b, "open", 10*time.Second)
		neutral := fails(codes.NotFound, "no such row")
		b.Handle(v.Around(sequence(neutral, neutral, neutral, nil)))
		closed := becomes(t, c, b, "closed", 10*time.Second)
		assert.LessOrEqual(t, closed.Sub(tripped), 2*openFor+time.Second)
		assert.LessOrEqual(t, v.Gap(tripped, closed), 2*openFor, "without a probe")
		back := tripped.Add(2*openFor + time.Second)
		rig.For(time.Until(back.Add(2*time.Second)), tick, func(int) {})
		rs := load.stop()
		assert.GreaterOrEqual(t, rs.Between(back, back.Add(2*time.Second)).Share(b.Name), .2)
		assert.Equal(t, map[codes.Code]int{codes.OK: len(rs) - 3, codes.NotFound: 3}, rs.Codes(), "%v", rs)
	})
}

const tick = 10 * time.Millisecond

// While the first probe is pending, no more than the probes may go to an endpoint (App-vNext/Polly#216).
func TestBRK03(t *testing.T) {
	const openFor = time.Second
	eachStrategy(t, `"breaker":{"openFor":"1s","halfOpenProbes":3}`, func(t *testing.T, config string) {
		f := rig.New(t, 3)
		c := f.Client(rig.Setup{Options: dialOptions(config)})
		c.Ready(3)
		b := f.Backends[0]
		for _, other := range f.Backends[1:] {
			other.Takes(10 * time.Millisecond)
		}
		tripped := trip(t, c, b, homes(t, f, 0))
		var v rig.Visits
		b.Handle(v.Around(hang))
		rs := during(t, 10*time.Second, 2000, func(i int) rig.Result { return c.Send(rig.Model(i%300), 3*time.Second) })
		assert.LessOrEqual(t, v.Most(), 3, "in flight at once")
		assert.LessOrEqual(t, v.Densest(tripped, openFor), 3, "in one open time")
		assert.Positive(t, v.Len(), "it is probed")
		assert.LessOrEqual(t, float64(len(rs.Failed())), .005*float64(len(rs)), "%v", rs)
	})
}

// Whoever hears of a change may read the breaker and use the channel (sony/gobreaker#37). What hears of changes as they happen is gRPC's logger.
func TestBRK05(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.NewNamed(t, "listened0", "listened1")
		c := f.Client(rig.Setup{Options: dialOptions(
			`{"inference":{"strategy":"p2c"},"breaker":{"openFor":"0.1s","maxOpenFor":"0.1s","window":"1s"}}`)})
		c.Ready(2)
		b := f.Backends[0]
		var heard, told atomic.Int64
		stop := logged.Listen(func(line string) {
			if !strings.Contains(line, b.Addr()+": ") {
				return
			}
			heard.Add(1)
			defer told.Add(1)
			s := c.Snapshot()
			_, err := json.Marshal(s)
			assert.NoError(t, err)
			assert.NoError(t, c.Send("m", time.Second).Err, "a call from within")
			<-time.After(200 * time.Millisecond)
		})
		defer func() {
			stop()
			rig.Eventually(t, func() bool { return heard.Load() == told.Load() }, 10*time.Second, "whoever hears is done")
		}()

		load := atRate(t, 200, func(i int) rig.Result { return c.Send(rig.Model(i%100), time.Second) })
		for range 10 {
			b.Handle(unavailable)
			rig.Eventually(t, func() bool { return state(c, b) != "closed" }, 10*time.Second, "open")
			b.Handle(nil)
			rig.Eventually(t, func() bool { return state(c, b) == "closed" }, 10*time.Second, "closed")
		}
		rs := load.stop()
		rig.Eventually(t, func() bool { return len(changes(c, b.Addr())) >= 20 && int(heard.Load()) >= 20 },
			10*time.Second, "20 transitions are delivered")
		all := changes(c, b.Addr())
		for i, tr := range all[1:] {
			require.Equal(t, all[i].To, tr.From, "each change begins where the one before ended")
			require.False(t, tr.Time.Before(all[i].Time), "in order")
		}
		assert.Empty(t, rs.Failed(), "%v", rs)
		assert.LessOrEqual(t, rs.Slowest(), 5*time.Millisecond, "servers answer at once, so does the policy")
	})
}

// Never more endpoints may be ejected than the limit allows (envoyproxy/envoy#26877).
func TestBRK06(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3, 4, 10} {
		for _, percent := range []int{10, 34, 50, 67} {
			t.Run(fmt.Sprintf("%d %%d of %d", percent, n), func(t *testing.T) {
				inBubble(t, func(t *testing.T) { testEjected(t, n, percent) })
			})
		}
	}
}

func testEjected(t *testing.T, n, percent int) {
	limit := n * percent / 100
	f := rig.New(t, n)
	c := f.Client(rig.Setup{Options: dialOptions(fmt.Sprintf(`{"breaker":{"maxEjectionPercent":%d}}`, percent), mlbalancer.WithoutRetry())})
	c.Ready(n)
	for _, b := range f.Backends {
		b.Handle(unavailable)
	}
	load := atRate(t, 100, mix(c))
	most := 0
	rig.For(5*time.Second, tick, func(int) {
		s := c.Snapshot()
		open := 0
		for _, e := range s.Endpoints {
			if e.Breaker.State != "closed" {
				open++
			}
		}
		most = max(most, open)
		require.LessOrEqual(t, open, limit)
		require.LessOrEqual(t, s.OpenBreakers, limit)
		require.Equal(t, limit, s.MaxOpen)
	})
	rs := load.stop()
	require.GreaterOrEqual(t, len(rs), 490)
	require.Equal(t, limit, most, "as many as may")

	open := 0
	for _, tr := range c.Snapshot().Transitions {
		require.Empty(t, tr.Model)
		switch {
		case tr.From == "closed":
			open++
		case tr.To == "closed":
			open--
		}
		require.LessOrEqual(t, open, limit, "%v", tr)
	}
}

// When all breakers open, a limit below 100 % keeps a floor, and one of 100 % fails fast and says why, unless the panic rule
// goes by connectivity alone (istio/istio#20135).
func TestBRK07(t *testing.T) {
	t.Parallel()
	for _, percent := range []int{75, 100} {
		for _, panicAt := range []float64{0, .5} {
			t.Run(fmt.Sprintf("%d %% and panic at %v", percent, panicAt), func(t *testing.T) {
				inBubble(t, func(t *testing.T) { testAllOpen(t, percent, panicAt) })
			})
		}
	}
}

func testAllOpen(t *testing.T, percent int, panicAt float64) {
	f := rig.New(t, 4)
	c := f.Client(rig.Setup{Options: dialOptions(fmt.Sprintf(
		`{"breaker":{"openFor":"0.5s","maxEjectionPercent":%d},"health":{"panicThreshold":%v}}`, percent, panicAt))})
	c.Ready(4)
	var v rig.Visits
	for _, b := range f.Backends {
		b.Handle(v.Around(unavailable))
	}
	began := time.Now()
	recovered := began.Add(3 * time.Second)
	load := atRate(t, 100, mix(c))
	rig.For(3*time.Second, tick, func(int) {})
	for _, b := range f.Backends {
		b.Handle(v.Around(nil))
	}
	rig.For(7*time.Second, tick, func(int) {})
	rs := load.stop()

	if percent < 100 || panicAt > 0 {
		assert.LessOrEqual(t, v.Gap(began, began.Add(10*time.Second)), 150*time.Millisecond, "calls are sent at all times")
	}
	named := 0
	for _, r := range rs.Failed() {
		assert.Equal(t, codes.Unavailable, status.Code(r.Err))
		assert.Less(t, r.Took, 20*time.Millisecond)
		if strings.Contains(r.Err.Error(), "4 breakers are open (b0:1 is ") {
			named++
		}
	}
	switch {
	case percent < 100:
		assert.Zero(t, named)
	case panicAt == 0:
		assert.Positive(t, named, "the refusals name the breakers: %v", rs)
	default:
		assert.LessOrEqual(t, named, 10*5, "panic is found within a tenth of a second, each time that all open")
	}
	after := rs.Between(recovered.Add(1500*time.Millisecond), began.Add(time.Hour))
	assert.LessOrEqual(t, float64(len(after.Failed())), .01*float64(len(after)), "%v", after)
}

// Answers to what callers did wrong must not open a breaker (onflow/flow-go#4910).
func TestBRK09(t *testing.T) {
	t.Parallel()
	opens := map[codes.Code]bool{codes.Unavailable: true, codes.DeadlineExceeded: true, codes.Internal: true, codes.Unknown: true, codes.DataLoss: true}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		t.Run(code.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) { testCode(t, code, `{}`, opens[code]) })
		})
	}
	t.Run("NotFound made a failure", func(t *testing.T) {
		inBubble(t, func(t *testing.T) { testCode(t, codes.NotFound, `{"breaker":{"codes":{"NOT_FOUND":"failure"}}}`, true) })
	})
	t.Run("Unavailable made the caller's", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			testCode(t, codes.Unavailable, `{"breaker":{"codes":{"UNAVAILABLE":"caller-fault"}}}`, false)
		})
	})
}

func testCode(t *testing.T, code codes.Code, config string, opens bool) {
	f := rig.New(t, 3)
	c := f.Client(rig.Setup{Options: dialOptions(config, mlbalancer.WithoutRetry())})
	c.Ready(3)
	b, models := f.Backends[0], homes(t, f, 0)
	b.Handle(fails(code, "scripted"))
	if code == codes.Canceled { // the caller's own; that of servers is another case
		b.Handle(hang)
	}
	rs := during(t, 2*time.Second, 100, func(i int) rig.Result {
		if code != codes.Canceled {
			return c.Send(models[i%len(models)], limit)
		}
		return rig.Timed(limit, func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithCancel(ctx)
			timer := time.AfterFunc(tick, cancel)
			defer timer.Stop()
			return c.Call(ctx, models[i%len(models)])
		})
	})
	require.GreaterOrEqual(t, len(rs), 199)
	transitions := c.Snapshot().Transitions
	if opens {
		require.NotEmpty(t, transitions)
		require.Equal(t, "open", transitions[0].To)
		require.LessOrEqual(t, rs.Codes()[code], 30, "%v", rs)
		return
	}
	require.Empty(t, transitions)
	if code == codes.ResourceExhausted { // it is let alone for a while, as one that has too much to do
		return
	}
	require.Equal(t, len(rs), rs.Codes()[code], "all went there and came back: %v", rs)
}

// Failures that are slow or rare must trip as well (SolaceProducts/solace-broker-mcp#296).
func TestBRK11(t *testing.T) {
	const openFor = time.Second
	eachStrategy(t, `"breaker":{"window":"2s","minRequests":10,"consecutiveFailures":5}`, func(t *testing.T, config string) {
		f := rig.New(t, 2)
		c := f.Client(rig.Setup{Options: dialOptions(config)})
		c.Ready(2)
		b := f.Backends[0]
		var v rig.Visits
		b.Handle(v.Around(hang))
		load := atRate(t, 1, func(i int) rig.Result { return c.Send(rig.Model(i%100), 3*time.Second) })
		opened := becomes(t, c, b, "open", 2*time.Minute)
		failed := 0
		for _, at := range v.Times() {
			if !at.Add(3 * time.Second).After(opened) {
				failed++
			}
		}
		assert.LessOrEqual(t, failed, 5, "calls that failed before")
		rig.For(time.Minute, tick, func(int) {})
		rs := load.stop()
		assert.LessOrEqual(t, v.Densest(opened.Add(time.Nanosecond), openFor), 3, "probes in one open time")
		assert.LessOrEqual(t, len(rs.Failed()), v.Len(), "%v", rs)
	})
}

// How many probes there are, and what each verdict does, must be as documented (sony/gobreaker#53).
func TestBRK13(t *testing.T) {
	t.Parallel()
	t.Run("while it fails", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			f, c, b, models := tripped(t)
			var v rig.Visits
			b.Handle(v.Around(unavailable))
			from := time.Now()
			rs := during(t, 30*time.Second, 200, func(i int) rig.Result { return c.Send(models[i%len(models)], limit) })
			assert.LessOrEqual(t, v.Densest(from, time.Second), 4)
			assert.Positive(t, v.Len())
			assert.LessOrEqual(t, len(rs.Failed()), v.Len(), "%v", rs)
			require.Len(t, f.Backends, 2)
		})
	})
	for name, test := range map[string]struct {
		probes []rig.Handler
		then   string
	}{
		"the first fails":   {[]rig.Handler{unavailable, nil}, "open"},
		"the third fails":   {[]rig.Handler{nil, nil, unavailable, nil}, "open"},
		"all three succeed": {[]rig.Handler{nil, nil, nil, unavailable}, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				_, c, b, models := tripped(t)
				var v rig.Visits
				b.Handle(v.Around(sequence(test.probes...)))
				due(t, c, b)
				want := len(test.probes) - 1
				for i := range 100 {
					c.Send(models[i%len(models)], limit)
					if v.Len() == want {
						break
					}
					if v.Len() > 0 {
						require.Equal(t, "half-open", state(c, b), "after %d", v.Len())
					}
				}
				require.Equal(t, want, v.Len())
				require.Equal(t, test.then, state(c, b))
			})
		})
	}
	t.Run("ten at once", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			_, c, b, models := tripped(t)
			b.Takes(50 * time.Millisecond)
			due(t, c, b)
			rs := rig.Closed(10, 10, func(i int) rig.Result { return c.Send(models[i%len(models)], limit) })
			require.Empty(t, rs.Failed(), "%v", rs)
			require.Equal(t, map[string]int{"b0": 3, "b1": 7}, rs.By())
		})
	})
}

// tripped returns two servers, the first of which has just been tripped, and models that are at home there.
func tripped(t *testing.T) (*rig.Fleet, *rig.Client, *rig.Backend, []string) {
	f := rig.New(t, 2)
	c := f.Client(rig.Setup{Options: dialOptions(`{"breaker":{"openFor":"1s","halfOpenProbes":3}}`, mlbalancer.WithoutRetry())})
	c.Ready(2)
	models := homes(t, f, 0)
	trip(t, c, f.Backends[0], models)
	return f, c, f.Backends[0], models
}

// due waits until an open breaker is due for a probe.
func due(t *testing.T, c *rig.Client, b *rig.Backend) {
	rig.Eventually(t, func() bool { return c.Endpoint(b.Addr()).Breaker.OpenLeft == 0 }, 10*time.Second, "%s is due", b.Name)
}
