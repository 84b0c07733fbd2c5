package picker

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

func equals(n int, service func(*rand.Rand, time.Duration) time.Duration) []*server {
	servers := make([]*server, n)
	for i := range servers {
		servers[i] = &server{service: service}
	}
	return servers
}

// An idle fleet shares its calls, though no two servers look equally fast for long: one slow answer must not cost a server its part.
func TestP2CSharesAnIdleFleet(t *testing.T) {
	for name, service := range map[string]func(*rand.Rand, time.Duration) time.Duration{
		"constant":               constant(ms),
		"1 % up to 5 times":      jittery(ms, 0.01, 5),
		"5 % up to 5 times":      jittery(ms, 0.05, 5),
		"2 in 1000 up to 20":     jittery(ms, 0.002, 20),
		"1 in 1000 up to 50":     jittery(ms, 0.001, 50),
		"a third more or less":   lognormal(ms, 0.3),
		"as wide as model calls": lognormal(ms, 0.8),
	} {
		for _, inFlight := range []int{1, 2} {
			for seed := range uint64(3) {
				s := simulate(seed, Defaults("p2c"), 1, equals(8, service)...)
				calls := 8000
				for range inFlight {
					s.closed(0, &calls)
				}
				s.run(time.Hour)
				for i, n := range s.calls {
					assert.True(t, 500 <= n && n <= 1750, "%s, %d in flight, seed %d: server %d got %d", name, inFlight, seed, i, n)
				}
			}
		}
	}
}

// A slow server gets at most a quarter of an equal share, whatever the unit of latencies.
func TestP2CAvoidsTheSlow(t *testing.T) {
	for _, c := range []struct {
		fast, slow time.Duration
		rate       float64
		until      time.Duration
	}{
		{2 * ms, 400 * ms, 500, 20 * time.Second},
		{100 * ms, 3 * time.Second, 20, 60 * time.Second},
	} {
		for _, cv := range []float64{0, 0.5} {
			for seed := range uint64(3) {
				servers := append(equals(3, lognormal(c.fast, cv)), equals(1, lognormal(c.slow, cv))...)
				s := simulate(seed, Defaults("p2c"), 1, servers...)
				s.open(c.rate)
				s.run(5 * time.Second)
				s.measure()
				s.run(c.until)
				assert.Less(t, s.share(3), 0.25, "%v and %v, cv %v, seed %d", c.fast, c.slow, cv, seed)
				assert.Positive(t, s.calls[3], "it is tried again")
			}
		}
	}
}

// A server that turns slow loses its share within 3 s, and has it back within 5 s of its recovery.
func TestP2CForgets(t *testing.T) {
	for _, cv := range []float64{0, 0.5} {
		for seed := range uint64(5) {
			slow, fast := lognormal(200*ms, cv), lognormal(5*ms, cv)
			b1 := &server{service: func(rng *rand.Rand, now time.Duration) time.Duration {
				if now > 5*time.Second && now < 15*time.Second {
					return slow(rng, now)
				}
				return fast(rng, now)
			}}
			s := simulate(seed, Defaults("p2c"), 1, append(equals(2, fast), b1)...)
			s.open(300)
			s.run(8 * time.Second)
			s.measure()
			s.run(15 * time.Second)
			assert.Less(t, s.share(2), 0.4, "cv %v, seed %d", cv, seed)
			s.measure()
			s.run(20 * time.Second)
			assert.NotZero(t, s.calls[2])
			s.measure()
			s.run(25 * time.Second)
			assert.Greater(t, s.share(2), 0.5, "cv %v, seed %d", cv, seed)
		}
	}
}

// A server that nobody called since it was slow is tried again within 5 s.
func TestP2CTriesAgain(t *testing.T) {
	for seed := range uint64(10) {
		s := simulate(seed, Defaults("p2c"), 1, equals(3, constant(5*ms))...)
		for i, latency := range []time.Duration{5 * ms, 5 * ms, 200 * ms} {
			s.clients[0].Member(i).Observe(0, latency)
		}
		s.now = 0
		s.open(300)
		s.run(5 * time.Second)
		assert.Positive(t, s.calls[2], "seed %d", seed)
	}
}

// While its slow calls are under way a server does not look better than others, for however long nothing was heard of it.
func TestP2CHungServer(t *testing.T) {
	table := readyTable(Defaults("p2c"), rand.Uint64, 2)
	hung, other := table.Member(0), table.Member(1)
	hung.Observe(0, time.Second)
	other.Observe(0, 10*ms)
	hung.Begin(DefaultTokens, LessLoaded)
	q := queryFor("")
	for _, after := range []time.Duration{0, time.Minute, time.Hour} {
		q.Now = int64(after)
		for range 20 {
			require.Equal(t, Choice{Index: 1, Reason: LessLoaded}, table.Pick(q))
		}
	}
	hung.End(DefaultTokens)
	picked := map[int]bool{}
	for range 100 {
		c := table.Pick(q)
		require.Equal(t, Tie, c.Reason)
		picked[c.Index] = true
	}
	assert.Len(t, picked, 2)
}

// A newcomer neither attracts all calls nor is shunned, whether the others are fast or slow.
func TestP2CNewcomer(t *testing.T) {
	for _, usual := range []time.Duration{ms, time.Second} {
		for seed := range uint64(3) {
			s := simulate(seed, Defaults("p2c"), 1, equals(5, lognormal(usual, 0.3))...)
			for i := range 4 {
				s.clients[0].Member(i).Observe(0, usual)
			}
			s.open(4 / usual.Seconds())
			s.run(400 * usual)
			assert.InDelta(t, 1, s.share(4), 0.3, "%v, seed %d", usual, seed)
		}
	}

	// Not even if its first answers are long in coming.
	table := readyTable(Defaults("p2c"), rand.New(rand.NewPCG(1, 1)).Uint64, 5)
	for i := range 4 {
		table.Member(i).Observe(0, ms)
	}
	for range 50 {
		c := table.Pick(queryFor(""))
		table.Member(c.Index).Begin(DefaultTokens, c.Reason)
	}
	assert.InDelta(t, 10, table.Member(4).InFlight(), 2)
}

// Long calls of unknown latency, such as streams, are spread evenly one by one.
func TestP2CSpreadsStreams(t *testing.T) {
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 1))
		table := readyTable(Defaults("p2c"), rng.Uint64, 3)
		open := func(n int) (calls [3]int) {
			for range n {
				c := table.Pick(queryFor(""))
				table.Member(c.Index).Begin(DefaultTokens, c.Reason)
				calls[c.Index]++
			}
			return calls
		}
		for i, n := range open(90) {
			assert.InDelta(t, 30, n, 3, "server %d", i)
		}
		e := table.Member(0)
		for e.InFlight() > 0 {
			e.End(DefaultTokens)
		}
		assert.GreaterOrEqual(t, open(30)[0], 12)
	}
}

func TestP2CDraws(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))

	// As many choices as endpoints: the least loaded one is always among them, so draws are distinct.
	for n := 2; n <= maxChoices; n++ {
		table := readyTable(&P2COptions{Choices: maxChoices}, rng.Uint64, n)
		for i := range n {
			table.Member(i).Begin(uint32(1000-i), Home)
		}
		for range 200 {
			require.Equal(t, Choice{Index: n - 1, Reason: LessLoaded}, table.Pick(queryFor("")))
		}
	}

	// Among equals everyone is as likely, for any number of choices.
	for choices := 2; choices <= maxChoices; choices++ {
		const n, calls = 12, 12_000
		table := readyTable(&P2COptions{Choices: choices}, rng.Uint64, n)
		var picked [n]int
		for range calls {
			c := table.Pick(queryFor(""))
			require.Equal(t, Tie, c.Reason)
			picked[c.Index]++
		}
		for i, got := range picked {
			assert.InDelta(t, calls/n, got, 5*31, "%d choices, endpoint %d", choices, i)
		}
	}

	// With d of n the least loaded one is seen by d/n of the calls.
	for _, choices := range []int{2, 5} {
		const n, calls = 20, 20_000
		table := readyTable(&P2COptions{Choices: choices}, rng.Uint64, n)
		for i := 1; i < n; i++ {
			table.Member(i).Begin(DefaultTokens, Home)
		}
		seen := 0
		for range calls {
			if table.Pick(queryFor("")) == (Choice{Index: 0, Reason: LessLoaded}) {
				seen++
			}
		}
		assert.InDelta(t, calls*choices/n, seen, 400)
	}
}

// The latencies of idle endpoints are compared with a band: within it they are equals.
func TestP2CBand(t *testing.T) {
	reasons := func(latency time.Duration) map[Choice]int {
		table := readyTable(Defaults("p2c"), rand.Uint64, 2)
		table.Member(0).Observe(1, 10*ms)
		table.Member(1).Observe(1, latency)
		seen := map[Choice]int{}
		for range 100 {
			seen[table.Pick(queryFor(""))]++
		}
		return seen
	}
	assert.Len(t, reasons(12*ms), 2)
	assert.Len(t, reasons(8*ms), 2)
	assert.Equal(t, map[Choice]int{{Index: 0, Reason: LessLoaded}: 100}, reasons(13*ms))
	assert.Equal(t, map[Choice]int{{Index: 1, Reason: LessLoaded}: 100}, reasons(7*ms))
}

// Load is per weight, and so are the turns of an idle fleet.
func TestP2CWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	members, status := namedFleet(1, 3)
	table := NewTable(nil, planOf(Defaults("p2c")), members, status, rng.Uint64)
	share := func() float64 {
		heavy := 0.0
		for range 4000 {
			heavy += float64(table.Pick(queryFor("")).Index)
		}
		return heavy / 4000
	}
	assert.InDelta(t, 0.75, share(), 0.04)

	members[0].Begin(DefaultTokens, Home) // (1+1)/1 against (2+1)/3
	members[1].Begin(2*DefaultTokens, Home)
	assert.Equal(t, 1., share())
	members[1].Begin(4*DefaultTokens, Home) // against (6+1)/3
	assert.Equal(t, 0., share())
	members[1].End(DefaultTokens) // against (5+1)/3: equal
	assert.InDelta(t, 0.75, share(), 0.04)
}

// The cost of a call counts, not that it is one call.
func TestP2CCountsTokens(t *testing.T) {
	table := readyTable(Defaults("p2c"), rand.Uint64, 2)
	table.Member(0).Begin(10_000, Home)
	for range 20 {
		table.Member(1).Begin(100, Home)
	}
	for range 20 {
		require.Equal(t, Choice{Index: 1, Reason: LessLoaded}, table.Pick(queryFor("")))
	}
}

func TestP2CAvoids(t *testing.T) {
	const n = 40
	table := readyTable(Defaults("p2c"), rand.Uint64, n)
	q := queryFor("")
	for i := range n {
		q.Avoid = append(q.Avoid, table.Member(i).Endpoint)
	}
	all := slices.Clone(q.Avoid)
	for left := range n {
		q.Avoid = slices.Delete(slices.Clone(all), left, left+1)
		require.Equal(t, Choice{Index: left, Reason: Only}, table.Pick(q))
	}
	q.Avoid = all[2:]
	for range 100 {
		require.Less(t, table.Pick(q).Index, 2)
	}
	q.Avoid = all
	require.Equal(t, Tie, table.Pick(q).Reason, "none left to avoid")
	assert.Equal(t, all, q.Avoid)
}

// Busy servers with queues: the tail is shorter than with turns, and far shorter if some servers are slow.
func TestP2CTail(t *testing.T) {
	tail := func(o Options, slow int, service func(*rand.Rand, time.Duration) time.Duration) float64 {
		servers := equals(20, service)
		for i := range servers {
			servers[i].workers = 4
			if i < slow {
				servers[i].service = lognormal(time.Second, 0.8)
			}
		}
		s := simulate(1, o, 4, servers...)
		s.open(0.9 * 4 * (20 - 0.75*float64(slow)) / 0.25)
		s.run(20 * time.Second)
		s.measure()
		s.run(100 * time.Second)
		return s.quantile(0.99)
	}
	usual := lognormal(250*ms, 0.8)
	assert.Less(t, tail(Defaults("p2c"), 0, usual), 0.95*tail(Defaults("round_robin"), 0, usual))
	assert.Less(t, tail(Defaults("p2c"), 2, usual), 0.1*tail(Defaults("round_robin"), 2, usual))
}
