package cases

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// One server that hangs must not stall calls to the others (vllm-project/production-stack#749). Callers here are as many and as slow as keeps the
// machine out of it.
func TestOVLD01(t *testing.T) {
	t.Parallel()
	for name, hung := range map[string]func(b *rig.Backend){
		"no answer":  func(b *rig.Backend) { b.Handle(hang) },
		"no process": (*rig.Backend).Freeze,
	} {
		for _, s := range strategies {
			t.Run(name+" "+s, func(t *testing.T) {
				inBubble(t, func(t *testing.T) { testHung(t, s, hung) })
			})
		}
	}
	t.Run("no preface", func(t *testing.T) { inBubble(t, testNoPreface) })
}

const (
	ovldWorkers = 50
	ovldModels  = 200
	ovldTakes   = 100 * time.Millisecond
	ovldLimit   = time.Second
)

// ovldLoad has workers send calls of all models for some time.
func ovldLoad(t *testing.T, c *rig.Client, d time.Duration) rig.Results {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return rig.Until(ctx, ovldWorkers, func(i int) rig.Result { return c.Send(rig.Model(i%ovldModels), ovldLimit) })
}

func testHung(t *testing.T, strategy string, hung func(b *rig.Backend)) {
	f := rig.New(t, 5)
	c := f.Client(rig.Setup{Options: dialOptions(`{"inference":{"strategy":"` + strategy + `"}}`)})
	c.Ready(5)
	for _, b := range f.Backends {
		b.Takes(ovldTakes)
	}
	b := f.Backends[0]
	base := ovldLoad(t, c, 3*time.Second)
	require.Empty(t, base.Failed(), "%v", base)

	hung(b)
	began := time.Now()
	rs := ovldLoad(t, c, 12*time.Second)
	b.Thaw()
	later := rs.Between(began.Add(3*time.Second), began.Add(12*time.Second))
	failed := len(later.Failed())
	assert.GreaterOrEqual(t, float64(len(later)-failed)/9, .75*float64(len(base))/3, "calls a second")
	assert.LessOrEqual(t, float64(failed), .005*float64(len(later)), "%v", later)
	if strategy == "p2c" {
		return
	}
	here := map[int]bool{} // models that are at home on the server that hangs
	for m, at := range rig.ModelAware(t, `{}`, f.Endpoints()...).Map(rig.Models(ovldModels)) {
		here[m] = at == b.Addr()
	}
	others := slices.DeleteFunc(slices.Clone(rs), func(r rig.Result) bool { return here[r.Index%ovldModels] })
	assert.Empty(t, others.Failed(), "%v", others)
	assert.LessOrEqual(t, percentile(others, .99), 2*percentile(base, .99))
	own := slices.DeleteFunc(slices.Clone(later), func(r rig.Result) bool { return !here[r.Index%ovldModels] || r.Err != nil })
	assert.Greater(t, len(own), 100, "its models are served elsewhere")
}

// percentile returns how long calls took at most, but for a share of them.
func percentile(rs rig.Results, p float64) time.Duration {
	took := make([]time.Duration, len(rs))
	for i, r := range rs {
		took[i] = r.Took
	}
	slices.Sort(took)
	return took[int(p*float64(len(took)-1))]
}

// A server whose connection is accepted and then left alone is one that is not there.
func testNoPreface(t *testing.T) {
	f := rig.New(t, 5)
	f.Backends[0].Freeze()
	c := f.Client(rig.Setup{Options: dialOptions(`{}`)})
	for _, b := range f.Backends {
		b.Takes(ovldTakes)
	}
	c.Ready(4)
	rs := ovldLoad(t, c, 10*time.Second)
	f.Backends[0].Thaw()
	began := rs[0].Sent
	for _, r := range rs {
		if r.Sent.Before(began) {
			began = r.Sent
		}
	}
	later := rs.Between(began.Add(3*time.Second), began.Add(10*time.Second))
	assert.Empty(t, later.Failed(), "%v", later)
	assert.Equal(t, ovldTakes, percentile(later, 1), "no call waits for it")
}

// Servers that die together must be noticed together (envoyproxy/envoy#28304).
func TestOVLD03(t *testing.T) {
	t.Parallel()
	for _, s := range strategies {
		t.Run("fail "+s, func(t *testing.T) { inBubble(t, func(t *testing.T) { testFailTogether(t, s) }) })
		t.Run("gone "+s, func(t *testing.T) { inBubble(t, func(t *testing.T) { testGoneTogether(t, s) }) })
	}
}

// six returns six busy servers and the load on them, without retries.
func six(t *testing.T, strategy string) (*rig.Fleet, *rig.Client, *background) {
	f := rig.New(t, 6)
	c := f.Client(rig.Setup{Options: dialOptions(`{"inference":{"strategy":"`+strategy+`"}}`, mlbalancer.WithoutRetry())})
	c.Ready(6)
	for _, b := range f.Backends {
		b.Takes(ovldTakes)
	}
	load := inBackground(t, 100, func(i int) rig.Result {
		defer func() { _ = rig.Wait(t.Context(), time.Millisecond) }() // else calls are sent while a connection closes, which takes no time here
		return mix(c)(i)
	})
	rig.For(2*time.Second, tick, func(int) {})
	return f, c, load
}

func testFailTogether(t *testing.T, strategy string) {
	f, c, load := six(t, strategy)
	dead := f.Backends[:3]
	died := make(chan struct{})
	for _, b := range dead {
		b.Handle(func(ctx context.Context, _ string) error {
			timer := time.NewTimer(ovldTakes)
			defer timer.Stop()
			select {
			case <-timer.C:
				return nil
			case <-died:
				return unavailable(ctx, "")
			}
		})
	}
	rig.For(2*ovldTakes, tick, func(int) {})
	visits := make([]rig.Visits, len(dead))
	allowed := 0
	began := time.Now()
	for i, b := range dead {
		allowed += 5 + b.Running()
		b.Handle(visits[i].Around(unavailable))
	}
	close(died)
	var opened []time.Time
	for _, b := range dead {
		opened = append(opened, becomes(t, c, b, "open", 10*time.Second))
	}
	rig.For(900*time.Millisecond, tick, func(int) {}) // no probe before an open time has passed
	failed := 0
	for i := range dead {
		assert.Zero(t, visits[i].Between(opened[i].Add(200*time.Millisecond), opened[i].Add(900*time.Millisecond)), "calls after the trip")
		failed += visits[i].Between(began, opened[i].Add(900*time.Millisecond))
	}
	rs := load.stop()
	assert.LessOrEqual(t, failed, allowed)
	assert.LessOrEqual(t, len(rs.Failed()), allowed+3*3, "%v", rs) // the probes that were due meanwhile
	for code := range rs.Codes() {
		assert.Contains(t, []codes.Code{codes.OK, codes.Unavailable}, code)
	}
}

func testGoneTogether(t *testing.T, strategy string) {
	f, _, load := six(t, strategy)
	running := 0
	for _, b := range f.Backends[:3] {
		running += b.Running()
		b.Stop()
	}
	rig.For(2*time.Second, tick, func(int) {})
	rs := load.stop()
	assert.LessOrEqual(t, len(rs.Failed()), running, "%v", rs)
	for _, r := range rs.Failed() {
		assert.Equal(t, codes.Unavailable, status.Code(r.Err))
	}
}

// One host that is away must not take the throughput of all with it (envoyproxy/envoy#39737).
func TestOVLD08(t *testing.T) {
	const workers, away = 100, 10 * time.Second
	eachStrategy(t, `"health":{}`, func(t *testing.T, config string) {
		f := rig.New(t, 10)
		c := f.Client(rig.Setup{Options: dialOptions(config)})
		c.Ready(10)
		for _, b := range f.Backends {
			b.Handle(func(ctx context.Context, _ string) error {
				return rig.Wait(ctx, 100*time.Millisecond+rand.N(100*time.Millisecond))
			})
		}
		began := time.Now()
		load := inBackground(t, workers, func(i int) rig.Result { return c.Send(rig.Model(i%ovldModels), 2*time.Second) })
		at := func(s time.Duration) time.Time { return began.Add(s * time.Second) }
		rig.For(5*time.Second, tick, func(int) {})
		frozen := typical(c, f)
		frozen.Freeze()
		rig.For(away, tick, func(int) {})
		frozen.Thaw()
		rig.For(10*time.Second, tick, func(int) {})
		rs := load.stop()

		served := func(from time.Duration) float64 { // in one second, by when they ended
			n := 0
			for _, r := range rs {
				if end := r.Sent.Add(r.Took); r.Err == nil && !end.Before(at(from)) && end.Before(at(from+1)) {
					n++
				}
			}
			return float64(n)
		}
		base := (served(2) + served(3) + served(4)) / 3
		for s := time.Duration(5); s < 24; s++ {
			share := .4
			if s >= 8 {
				share = .85
			}
			if s >= 18 {
				share = .95
			}
			assert.GreaterOrEqual(t, served(s)/base, share, "in second %d", s)
		}
		assert.LessOrEqual(t, len(rs.Failed()), workers+10, "%v", rs)
		rig.Eventually(t, func() bool { return state(c, frozen) == "closed" }, time.Minute, "it is back")
	})
}

// typical returns the backend whose part of the calls is nearest to a fair one: it is one of ten that goes away, and the ring's shares differ.
func typical(c *rig.Client, f *rig.Fleet) *rig.Backend {
	picks := map[string]float64{}
	total := 0.0
	for _, e := range c.Snapshot().Endpoints {
		for _, n := range e.Picks {
			picks[e.Name] += float64(n)
			total += float64(n)
		}
	}
	best, off := f.Backends[0], math.Inf(1)
	for _, b := range f.Backends {
		if d := math.Abs(picks[b.Addr()] - total/float64(len(f.Backends))); d < off {
			best, off = b, d
		}
	}
	return best
}
