package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mlbalancer/mlbalancer/balancer"
)

const (
	// beat is how often the watch looks at the clock, and lookEvery how many beats pass between two looks at the channels.
	beat      = 5 * time.Millisecond
	lookEvery = 10
	// settling is how long connections and goroutines may outlive what they belonged to.
	settling = 5 * time.Second
	// slack is how many goroutines may be left.
	slack = 3
)

// pauses measures how long this process got no processor. What is timed here is timed on a machine that others use as well.
type pauses struct {
	max  atomic.Int64
	last atomic.Pointer[time.Time] // when the watch last ran
}

// longest returns the longest pause so far, the one that may be going on included.
func (p *pauses) longest() time.Duration {
	now := time.Duration(0)
	if last := p.last.Load(); last != nil {
		now = time.Since(*last) - beat
	}
	return max(now, time.Duration(p.max.Load()))
}

func (p *pauses) beat(now time.Time) {
	p.max.Store(int64(p.longest()))
	p.last.Store(&now)
}

// watch runs for as long as the fleet does.
func (f *Fleet) watch(done <-chan struct{}) {
	t := time.NewTicker(beat)
	defer t.Stop()
	for n := 0; ; n++ {
		f.pauses.beat(time.Now())
		select {
		case <-done:
			return
		case <-t.C:
		}
		if n%lookEvery == 0 {
			f.look(n / lookEvery)
		}
	}
}

// look checks the counts of one channel.
func (f *Fleet) look(turn int) {
	f.mu.Lock()
	clients := f.clients
	f.mu.Unlock()
	if len(clients) == 0 {
		return
	}
	c := clients[turn%len(clients)]
	if c.idles {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), beat)
	defer cancel()
	s, err := balancer.Snapshot(ctx, c.ClientConn)
	if err != nil {
		return // it is closed, knows no endpoints yet, or has another policy
	}
	for _, e := range s.Endpoints {
		if e.InFlight < 0 || e.InFlight > maxInFlight || e.CostInFlight < 0 {
			f.tb.Errorf("%s has %d calls of cost %d in flight", e.Name, e.InFlight, e.CostInFlight)
		}
	}
}

// maxInFlight is more calls than any test sends. A count below 0 may show as a huge one.
const maxInFlight = 100_000

// close ends everything, and checks that it does.
func (f *Fleet) close() {
	f.mu.Lock()
	clients := f.clients
	f.mu.Unlock()
	for _, c := range clients {
		f.rest(c)
		if err := c.Close(); err != nil {
			f.tb.Errorf("closing a channel: %v", err)
		}
	}
	Eventually(f.tb, func() bool { return f.open.Load() == 0 }, settling, "no open connection")
	for _, b := range f.Backends {
		b.Stop()
	}
	n, stacks := 0, ""
	if !waitFor(func() bool { n, stacks = labelled(f.tb); return n <= slack }, settling) {
		f.tb.Errorf("%d goroutines are left, want at most %d:\n%s", n, slack, stacks)
	}
}

// rest checks that a channel counts no call in flight once all calls have ended.
func (f *Fleet) rest(c *Client) {
	if !waitFor(func() bool { return c.calls.Load() == 0 }, Patience) {
		f.tb.Errorf("%d calls hang", c.calls.Load())
		return
	}
	busy := ""
	if !waitFor(func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s, err := balancer.Snapshot(ctx, c.ClientConn)
		busy = ""
		for _, e := range s.Endpoints {
			if e.InFlight != 0 || e.CostInFlight != 0 {
				busy += fmt.Sprintf(" %s: %d calls of cost %d;", e.Name, e.InFlight, e.CostInFlight)
			}
		}
		return err != nil || busy == ""
	}, settling) {
		f.tb.Errorf("calls are in flight that have ended:%s", busy)
	}
}

const labelKey = "rig"

// label marks this test's goroutine, and so all that it starts.
func label(tb testing.TB) {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(labelKey, tb.Name())))
}

// labelled returns how many goroutines this test has started that still run, and where they are.
func labelled(tb testing.TB) (int, string) {
	var profile bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1) // a buffer takes everything
	mine := fmt.Sprintf("%q:%q", labelKey, tb.Name())
	n, stacks := -1, "" // without the one that asks
	for group := range strings.SplitSeq(profile.String(), "\n\n") {
		if !strings.Contains(group, mine) {
			continue
		}
		count, _, _ := strings.Cut(strings.TrimSpace(group), " ")
		k, _ := strconv.Atoi(count)
		n += k
		stacks += group + "\n\n"
	}
	return n, stacks
}

// Watchdog ends the process, with the stacks of all goroutines, if the test takes longer than limit.
func Watchdog(tb testing.TB, limit time.Duration) {
	t := time.AfterFunc(limit, func() {
		fmt.Fprintf(os.Stderr, "%s hangs\n", tb.Name())
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2) // it ends here either way
		panic(tb.Name() + " hangs")
	})
	tb.Cleanup(func() { t.Stop() })
}
